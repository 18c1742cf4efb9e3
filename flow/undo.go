package flow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/worker"
	"github.com/honker-go/honker/observe"
)

// undo is a registered function of Undo.
type undo struct {
	name string
	fn   func(ctx context.Context) error
}

const undoPrefix = "undo:"

// Undo registers fn to take back the effect of an earlier step. If the run fails for good or is cancelled, the
// functions that the last attempt has registered run, the last registered first. Each is a step of its own: it is
// retried by the flow's Backoff until it succeeds, at most MaxAttempts times, and does not run again once it has
// succeeded. If an undo never succeeds, the run becomes a dead letter whose error says so.
//
// Register fn after the step that it undoes has succeeded. A name that was used before replaces the earlier function.
// fn must not use other functions of this package, except [ID] and [Key]. Undo does nothing outside of a run. If name
// has more than 250 bytes or is not UTF-8, the next call of the package returns [honker.ErrInvalid].
//
// A run whose process dies during its last attempt becomes a dead letter without having been undone. Requeue it to go
// on.
func Undo(ctx context.Context, name string, fn func(ctx context.Context) error) {
	a, err := attemptOf(ctx)
	if err != nil || fn == nil {
		return
	}
	err = checkName("name of the undo", undoPrefix+name)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stop != nil { // the function goes on without its steps
		return
	}
	if err != nil {
		_ = a.halt(failStep(name, err))
		return
	}
	a.undos = slices.DeleteFunc(a.undos, func(u undo) bool { return u.name == name })
	a.undos = append(a.undos, undo{name, fn})
}

// cancel undoes a run that was cancelled, and ends it.
func (e *ending[In]) cancel(ctx context.Context) error {
	if err := e.undo(ctx, "the run was cancelled"); err != nil {
		return err
	}
	return e.over(ctx, row.FlowCancelled, "null")
}

// fail undoes a run that has failed for good, and makes it a dead letter. The error is recorded first, so that a later
// attempt goes on undoing.
func (e *ending[In]) fail(ctx context.Context, failure string) error {
	if e.run.Failure == "" {
		err := e.engine.Write(context.WithoutCancel(ctx), "", engine.SingleOp(func(ctx context.Context, q engine.Querier, now time.Time) error {
			failed, err := e.store.Fail(ctx, q, e.claim, failure, now)
			if err == nil && !failed {
				err = honker.ErrClaimLost
			}
			return err
		}))
		if err != nil {
			return err
		}
	}
	if err := e.undo(ctx, failure); err != nil {
		return err
	}
	return e.die(ctx, errors.New(failure))
}

// undo calls the registered functions that have not succeeded yet. If ctx has ended, they run in a later attempt, which
// does not count as an attempt of the run.
func (e *ending[In]) undo(ctx context.Context, why string) error {
	for _, u := range slices.Backward(e.undos) {
		if ctx.Err() != nil {
			return honker.Snooze(0)
		}
		s, known := e.steps[undoPrefix+u.name]
		if known && !s.Ended.IsZero() {
			continue
		}
		if !known {
			e.seq++
			s = row.FlowStepRow{Name: undoPrefix + u.name, Kind: row.FlowUndo, Seq: e.seq, Began: e.engine.Now()}
		}
		if err := e.undoSafely(ctx, u, s); err != nil && ctx.Err() != nil {
			return honker.Snooze(0)
		} else if err != nil {
			return e.retryUndo(ctx, u, s, why, err)
		}
		s.Ended = e.engine.Now()
		if err := e.save(ctx, s); err != nil {
			return err
		}
		e.steps[s.Name] = s
	}
	return nil
}

// undoSafely calls the function of u and turns a panic into an error.
func (e *ending[In]) undoSafely(ctx context.Context, u undo, s row.FlowStepRow) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = worker.Panicked(e.engine.Logger, r, "flow", e.name, "run", e.run.ID, "undo", u.name)
		}
	}()
	ctx, end := e.observe(context.WithValue(ctx, attemptKey{}, e.attempt), s)
	failed := observe.ErrPanicked
	defer func() { end(observe.StepEnd{Err: failed}) }()
	failed = u.fn(ctx)
	return failed
}

// retryUndo records that a function of Undo has failed, and returns the error with which the job is settled: another
// try without spending an attempt, because the attempts of the run may be spent, or the end.
func (e *ending[In]) retryUndo(ctx context.Context, u undo, s row.FlowStepRow, why string, cause error) error {
	tries, _ := strconv.Atoi(s.Value)
	tries++
	s.Value = strconv.Itoa(tries)
	if err := e.save(ctx, s); err != nil {
		return err
	}
	var d *worker.Directive
	rejected := errors.As(cause, &d) && d.Outcome == worker.Died
	if rejected || tries >= e.attempts {
		return e.die(ctx, fmt.Errorf("%s, and undo %q has failed: %w", why, u.name, cause))
	}
	e.engine.Logger.Warn("honker: flow: an undo failed and will be retried",
		"flow", e.name, "run", e.run.ID, "undo", u.name, "try", tries, "error", worker.Reason(cause))
	return honker.Snooze(e.backoff(tries, cause))
}
