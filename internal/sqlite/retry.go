package sqlite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// retry paces the attempts at a lock that another process holds. SQLite's own
// busy handler waits 1, 2, 5 … 100 ms and is unfair: a second-long tail.
type retry struct {
	until time.Time
	wait  time.Duration
}

const (
	firstWait = 50 * time.Microsecond
	longWait  = 2 * time.Millisecond
)

// Retry runs f until it meets no lock of another process, ctx ends, or limit has passed.
func Retry(ctx context.Context, limit time.Duration, f func() error) error {
	err := f()
	for try := (retry{}); try.after(ctx, err, limit); {
		err = f()
	}
	return stillBusy(ctx, err)
}

// after waits a moment and reports true when err says that another try may help.
func (r *retry) after(ctx context.Context, err error, limit time.Duration) bool {
	if !IsBusy(err) || errors.Is(err, ErrBusy) || ctx.Err() != nil {
		return false
	}
	now := time.Now()
	if r.until.IsZero() {
		r.until, r.wait = now.Add(limit), firstWait
	}
	if now.After(r.until) {
		return false
	}
	sleep(ctx, r.wait/2+rand.N(r.wait))
	r.wait = min(2*r.wait, longWait)
	return true
}

// stillBusy names a busy error that is left after the last try.
func stillBusy(ctx context.Context, err error) error {
	switch {
	case !IsBusy(err) || errors.Is(err, ErrBusy):
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("%w, while another process holds the write lock: %w", ctx.Err(), err)
	}
	return fmt.Errorf("%w: another process holds the write lock: %w", ErrBusy, err)
}

// sleep ends early with ctx. Below a millisecond Go's timers are of no use: on an
// idle machine they fire after one.
func sleep(ctx context.Context, d time.Duration) {
	if d < time.Millisecond {
		Pause(d)
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
