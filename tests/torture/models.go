//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/honker-go/honker"
)

// model is a part of the library beside the same in plain Go.
type model interface {
	verbs() []verb  // each does something to both, and compares the answers
	compare() error // all that can be seen
}

// verb is drawn as often as its weight says.
type verb struct {
	name   string
	weight int
	do     func() error
}

// kinds are all models; a round has one of them, by its seed.
var kinds = []struct {
	name string
	make func(*lab) (model, error)
}{
	{"queue", newQueueModel}, {"stream", newStreamModel}, {"group", newGroupModel}, {"lock", newLockModel},
	{"rate", newRateModel}, {"retention", newRetentionModel}, {"scheduler", newSchedulerModel}, {"outbox", newOutboxModel},
}

// Models does random things to a part of the library and to its model in plain Go, and
// compares all answers.
func Models(ctx context.Context, r *Round) (err error) {
	r.Add("mismatches", 0)
	kind := kinds[r.Seed%uint64(len(kinds))]
	l := &lab{Round: r, ctx: context.WithoutCancel(ctx)}
	defer l.close()
	defer func() { keep(l.path(), &err) }()
	if l.db, err = l.open(); err != nil {
		return err
	}
	m, err := kind.make(l)
	if err == nil {
		err = l.run(ctx, m)
	}
	r.Add("operations", l.compared)
	r.Add("operations_"+kind.name, l.compared)
	if errors.Is(err, errMismatch) {
		r.Add("mismatches", 1)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", kind.name, err)
	}
	return l.db.Check(l.ctx)
}

// lab is where a model and the library stand side by side.
//
// Time passes by being subtracted from all times in the file, as other clocks would see
// it. It passes by thousands of seconds, and spans end on five hundred, so that it does
// not matter which second it really is. Models count on: their times have what has
// passed added.
type lab struct {
	*Round
	ctx      context.Context
	db       *honker.DB
	opened   []*honker.DB
	passed   int64 // seconds
	compared int64
}

func (l *lab) path() string { return filepath.Join(l.Dir, "app.db") }

// open opens the file, once more perhaps.
func (l *lab) open() (*honker.DB, error) {
	db, err := honker.Open(l.ctx, l.path(), &honker.Options{NoFileNotices: true, Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		l.opened = append(l.opened, db)
	}
	return db, err
}

func (l *lab) close() {
	for _, db := range l.opened {
		_ = db.Close()
	}
}

// spans that end on five hundred, and how far time goes.
const (
	span = 1500 * time.Second
	leap = 1000 * time.Second
)

const (
	steps   = 600 // of a round
	overall = 50  // steps from one comparison of everything to the next
)

func (l *lab) run(ctx context.Context, m model) error {
	var drawn []verb
	for _, v := range m.verbs() {
		drawn = append(drawn, slices.Repeat([]verb{v}, v.weight)...)
	}
	for i := 0; i < steps && ctx.Err() == nil; i++ {
		v := drawn[l.Rand.IntN(len(drawn))]
		err := v.do()
		if err == nil && i%overall == overall-1 {
			err = m.compare()
		}
		if err != nil {
			return fmt.Errorf("step %d, %s: %w", i, v.name, err)
		}
	}
	return m.compare()
}

var errMismatch = errors.New("file and model differ")

// same compares what the library said with what the model says.
func (l *lab) same(what string, got, want any) error {
	l.compared++
	if fmt.Sprint(got) != fmt.Sprint(want) {
		return fmt.Errorf("%w: %s: the file has %v, the model %v", errMismatch, what, got, want)
	}
	return nil
}

// about is for times that the library read from the clock a moment ago.
func (l *lab) about(what string, got, want int64) error {
	l.compared++
	if got < want-5 || got > want+5 {
		return fmt.Errorf("%w: %s: at %d, and not about %d", errMismatch, what, got, want)
	}
	return nil
}

// second is what the models call now.
func (l *lab) second() int64 { return time.Now().Unix() + l.passed }

// in is d from now.
func (l *lab) in(d time.Duration) int64 { return l.second() + int64(d/time.Second) }

// perhaps is a span, or 0.
func (l *lab) perhaps() time.Duration { return span * time.Duration(l.Rand.IntN(2)) }

// pass lets time pass; statements subtract the seconds ?1 from the times in the file.
func (l *lab) pass(statements ...string) error {
	seconds := int64(leap/time.Second) * int64(1+l.Rand.IntN(2))
	l.passed += seconds
	for _, statement := range statements {
		if _, err := l.db.SQL().ExecContext(l.ctx, statement, seconds); err != nil {
			return err
		}
	}
	return nil
}

// anyOf is one of all, mostly one of the last young ones.
func anyOf[T any](l *lab, all []T, young int) T {
	if l.Rand.IntN(4) > 0 {
		all = all[max(0, len(all)-young):]
	}
	return all[l.Rand.IntN(len(all))]
}
