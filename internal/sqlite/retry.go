package sqlite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/honker-go/honker/internal/engine"
)

// The first pause is shorter than a small commit of another process. The longest pause is short enough to get in
// between a busy process's commits. SQLite's own busy handler waits 1, 2, 5 … 100 ms and is unfair, with a tail
// latency of a second.
const (
	firstPause   = 50 * time.Microsecond
	longestPause = 2 * time.Millisecond
)

// Retry runs f until it no longer fails because of another process's lock, ctx ends, or limit elapses. Retry does not
// allocate, and reads the clock only after f has failed.
func Retry(ctx context.Context, limit time.Duration, f func() error) error {
	err := f()
	if !mayRetry(ctx, err) {
		return stillBusy(ctx, err)
	}
	deadline := time.Now().Add(limit)
	for pause := firstPause; mayRetry(ctx, err) && !time.Now().After(deadline); pause = min(2*pause, longestPause) {
		// Jitter keeps two processes that failed together from colliding again.
		sleep(ctx, pause/2+rand.N(pause))
		err = f()
	}
	return stillBusy(ctx, err)
}

// mayRetry reports whether another attempt may succeed. ErrBusy is final: it means that a caller has already waited
// for the full time.
func mayRetry(ctx context.Context, err error) bool {
	return err != nil && IsBusy(err) && !errors.Is(err, engine.ErrBusy) && ctx.Err() == nil
}

// stillBusy wraps the last attempt's busy error in ErrBusy.
func stillBusy(ctx context.Context, err error) error {
	if err == nil || !IsBusy(err) || errors.Is(err, engine.ErrBusy) {
		return err
	}
	ended := ctx.Err()
	if ended == nil {
		return fmt.Errorf("%w: another process holds the write lock: %w", engine.ErrBusy, err)
	}
	if errors.Is(err, ended) {
		return err
	}
	return fmt.Errorf("%w, while another process holds the write lock: %w", ended, err)
}

// sleep waits for d, or until ctx ends. It does not use a timer below a millisecond, because on an
// idle machine Go's timers fire only after a full millisecond.
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
