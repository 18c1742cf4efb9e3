package engine

import (
	"context"
	"log/slog"
	"time"
)

// Sleep blocks until d has passed. It returns an error if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return Cause(ctx)
	}
}

// Limits on the pause between two attempts of a [Retry].
const (
	retryFirst = 100 * time.Millisecond
	retryLast  = 5 * time.Second
)

// Retry paces a loop after a failed step. It defines how all loops react to a failure: final errors
// end the loop; other errors are logged, and the pause grows with each consecutive failure.
type Retry struct {
	Log      *slog.Logger
	Message  string // log message; describes the step that failed and is retried
	Attrs    []any  // attributes of the log message
	failures int
}

// Failures returns the number of consecutive failures.
func (r *Retry) Failures() int { return r.failures }

// Reset sets the number of failures to 0. Call it when a step has succeeded.
func (r *Retry) Reset() { r.failures = 0 }

// After handles the error from a failed step. If the step may be retried, After sleeps and returns nil. It returns
// err if err is final or ctx has ended, and ctx's cause if ctx ends during the pause.
func (r *Retry) After(ctx context.Context, err error) error {
	if ctx.Err() != nil || Final(err) {
		return err
	}
	r.failures++
	r.Log.Error("honker: "+r.Message, append([]any{"error", err}, r.Attrs...)...)
	return Sleep(ctx, min(time.Duration(r.failures)*retryFirst, retryLast))
}

// Every calls do after the duration first, and then again after each duration that do returns. It returns when do
// returns 0 or ctx ends. It is used to renew leases and locks.
func Every(ctx context.Context, first time.Duration, do func() (next time.Duration)) {
	timer := time.NewTimer(first)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		if ctx.Err() != nil {
			return
		}
		next := do()
		if next == 0 {
			return
		}
		timer.Reset(next)
	}
}
