// Package honkertest helps to test code that uses honker.
package honkertest

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/honker-go/honker"
)

// Open returns a DB on a fresh file. When the test ends it is closed, and the file is
// checked: SQLite's integrity, and honker's invariants. nil opts means defaults.
func Open(t testing.TB, opts *honker.Options) *honker.DB {
	t.Helper()
	return OpenFile(t, filepath.Join(t.TempDir(), "honker.db"), opts)
}

// OpenFile is Open on a file of the test's own.
func OpenFile(t testing.TB, path string, opts *honker.Options) *honker.DB {
	t.Helper()
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

// Drain works off what is due on q now, one job at a time, and returns how many jobs
// fn was run for. A job that fn fails is retried by Backoff, so not before its time.
func Drain[T any](t testing.TB, q *honker.Queue[T], fn func(context.Context, *honker.Job[T]) error) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ran := 0
	for {
		jobs, err := q.Claim(ctx, "honkertest-drain", 1)
		if err != nil {
			t.Fatalf("honkertest: %v", err)
		}
		if len(jobs) == 0 {
			return ran
		}
		ran++
		if err := fn(ctx, jobs[0]); err != nil {
			err = jobs[0].Retry(ctx, time.Second, err)
			if err != nil {
				t.Fatalf("honkertest: %v", err)
			}
			continue
		}
		if err := jobs[0].Ack(ctx); err != nil {
			t.Fatalf("honkertest: %v", err)
		}
	}
}
