package sqlite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// The first pause is shorter than a small commit of another process, the longest one
// short enough to get in between the commits of a busy one. SQLite's own busy handler
// waits 1, 2, 5 … 100 ms and is unfair: a tail of a second.
const (
	firstPause   = 50 * time.Microsecond
	longestPause = 2 * time.Millisecond
)

// Retry runs f until it meets no lock of another process, ctx ends, or limit has passed.
// It allocates nothing, and asks for the time only when f was refused.
func Retry(ctx context.Context, limit time.Duration, f func() error) error {
	err := f()
	if !mayRetry(ctx, err) {
		return stillBusy(ctx, err)
	}
	deadline := time.Now().Add(limit)
	for pause := firstPause; mayRetry(ctx, err) && !time.Now().After(deadline); pause = min(2*pause, longestPause) {
		// Jittered, so that two processes that were refused together do not meet again.
		sleep(ctx, pause/2+rand.N(pause))
		err = f()
	}
	return stillBusy(ctx, err)
}

// mayRetry reports whether another attempt may succeed. ErrBusy is a verdict: something
// has waited its full time already.
func mayRetry(ctx context.Context, err error) bool {
	return err != nil && IsBusy(err) && !errors.Is(err, ErrBusy) && ctx.Err() == nil
}

// stillBusy names a busy error that is left after the last attempt, once.
func stillBusy(ctx context.Context, err error) error {
	if err == nil || !IsBusy(err) || errors.Is(err, ErrBusy) {
		return err
	}
	ended := ctx.Err()
	if ended == nil {
		return fmt.Errorf("%w: another process holds the write lock: %w", ErrBusy, err)
	}
	if errors.Is(err, ended) {
		return err
	}
	return fmt.Errorf("%w, while another process holds the write lock: %w", ended, err)
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
