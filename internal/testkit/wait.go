package testkit

import (
	"context"
	"testing"
	"time"
)

// Timeout is the time limit for steps that should take far less. It is only there to end tests that hang.
const Timeout = time.Minute

// Context returns a ctx that is cancelled after d or when the test ends.
func Context(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// Eventually polls ok until it returns true, and fails the test after d.
func Eventually(t testing.TB, d time.Duration, what string, ok func() bool) {
	t.Helper()
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for deadline := time.Now().Add(d); !ok(); <-look.C {
		if time.Now().After(deadline) {
			t.Fatalf("condition not met after %v: %s", d, what)
		}
	}
}

// Within returns the first error from c. If none arrives within d, it returns the ctx error.
func Within(ctx context.Context, c <-chan error, d time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	select {
	case err := <-c:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Background runs work in a goroutine. stop cancels work's ctx, waits for work to return, and
// returns its error. stop is also called when the test ends.
func Background(t testing.TB, work func(context.Context) error) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{}) // not a sync.Once: waiting for that in a bubble would stop the clock
	var err error
	go func() { err = work(ctx); close(ended) }()
	stop = func() error { cancel(); <-ended; return err }
	t.Cleanup(func() { _ = stop() })
	return stop
}
