// Package honkertest helps to test code that uses honker.
package honkertest

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/honker-go/honker"
)

// Open returns a DB on a fresh file. When the test ends it is closed, and the file is
// checked: SQLite's integrity, and honker's invariants. nil opts means defaults.
//
// In a bubble of testing/synctest notices of the operating system would come from outside, and
// polls would keep time from passing; so there the DB hears of this process's own commits only,
// unless opts has a PollInterval.
func Open(t testing.TB, opts *honker.Options) *honker.DB {
	t.Helper()
	return OpenFile(t, filepath.Join(t.TempDir(), "honker.db"), opts)
}

// OpenFile is Open on a file of the test's own.
func OpenFile(t testing.TB, path string, opts *honker.Options) *honker.DB {
	t.Helper()
	if inBubble() {
		opts = bubbleOptions(opts)
	}
	db, err := honker.Open(context.Background(), path, opts)
	if err != nil {
		t.Fatalf("honkertest: %v", err)
	}
	t.Cleanup(func() {
		if err := db.Check(context.Background()); err != nil && !t.Failed() {
			t.Errorf("honkertest: after the test: %v", err)
		}
		if err := db.Close(); err != nil {
			t.Errorf("honkertest: %v", err)
		}
	})
	return db
}

func bubbleOptions(opts *honker.Options) *honker.Options {
	var o honker.Options
	if opts != nil {
		o = *opts
	}
	o.NoFileNotices = true
	if o.PollInterval == 0 {
		o.PollInterval = time.Hour
	}
	return &o
}

// Bubble runs fn in a bubble of testing/synctest, where time passes at once, with a DB on a
// fresh file, see [Open].
func Bubble(t *testing.T, fn func(t *testing.T, db *honker.DB)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { fn(t, Open(t, nil)) })
}

// inBubble reports whether the caller runs in a bubble. Outside of one Wait panics.
func inBubble() (in bool) {
	defer func() { in = recover() == nil }()
	synctest.Wait()
	return
}

// Drain works off what is due on q now, one job at a time in the test's goroutine, and returns
// how often fn was called. Jobs are handled and settled as by [honker.Queue.Work]: what fn
// returns, its panics, the queue's Timeout and Backoff mean the same. A job that fn fails is due
// again by Backoff, so not in this Drain unless there is no delay.
func Drain[T any](t testing.TB, q *honker.Queue[T], fn func(context.Context, *honker.Job[T]) error) int {
	t.Helper()
	ran, err := q.WorkDue(t.Context(), fn, nil)
	if err != nil {
		t.Fatalf("honkertest: %v", err)
	}
	return ran
}
