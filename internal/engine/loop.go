package engine

import (
	"context"
	"log/slog"
	"time"
)

// Sleep returns an error when ctx ends before d has passed.
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

// Bounds of the pause between two tries of a [Retry].
const (
	retryFirst = 100 * time.Millisecond
	retryLast  = 5 * time.Second
)

// Retry paces a loop after a failed step. It is the one place that decides what a failure
// means for a loop: some errors no later try can mend, the others are logged, and the pause
// grows with each failure in a row.
type Retry struct {
	Log      *slog.Logger
	What     string // for the log: what failed and is tried again
	Attrs    []any  // of the log line
	failures int
}

// Failures is how often in a row the step has failed.
func (r *Retry) Failures() int { return r.failures }

// Reset is called when a step has succeeded.
func (r *Retry) Reset() { r.failures = 0 }

// After returns nil when the step may be tried again, after the pause, and err or the end of
// ctx otherwise.
func (r *Retry) After(ctx context.Context, err error) error {
	if ctx.Err() != nil || Final(err) {
		return err
	}
	r.failures++
	r.Log.Error("honker: "+r.What, append([]any{"error", err}, r.Attrs...)...)
	return Sleep(ctx, min(time.Duration(r.failures)*retryFirst, retryLast))
}

// Every calls do after first has passed, and then after each pause that do returns. It ends
// when do returns 0 or ctx ends. It is the loop that renews leases and locks.
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
