//go:build unix

package torture

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/tests/torture/wallclock"
)

// Replaced checks that a process whose clock is changed notices that its file was replaced. Writers
// must notice quickly, because their acknowledged writes go to a file that can no longer be opened.
// The process is a child, so that it can set its own clock.
func Replaced(ctx context.Context, r *Round) error {
	for _, name := range []string{"replaced", "acked_late", "not_told"} {
		r.Add(name, 0)
	}
	for i := 0; i < 4 && ctx.Err() == nil; i++ {
		p := part{Path: filepath.Join(r.Dir, fmt.Sprintf("app%d.db", i)), Number: r.Rand.IntN(1 << 30)}
		for range 2 {
			p.Clocks = append(p.Clocks, anyStep(r.Rand))
		}
		if err := r.replaceOne(p); err != nil {
			return err
		}
		r.Add("replaced", 1)
	}
	return nil
}

func (r *Round) replaceOne(p part) error {
	cmd, err := testkit.ChildCommand("torture replaced", p)
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(out)
	c, err := start(cmd)
	if err != nil {
		return err
	}
	for lines.Scan() {
		var what string
		var n int64
		if _, err := fmt.Sscan(lines.Text(), &what, &n); err != nil {
			return errors.Join(fmt.Errorf("the child printed %q", lines.Text()), c.stop())
		}
		r.Max("worst_"+what+"_ms", n)
		if n > toldWithin[what].Milliseconds() {
			r.Add(map[string]string{"ack": "acked_late", "waiter": "not_told"}[what], 1)
			err = errors.Join(err, fmt.Errorf("clock set by %v: the last %s is %d ms after the file was replaced", p.Clocks, what, n))
		}
	}
	return errors.Join(err, c.stop())
}

// toldWithin contains the limits, with some time for a busy machine. A writer checks the file every
// 100 ms, and a waiter without notices every four seconds.
var toldWithin = map[string]time.Duration{"ack": 10 * time.Second, "waiter": 15 * time.Second}

// beReplaced is the child process. It waits and writes in all supported ways, sets its clock,
// replaces its file, and sets its clock again. It prints the times of the last acknowledged write
// and of the last waiter to notice.
func beReplaced() {
	p := testkit.ChildArgs[part]()
	luck := rand.New(rand.NewPCG(uint64(p.Number), 7))
	ctx, cancel := context.WithTimeout(testkit.ChildContext(), 2*toldWithin["waiter"])
	defer cancel()
	db, err := honker.Open(ctx, p.Path, &honker.Options{NoFileNotices: luck.IntN(2) == 0})
	testkit.Must(err)
	var writers, waiters sync.WaitGroup
	var acked, told latest
	for range 2 * luck.IntN(2) { // without writers, waiters must notice on their own
		writers.Go(func() { testkit.Must(enqueueUntilTold(ctx, db, &acked)) })
	}
	for name, wait := range replacedWaits(db) {
		waiters.Go(func() {
			err := wait(ctx)
			told.note()
			if ctx.Err() == nil && !errors.Is(err, honker.ErrDatabaseReplaced) {
				testkit.Must(fmt.Errorf("%s, with the clock set by %v: %w", name, p.Clocks, err))
			}
		})
	}
	nap := func() { time.Sleep(time.Duration(luck.IntN(300)) * time.Millisecond) }
	nap()
	_, err = db.SQL().ExecContext(ctx, `VACUUM INTO ?`, p.Path+".new")
	testkit.Must(err)
	wallclock.Set(p.Clocks[0])
	nap()
	testkit.Must(os.Rename(p.Path+".new", p.Path))
	struck := time.Now()
	wallclock.Set(p.Clocks[1])
	writers.Wait()
	testkit.Say("ack", acked.after(struck))
	waiters.Wait()
	testkit.Say("waiter", told.after(struck))
	_ = db.Close()
}

// latest is the time of the last call of note.
type latest struct {
	mu sync.Mutex
	at time.Time
}

func (l *latest) note() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at = time.Now()
}

// after returns the milliseconds between began and the last note, by the monotonic clock.
func (l *latest) after(began time.Time) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, l.at.Sub(began).Milliseconds())
}

// enqueueUntilTold enqueues jobs until it gets ErrDatabaseReplaced or ctx ends.
func enqueueUntilTold(ctx context.Context, db *honker.DB, acked *latest) error {
	q := honker.NewQueue[int](db, "other", nil)
	for {
		_, err := q.Enqueue(ctx, 1)
		if err != nil {
			return ignore(err, honker.ErrDatabaseReplaced, context.DeadlineExceeded)
		}
		acked.note()
		time.Sleep(time.Millisecond)
	}
}

// replacedWaits returns waiting calls. Each returns the error with which it ended.
func replacedWaits(db *honker.DB) map[string]func(context.Context) error {
	q := honker.NewQueue[int](db, "jobs", nil)
	s := honker.NewStream[int](db, "events", nil)
	return map[string]func(context.Context) error{
		"Work": func(ctx context.Context) error {
			return q.Work(ctx, func(context.Context, *honker.Job[int]) error { return nil }, nil)
		},
		"Subscribe":     func(ctx context.Context) error { return lastError(s.Subscribe(ctx, "c", nil)) },
		"Updates":       func(ctx context.Context) error { return lastError(db.Updates(ctx)) },
		"Scheduler.Run": func(ctx context.Context) error { return db.Scheduler().Run(ctx) },
		"Listen": func(ctx context.Context) error {
			l, err := db.Listen(ctx, "news")
			if err != nil {
				return err
			}
			defer l.Close()
			return lastError(l.All(ctx))
		},
	}
}

func lastError[T any](all iter.Seq2[T, error]) (last error) {
	for _, err := range all {
		last = err
	}
	return last
}
