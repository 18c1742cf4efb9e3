package testkit

import (
	"context"
	"testing"
	"time"
)

// Timeout ends a test that hangs. It is far above what any wait should take.
const Timeout = time.Minute

// Context is a ctx that ends with the test, or after d.
func Context(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// Eventually looks until ok, and fails the test when that takes longer than d.
func Eventually(t testing.TB, d time.Duration, what string, ok func() bool) {
	t.Helper()
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for deadline := time.Now().Add(d); !ok(); <-look.C {
		if time.Now().After(deadline) {
			t.Fatalf("after %v still not: %s", d, what)
		}
	}
}

// Within waits for an error from c, for d at most; then the error is that of the ctx.
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

// Background runs work in a goroutine, until stop or the end of the test ends its ctx.
// stop returns what work returned.
func Background(t testing.TB, work func(context.Context) error) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{}) // in a bubble, a wait for a sync.Once stops the clock
	var err error
	go func() { err = work(ctx); close(ended) }()
	stop = func() error { cancel(); <-ended; return err }
	t.Cleanup(func() { _ = stop() })
	return stop
}
