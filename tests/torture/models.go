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

// model runs a part of the library together with a model of it.
type model interface {
	verbs() []verb  // each changes both sides and compares the results
	compare() error // compares the entire observable state
}

// verb is an operation that is drawn with the given weight.
type verb struct {
	name   string
	weight int
	do     func() error
}

// kinds lists all models. The seed selects the model of a round.
var kinds = []struct {
	name string
	make func(*lab) (model, error)
}{
	{"queue", newQueueModel}, {"stream", newStreamModel}, {"group", newGroupModel}, {"lock", newLockModel},
	{"rate", newRateModel}, {"retention", newRetentionModel}, {"scheduler", newSchedulerModel}, {"outbox", newOutboxModel},
}

// Models runs random operations on a part of the library and on its model, and compares all
// results.
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

// lab is the environment of a model.
//
// Time passes by subtracting it from all times in the file, as if the clock was ahead. It passes in
// multiples of 1000 seconds, and spans end on 500, so the exact current second does not matter. The
// times of a model include the passed time.
type lab struct {
	*Round
	ctx      context.Context
	db       *honker.DB
	opened   []*honker.DB
	passed   int64 // in seconds
	compared int64
}

func (l *lab) path() string { return filepath.Join(l.Dir, "app.db") }

// open opens the file. It can be called repeatedly.
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

// Spans end on 500 seconds, and time passes in multiples of leap.
const (
	span = 1500 * time.Second
	leap = 1000 * time.Second
)

const (
	steps   = 600 // per round
	overall = 50  // steps between two full comparisons
)

// run runs random operations, with a full comparison after every overall steps and at the end.
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

// same compares a result of the library with that of the model.
func (l *lab) same(what string, got, want any) error {
	l.compared++
	if fmt.Sprint(got) != fmt.Sprint(want) {
		return fmt.Errorf("%w: %s: the file has %v, the model %v", errMismatch, what, got, want)
	}
	return nil
}

// about compares times that the library has just read from the clock.
func (l *lab) about(what string, got, want int64) error {
	l.compared++
	if got < want-5 || got > want+5 {
		return fmt.Errorf("%w: %s: time %d is not close to %d", errMismatch, what, got, want)
	}
	return nil
}

// second returns the current time of the models, in Unix seconds.
func (l *lab) second() int64 { return time.Now().Unix() + l.passed }

// in returns the time d from now.
func (l *lab) in(d time.Duration) int64 { return l.second() + int64(d/time.Second) }

// perhaps returns span or 0.
func (l *lab) perhaps() time.Duration { return span * time.Duration(l.Rand.IntN(2)) }

// pass lets time pass. Each statement must subtract ?1 seconds from times in the file.
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

// anyOf returns a random element of all, most of the time among the last young elements.
func anyOf[T any](l *lab, all []T, young int) T {
	if l.Rand.IntN(4) > 0 {
		all = all[max(0, len(all)-young):]
	}
	return all[l.Rand.IntN(len(all))]
}
