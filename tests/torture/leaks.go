//go:build unix

package torture

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/honker-go/honker"
)

// Leaks checks that closing a DB releases its goroutines, file descriptors and memory.
func Leaks(ctx context.Context, r *Round) error {
	path := filepath.Join(r.Dir, "app.db")
	if err := churn(path); err != nil { // allocates everything that the process needs once
		return err
	}
	goroutines, descriptors := runtime.NumGoroutine(), openFiles()
	for i := 0; i < 25 && ctx.Err() == nil; i++ {
		if err := churn(path); err != nil {
			return err
		}
		r.Add("opened", 1)
	}
	if err := settles("goroutines", goroutines, runtime.NumGoroutine); err != nil {
		return err
	}
	if err := settles("descriptors", descriptors, openFiles); err != nil {
		return err
	}
	r.memory()
	return nil
}

// settles waits until count returns at most before, because goroutines may need a moment to end.
func settles(what string, before int, count func() int) error {
	for range 3000 {
		if count() <= before {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("%d %s are left, and there were %d before", count(), what, before)
}

func openFiles() int {
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		return 0
	}
	return len(entries)
}

// churn opens a file, runs all kinds of waiting calls, and closes it.
func churn(path string) error {
	db, err := honker.Open(context.Background(), path, nil)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() { listen(ctx, db) })
		all.Go(func() { follow(ctx, db, fmt.Sprint("c", i)) })
	}
	all.Go(func() { join(ctx, db) })
	all.Go(func() { _ = db.Scheduler().Run(ctx) })
	all.Go(func() { _ = db.Maintain(ctx, &honker.MaintainOptions{Every: 5 * time.Millisecond}) })
	all.Go(func() { workAndWait(ctx, db) })
	all.Go(func() { lockAndUnlock(db) })
	all.Wait()
	return db.Close()
}

func listen(ctx context.Context, db *honker.DB) {
	l, err := db.Listen(ctx, "news")
	if err != nil {
		return
	}
	defer l.Close()
	_, _ = l.Next(ctx)
}

func follow(ctx context.Context, db *honker.DB, consumer string) {
	s := honker.NewStream[int](db, "events", nil)
	_, _ = s.Publish(ctx, 1)
	for range s.Subscribe(ctx, consumer, nil) {
	}
}

func join(ctx context.Context, db *honker.DB) {
	m, err := honker.NewStream[int](db, "events", nil).Group("g", nil).Join(ctx, "m")
	if err != nil {
		return
	}
	for d, err := range m.All(ctx) {
		if err != nil {
			break
		}
		_ = d.Ack(context.Background())
	}
	_ = m.Leave(context.Background())
}

func workAndWait(ctx context.Context, db *honker.DB) {
	q := honker.NewQueue[int](db, "jobs", nil)
	id, err := q.Enqueue(ctx, 1)
	if err != nil {
		return
	}
	var all sync.WaitGroup
	all.Go(func() { _, _ = honker.WaitResult[int](ctx, db, id) })
	_ = q.Work(ctx, func(_ context.Context, job *honker.Job[int]) error { return job.SetResult(1) }, nil)
	all.Wait()
}

func lockAndUnlock(db *honker.DB) {
	if l, err := db.TryLock(context.Background(), "l", nil); err == nil {
		_ = l.Unlock(context.Background())
	}
}

// warm is the number of rounds after which the memory size should be stable.
const warm = 4

// memory records the memory of the process, and its growth since the warm-up.
func (r *Round) memory() {
	runtime.GC()
	now := resident()
	switch rounds := r.Get("rounds"); {
	case rounds < warm:
		r.Set("rss_kb_warm", now)
	default:
		r.Set("rss_kb_per_1000_opens", (now-r.Get("rss_kb_warm"))*1000/max(1, (rounds-warm+1)*25))
	}
	r.Set("rss_kb", now)
	r.Set("goroutines", int64(runtime.NumGoroutine()))
	r.Set("descriptors", int64(openFiles()))
}

// resident returns the resident memory of the process in KiB, or 0 if the system does not report
// it.
func resident() int64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize()) / 1024
}
