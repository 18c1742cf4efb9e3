package flow

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// attempt is a call of a flow's function. It ends when the function returns.
type attempt struct {
	*flow
	claim row.Claim
	run   row.FlowRun
	probe engine.StepProbe // nil except in tests

	mu      sync.Mutex
	steps   map[string]row.FlowStepRow
	signals map[string]string
	used    map[string]bool // names seen in this attempt
	seq     int             // of the last step
	undos   []undo
	stop    error         // returned by all later calls
	died    error         // of the probe
	active  int           // calls under way
	idle    chan struct{} // closed when active is 0 after stop; nil until somebody waits
	waits   []wait        // reasons for which the run is suspended
}

type attemptKey struct{}

// errOutside is returned by functions that were called without the ctx of a run.
var errOutside = fmt.Errorf("%w: the context is not that of a flow's function", honker.ErrInvalid)

// errReturned is returned by calls after the function has returned.
var errReturned = fmt.Errorf("%w: the flow's function has returned", honker.ErrInvalid)

func attemptOf(ctx context.Context) (*attempt, error) {
	if a, ok := ctx.Value(attemptKey{}).(*attempt); ok {
		return a, nil
	}
	return nil, errOutside
}

// ID returns the ID of the run whose function was called with ctx, or "" outside of a run.
func ID(ctx context.Context) string {
	a, err := attemptOf(ctx)
	if err != nil {
		return ""
	}
	return a.run.ID
}

// Key returns an idempotency key for a step of the run: the same for each attempt, and different for each step and
// run. Pass it to services outside of the database, which then recognize a repeated step. It is "" outside of a run.
func Key(ctx context.Context, step string) string {
	a, err := attemptOf(ctx)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%s/%d/%s", a.name, a.run.Job, step)
}

// enter begins a call that uses name. It returns the recorded step, if any. Without an error, leave must be called.
func enter(ctx context.Context, kind row.FlowKind, name string) (a *attempt, s row.FlowStepRow, err error) {
	if a, err = attemptOf(ctx); err != nil {
		return nil, s, err
	}
	if err := checkStep(name); err != nil {
		return nil, s, err
	}
	if s, err = a.admit(kind, name); err == nil && s.Ended.IsZero() {
		if err = a.dieAt(s, engine.StepReached); err != nil {
			a.leave()
		}
	}
	return a, s, err
}

// admit begins a call with the given name.
func (a *attempt) admit(kind row.FlowKind, name string) (s row.FlowStepRow, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stop != nil {
		return s, a.stop
	}
	if a.used[name] {
		return s, fmt.Errorf("%w: the run has used the name %q already; each step needs its own, so add an index in a loop", honker.ErrInvalid, name)
	}
	s, known := a.steps[name]
	switch {
	case known && s.Kind != kind:
		return s, fmt.Errorf("%w: %q was recorded as a %s and is now a %s; use another name", honker.ErrInvalid, name, kindNames[s.Kind], kindNames[kind])
	case !known && a.seq >= maxSteps:
		return s, fmt.Errorf("%w: the run has %d steps, which is the maximum", honker.ErrInvalid, maxSteps)
	case !known && a.ending():
		return s, a.halt(errUndoing)
	case !known:
		a.seq++
		s = row.FlowStepRow{Name: name, Kind: kind, Seq: a.seq, Began: a.engine.Now()}
	}
	a.used[name] = true
	a.active++
	return s, nil
}

// dieAt asks the probe whether the process is to die at this point of s. Later calls of the attempt return the same error.
func (a *attempt) dieAt(s row.FlowStepRow, at engine.StepPoint) error {
	if a.probe == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.died == nil {
		a.died = a.probe(s, at)
	}
	if a.died != nil {
		a.stop = a.died
	}
	return a.died
}

// checkStep checks the name of a step. Names with the prefix of the undos are reserved for them.
func checkStep(name string) error {
	if strings.HasPrefix(name, undoPrefix) {
		return fmt.Errorf("%w: step names must not begin with %q", honker.ErrInvalid, undoPrefix)
	}
	return checkName("name of the step", name)
}

var kindNames = map[row.FlowKind]string{
	row.FlowStep: "step", row.FlowSleep: "sleep", row.FlowWait: "wait", row.FlowCall: "call", row.FlowVersion: "version", row.FlowUndo: "undo",
}

// ending reports whether the run is cancelled or undone. It must be called with a.mu held.
func (a *attempt) ending() bool { return a.run.Cancelled || a.run.Failure != "" }

// errUndoing is returned by steps that are new, or have not ended, of a run that is cancelled or undone.
var errUndoing = fmt.Errorf("%w: the run takes no new steps", honker.ErrCancelled)

// leave ends a call that enter has begun.
func (a *attempt) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.active--
	a.settle()
}

// settle closes idle when nothing is under way. It must be called with a.mu held.
func (a *attempt) settle() {
	if a.active == 0 && a.idle != nil {
		close(a.idle)
		a.idle = nil
	}
}

// halt makes all later calls return err, unless an earlier error does already. It must be called with a.mu held.
func (a *attempt) halt(err error) error {
	if a.stop == nil {
		a.stop = err
	}
	return a.stop
}

// wait is a reason for which a run is suspended. The zero fields mean none.
type wait struct {
	signal string
	child  row.FlowRun // its Flow and ID
	until  time.Time
}

// suspend suspends the run until w is over. A run that is cancelled or undone waits for nothing.
func (a *attempt) suspend(w wait) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ending() {
		return a.halt(errUndoing)
	}
	a.waits = append(a.waits, w)
	return a.halt(ErrSuspended)
}

// end refuses later calls, waits for calls under way, and reports whether the run is suspended.
func (a *attempt) end() (suspended bool) {
	a.mu.Lock()
	a.halt(errReturned)
	idle := make(chan struct{})
	a.idle = idle
	a.settle()
	a.mu.Unlock()
	<-idle
	return len(a.waits) > 0
}

// save records s. It does so even if ctx has ended, because the step has had its effect.
func (a *attempt) save(ctx context.Context, s row.FlowStepRow) error {
	cancelled := false
	err := a.engine.Write(context.WithoutCancel(ctx), "", engine.SingleOp(func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
		cancelled, err = a.saveOn(ctx, q, s, now)
		return err
	}))
	if err == nil {
		err = a.saved(s, cancelled)
	}
	return err
}

// saved notes the commit of s, and whether the run was cancelled, which ends it at its next step.
func (a *attempt) saved(s row.FlowStepRow, cancelled bool) error {
	if cancelled {
		a.mu.Lock()
		a.run.Cancelled = true
		a.mu.Unlock()
	}
	return a.dieAt(s, engine.StepCommitted)
}

func (a *attempt) saveOn(ctx context.Context, q engine.Querier, s row.FlowStepRow, now time.Time) (cancelled bool, err error) {
	if err := a.dieAt(s, engine.StepUncommitted); err != nil {
		return false, err
	}
	saved, cancelled, err := a.store.Save(ctx, q, a.claim, s, now)
	if err == nil && !saved {
		err = honker.ErrClaimLost
	}
	return cancelled, err
}

// encode returns v as it is stored with the run. An error rejects the run, because v would be no other in a later
// attempt. An error from the codec may be temporary.
func (a *attempt) encode(ctx context.Context, v any) (string, error) {
	text, err := encode(ctx, a.engine, a.name, v)
	if errors.Is(err, honker.ErrInvalid) {
		err = honker.Reject(fmt.Errorf("the result cannot be stored: %w", err))
	}
	return text, err
}

func encode(ctx context.Context, e *engine.Engine, flow string, v any) (string, error) {
	text, err := engine.Encode(v, e.MaxPayload)
	if err != nil {
		return "", err
	}
	return e.EncodeJob(ctx, QueuePrefix+flow, text)
}

// decode decodes the recorded value of a step into v. A value that does not fit rejects the run, because a later attempt
// could not succeed. An error from the codec may be temporary.
func (a *attempt) decode(ctx context.Context, s row.FlowStepRow, v any) error {
	err := a.engine.DecodeJob(ctx, QueuePrefix+a.name, s.Value, v)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("flow %q, run %q: the recorded value of %s %q does not decode into type %v: %w",
		a.name, a.run.ID, kindNames[s.Kind], s.Name, reflect.TypeOf(v).Elem(), err)
	var codec *engine.CodecError
	if errors.As(err, &codec) {
		return err
	}
	return honker.Reject(err)
}
