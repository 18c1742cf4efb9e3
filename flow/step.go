package flow

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/observe"
)

// Step runs fn as the step with the given name and records its result. If the run has recorded the step before, Step
// returns that result and does not call fn.
//
// A step runs at least once: if the process dies between the effect of fn and the commit of its result, fn runs again.
// Use [StepTx] for effects in the database and [Key] for effects elsewhere.
//
// Errors of fn are returned and not recorded. The function should return them: the run is then retried, and comes back
// to this step. An error made by [honker.Reject] ends the run. Steps may run in goroutines that end before the function
// returns. Step returns [honker.ErrInvalid] for a name that was used before in the attempt, and [honker.ErrClaimLost] if
// another process has taken the run over; the result of fn is then lost.
func Step[T any](ctx context.Context, name string, fn func(ctx context.Context) (T, error)) (T, error) {
	return step(ctx, row.FlowStep, name, fn)
}

func step[T any](ctx context.Context, kind row.FlowKind, name string, fn func(ctx context.Context) (T, error)) (T, error) {
	var v T
	a, s, err := enter(ctx, kind, name)
	if err != nil {
		return v, failStep(name, err)
	}
	defer a.leave()
	if !s.Ended.IsZero() {
		return v, failStep(name, a.decode(ctx, s, &v))
	}
	ctx, end := a.observe(ctx, s)
	err = observe.ErrPanicked
	defer func() { end(observe.StepEnd{Err: err}) }()
	if v, err = fn(ctx); err != nil {
		return v, err
	}
	if err = a.finish(ctx, &s, v); err == nil {
		err = a.save(ctx, s)
	}
	if err != nil {
		return *new(T), failStep(name, err)
	}
	return v, nil
}

// observe reports that the function of s is about to run. Without an observer it costs nothing.
func (a *attempt) observe(ctx context.Context, s row.FlowStepRow) (context.Context, func(observe.StepEnd)) {
	begin := a.engine.Observer.BeginStep
	if begin == nil || s.Kind == row.FlowVersion {
		return ctx, unobserved
	}
	return begin(ctx, observe.Step{
		Flow: a.name, Run: a.run.ID, Name: strings.TrimPrefix(s.Name, undoPrefix), Undo: s.Kind == row.FlowUndo,
		Job: a.claim.ID, Attempt: int(a.claim.Attempt),
	})
}

func unobserved(observe.StepEnd) {}

// StepTx is like [Step], but runs fn in a write transaction that also records the result. The effects of fn in the
// database therefore happen exactly once. All other writers wait while fn runs, so fn should not use the network. fn
// must not commit tx or roll it back, and may be called again if the transaction could not be committed.
func StepTx[T any](ctx context.Context, name string, fn func(ctx context.Context, tx *sql.Tx) (T, error)) (T, error) {
	var v T
	a, s, err := enter(ctx, row.FlowStep, name)
	if err != nil {
		return v, failStep(name, err)
	}
	defer a.leave()
	if !s.Ended.IsZero() {
		return v, failStep(name, a.decode(ctx, s, &v))
	}
	ctx, end := a.observe(ctx, s)
	err = observe.ErrPanicked
	defer func() { end(observe.StepEnd{Err: err}) }()
	cancelled := false
	err = a.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		if v, err = fn(ctx, tx); err != nil {
			return err
		}
		if err := a.finish(ctx, &s, v); err != nil {
			return failStep(name, err)
		}
		on, err := a.engine.Join(ctx, tx)
		if err == nil {
			cancelled, err = a.saveOn(ctx, on, s, s.Ended)
		}
		return failStep(name, err)
	})
	if err == nil {
		err = failStep(name, a.saved(s, cancelled))
	}
	if err != nil {
		return *new(T), err
	}
	return v, nil
}

// finish ends s with the value v.
func (a *attempt) finish(ctx context.Context, s *row.FlowStepRow, v any) (err error) {
	s.Value, err = a.encode(ctx, v)
	s.Ended = a.engine.Now()
	return err
}

// Version returns the version of the code with which the run first came to the name: current, if it is there for the
// first time. Branch on it to change the steps of runs that start later, and leave runs under way as they were.
func Version(ctx context.Context, name string, current int) (int, error) {
	return step(ctx, row.FlowVersion, name, func(context.Context) (int, error) { return current, nil })
}

// Sleep suspends the run for d, from the first time that it comes here. The worker is free meanwhile, and the function
// is called again from its beginning. A sleep of less than two seconds waits in place. Sleep returns ErrSuspended if
// the run is suspended, and [honker.ErrInvalid] for a negative d.
func Sleep(ctx context.Context, name string, d time.Duration) error {
	if err := engine.NotNegative("duration of the sleep", d); err != nil {
		return failStep(name, err)
	}
	a, s, err := enter(ctx, row.FlowSleep, name)
	if err != nil {
		return failStep(name, err)
	}
	defer a.leave()
	if s.Until.IsZero() {
		s.Until = s.Began.Add(d)
		if err := a.save(ctx, s); err != nil {
			return failStep(name, err)
		}
	}
	left := s.Until.Sub(a.engine.Now())
	switch {
	case left <= 0:
		return nil
	case left < inPlace:
		return failStep(name, engine.Sleep(ctx, left))
	}
	return failStep(name, a.suspend(wait{until: s.Until}))
}

// inPlace is the shortest sleep that suspends a run.
const inPlace = 2 * time.Second

func failStep(name string, err error) error { return engine.Wrap("flow step", name, err) }
