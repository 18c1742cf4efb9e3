package flow

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
)

// Wait returns the value of the signal with the given name, decoded into a T. A signal that came before the Wait counts.
// If there is none, Wait suspends the run until the signal comes and returns ErrSuspended. The worker is free meanwhile.
//
// If within is positive and the signal has not come within that time, counted from the first time that the run comes
// here, Wait returns [ErrTimeout], in every later attempt too. A function that returns this error ends the run for good.
// Zero means without a limit. A negative within is [honker.ErrInvalid].
func Wait[T any](ctx context.Context, signal string, within time.Duration) (T, error) {
	var v T
	if err := engine.NotNegative("time limit of the wait", within); err != nil {
		return v, failStep(signal, err)
	}
	a, s, err := enter(ctx, row.FlowWait, signal)
	if err != nil {
		return v, failStep(signal, err)
	}
	defer a.leave()
	value, err := a.await(ctx, s, within)
	if errors.Is(err, ErrTimeout) {
		err = honker.Reject(err) // it would be the same in a later attempt
	}
	if err == nil {
		s.Value = value
		err = a.decode(ctx, s, &v)
	}
	return v, failStep(signal, err)
}

// await returns the value of the signal s.Name, or suspends the run.
func (a *attempt) await(ctx context.Context, s row.FlowStepRow, within time.Duration) (string, error) {
	if !s.Ended.IsZero() { // only a timeout ends the step
		return "", ErrTimeout
	}
	_, known := a.steps[s.Name]
	if value, come := a.signals[s.Name]; come && known {
		return value, nil
	}
	if !known && within > 0 {
		s.Until = s.Began.Add(within)
	}
	now := a.engine.Now()
	late := !s.Until.IsZero() && !now.Before(s.Until)
	if late {
		s.Ended = now
	}
	if late || !known {
		if value, come, err := a.expect(ctx, s); err != nil || come {
			return value, err
		}
	}
	if late {
		return "", ErrTimeout
	}
	return "", a.suspend(wait{signal: s.Name, until: s.Until})
}

// expect records that the run has come to the wait s, or that its time is over. It returns the value of the signal if
// that has come, and the wait then passes in every later attempt too.
func (a *attempt) expect(ctx context.Context, s row.FlowStepRow) (value string, come bool, err error) {
	cancelled := false
	err = a.engine.Write(ctx, "", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) error {
		if _, _, err := a.store.Hold(ctx, q, a.name, a.run.ID); err != nil {
			return err
		}
		all, err := a.store.Signals(ctx, q, a.name, a.run.ID)
		if err != nil {
			return err
		}
		if value, come = all[s.Name]; come {
			s.Ended = time.Time{}
		}
		cancelled, err = a.saveOn(ctx, q, s, now)
		return err
	}))
	if err == nil {
		err = a.saved(s, cancelled)
	}
	return value, come, err
}

// Signal sends v to a run of a flow, whose function receives it from [Wait]. The first signal of each name stays: a
// later one returns [ErrSignalled] and changes nothing. Signal returns [honker.ErrNotFound] if the run is over or never
// was. It waits for the writer until ctx ends or BusyTimeout has passed. A dead run takes signals.
func Signal(ctx context.Context, db *honker.DB, flow, id, signal string, v any) error {
	e := engine.Of(db)
	if err := e.RefuseInTx(ctx, "SignalTx"); err != nil {
		return failRun("signal", flow, id, err)
	}
	return e.TxAgain(ctx, func(ctx context.Context, tx *sql.Tx) error { return SignalTx(ctx, tx, db, flow, id, signal, v) })
}

// SignalTx is like [Signal] but runs within tx, so that the run receives the signal if and only if tx commits.
func SignalTx(ctx context.Context, tx honker.Tx, db *honker.DB, flow, id, signal string, v any) error {
	return failRun("signal", flow, id, sendSignal(ctx, tx, engine.Of(db), row.FlowSignal{Flow: flow, ID: id, Name: signal}, v))
}

func sendSignal(ctx context.Context, tx honker.Tx, e *engine.Engine, s row.FlowSignal, v any) (err error) {
	if err := checkName("name of the signal", s.Name); err != nil {
		return err
	}
	if s.Value, err = encode(ctx, e, s.Flow, v); err != nil {
		return err
	}
	on, err := e.Join(ctx, tx, wake.Queue(QueuePrefix+s.Flow))
	if err != nil {
		return err
	}
	run, found, err := e.Stores.Flows.Hold(ctx, on, s.Flow, s.ID)
	switch {
	case err != nil:
		return err
	case !found:
		return honker.ErrNotFound
	case !run.EndedAt.IsZero():
		return fmt.Errorf("%w: the run is over", honker.ErrNotFound)
	}
	first, err := e.Stores.Flows.Signal(ctx, on, s, e.Now())
	if err == nil && !first {
		err = ErrSignalled
	}
	if err != nil {
		return err
	}
	return e.AuditActor(ctx, "signal flow", "flow", s.Flow, "run", s.ID, "signal", s.Name).NoteOne(ctx, on, e.Now())
}
