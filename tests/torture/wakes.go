//go:build unix

package torture

import (
	"bufio"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

// Wakes checks that no waiting call misses a commit of another process. The safety poll is off, so
// a commit missed by the notices would be seen an hour late.
//
// The other process commits in bursts. After each burst it waits until all waiters in this process
// have seen the last commit, so no later commit can wake them. Meanwhile listeners come and go, the
// log is truncated, and a long reader blocks it.
func Wakes(ctx context.Context, r *Round) error {
	path := filepath.Join(r.Dir, "app.db")
	db, err := honker.Open(context.WithoutCancel(ctx), path, &honker.Options{PollInterval: time.Hour})
	if err != nil {
		return err
	}
	w := &waker{Round: r, db: db}
	r.Add("missed", 0)
	err = w.run(ctx, path)
	keep(path, &err)
	if closed := db.Close(); err == nil {
		err = closed
	}
	return err
}

const waiters = 4

type waker struct {
	*Round
	db       *honker.DB
	seen     [waiters]atomic.Int64 // last number seen by each waiter
	mu       sync.Mutex            // protects the following fields
	samples  []int64               // times between commit and wake, in µs
	disorder error
}

// missedAfter is the longest delay of a wake on a busy machine.
const missedAfter = 30 * time.Second

func (w *waker) run(ctx context.Context, path string) error {
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	listener, err := w.db.Listen(inner, "news")
	if err != nil {
		return err
	}
	defer listener.Close()
	all.Go(func() { w.hear(inner, 0, listener) })
	all.Go(func() { w.follow(inner, 1, honker.NewStream[said](w.db, "news", nil)) })
	all.Go(func() { w.follow(inner, 2, honker.NewStream[said](w.db, "ne*", nil)) })
	all.Go(func() { w.tick(inner, 3) })
	all.Go(func() { w.disturb(inner, path) })
	err = w.bursts(ctx, path)
	w.report()
	return err
}

// said is a number with the time at which it was committed.
type said struct {
	N  int64
	At int64 // Unix nanoseconds, before the commit
}

func (w *waker) bursts(ctx context.Context, path string) error {
	cmd, err := testkit.ChildCommand("torture wakes", part{Path: path})
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	speaker, err := start(cmd)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(out)
	total := int64(0)
	for i := 0; i < 60 && ctx.Err() == nil && err == nil; i++ {
		n, pause := w.burst()
		total += int64(n)
		if _, err := fmt.Fprintln(speaker.stdin, n, pause); err != nil {
			break
		}
		if !lines.Scan() {
			break
		}
		err = w.await(total)
		w.Add("commits", int64(n))
		w.Add("bursts", 1)
	}
	if ended := speaker.stop(); err == nil {
		err = ended
	}
	return err
}

// burst returns a number of commits and the pause between them in µs, for single commits or long
// bursts.
func (w *waker) burst() (n, pause int) {
	switch w.Rand.IntN(8) {
	case 0, 1, 2, 3:
		return 1 + w.Rand.IntN(3), w.Rand.IntN(2000)
	case 4:
		return 1 + w.Rand.IntN(150), 1 + w.Rand.IntN(60)
	}
	return 1 + w.Rand.IntN(3000), 0
}

// await waits until all waiters have seen number n.
func (w *waker) await(n int64) error {
	for deadline := time.Now().Add(missedAfter); ; time.Sleep(100 * time.Microsecond) {
		behind := -1
		for i := range w.seen {
			if w.seen[i].Load() < n {
				behind = i
			}
		}
		if behind < 0 {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.disorder
		}
		if time.Now().After(deadline) {
			w.Add("missed", 1)
			return fmt.Errorf("waiter %d is asleep at %d, but %d was committed %v ago", behind, w.seen[behind].Load(), n, missedAfter)
		}
	}
}

// saw checks that a waiter has not skipped a number.
func (w *waker) saw(who int, s said) {
	if last := w.seen[who].Load(); s.N != last+1 {
		w.mu.Lock()
		w.disorder = fmt.Errorf("waiter %d sees %d after %d", who, s.N, last)
		w.mu.Unlock()
	}
	w.mu.Lock()
	w.samples = append(w.samples, (time.Now().UnixNano()-s.At)/1000)
	w.mu.Unlock()
	w.seen[who].Store(s.N)
}

func (w *waker) hear(ctx context.Context, who int, l *honker.Listener) {
	for n, err := range l.All(ctx) {
		var s said
		if err != nil || n.Decode(&s) != nil {
			return
		}
		w.saw(who, s)
	}
}

func (w *waker) follow(ctx context.Context, who int, stream *honker.Stream[said]) {
	for e, err := range stream.Tail(ctx, honker.Beginning, nil) {
		if err != nil {
			return
		}
		w.saw(who, e.Data)
	}
}

// tick reads the file after each tick, as an application would.
func (w *waker) tick(ctx context.Context, who int) {
	for _, err := range w.db.Updates(ctx) {
		if err != nil {
			return
		}
		n, err := one[int64](context.Background(), w.db.SQL(), `SELECT coalesce(max(offset), 0) FROM _honker_stream`)
		if err == nil {
			w.seen[who].Store(n)
		}
	}
}

// disturb opens and closes listeners and truncates the log.
func (w *waker) disturb(ctx context.Context, path string) {
	pool, err := plain(path)
	if err != nil {
		return
	}
	defer pool.Close()
	for i := 0; ctx.Err() == nil; i++ {
		if l, err := w.db.Listen(ctx, "news", "other"); err == nil {
			_ = l.Close()
		}
		if i%20 == 0 { // may fail if the log is busy
			_, _ = pool.ExecContext(context.Background(), `PRAGMA wal_checkpoint(TRUNCATE)`)
			w.Add("checkpoints", 1)
		}
		if i%50 == 25 {
			w.readLong(ctx)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (w *waker) readLong(ctx context.Context) {
	rows, err := w.db.SQL().QueryContext(context.WithoutCancel(ctx), `SELECT offset FROM _honker_stream`)
	if err != nil {
		return
	}
	rows.Next()
	time.Sleep(20 * time.Millisecond)
	_ = rows.Close()
}

func (w *waker) report() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.samples) == 0 {
		return
	}
	slices.Sort(w.samples)
	w.Add("seen", int64(len(w.samples)))
	w.Max("worst_round_p50_us", w.samples[len(w.samples)/2])
	w.Max("worst_round_p99_us", w.samples[len(w.samples)*99/100])
	w.Max("worst_us", w.samples[len(w.samples)-1])
}
