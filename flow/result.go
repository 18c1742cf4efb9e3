package flow

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
)

// Result waits until the run with the given ID is over and returns its result. It returns a [*FailedError] if the run
// is dead or was cancelled, and [honker.ErrNotFound] if there is no such run or it is no longer kept. If ctx ends,
// Result returns ctx's error and the run goes on. Within [honker.DB.Tx] it returns [honker.ErrInTx].
func (f *Flow[In, Out]) Result(ctx context.Context, id string) (Out, error) {
	out, err := f.result(ctx, id)
	return out, failRun("wait for the result of", f.name, id, err)
}

func (f *Flow[In, Out]) result(ctx context.Context, id string) (out Out, err error) {
	if f.err != nil {
		return out, f.err
	}
	if err := f.engine.RefuseInTx(ctx, ""); err != nil {
		return out, err
	}
	job, err := f.jobOf(ctx, id)
	if err != nil {
		return out, err
	}
	err = f.engine.Notifier.Until(ctx, func() (time.Duration, error) {
		var over bool
		var err error
		if out, over, err = f.look(ctx, id); err != nil || over {
			return wake.Done, err
		}
		return wake.Forever, nil
	}, wake.Key{Kind: wake.JobDone, Name: strconv.FormatInt(job, 10)})
	return out, err
}

// jobOf returns the job of a run.
func (f *flow) jobOf(ctx context.Context, id string) (job int64, err error) {
	err = f.engine.Read(ctx, func(ctx context.Context, q engine.Querier) error {
		r, found, err := f.store.Find(ctx, q, f.name, id)
		if err == nil && !found {
			err = honker.ErrNotFound
		}
		job = r.Job
		return err
	})
	return job, err
}

// outcome returns the stored result of a run, and whether the run is over. It reads a snapshot, because a run ends in
// the commit that deletes its job.
func (f *flow) outcome(ctx context.Context, id string) (text string, over bool, err error) {
	var r row.FlowRun
	var fate row.Fate
	err = f.engine.Snapshot(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		var found bool
		if r, found, err = f.store.Find(ctx, q, f.name, id); err == nil && !found {
			err = honker.ErrNotFound
		}
		if err != nil {
			return err
		}
		fate, err = f.engine.Stores.Results.Fate(ctx, q, r.Job, f.engine.Now())
		return err
	})
	switch {
	case err != nil:
		return "", false, err
	case r.Outcome == row.FlowCancelled:
		return "", true, &FailedError{Flow: f.name, ID: id, Cancelled: true}
	case r.Outcome == row.FlowDone && fate.HasResult:
		return fate.Result, true, nil
	case r.Outcome == row.FlowDone:
		return "", true, fmt.Errorf("%w: the result was deleted", honker.ErrNotFound)
	case fate.Dead:
		return "", true, &FailedError{Flow: f.name, ID: id, Attempts: int(fate.Attempts), LastError: fate.LastError}
	case fate.Live:
		return "", false, nil
	}
	return "", true, &FailedError{Flow: f.name, ID: id, LastError: "its job was deleted"}
}

// Cancel cancels the run with the given ID. A run that is suspended goes on at once and finds out; a running one finds
// out at its next step. New steps then return [honker.ErrCancelled], the functions of [Undo] run, and [Flow.Result]
// returns a [*FailedError]. Cancel returns false if there is no such run, or if it is over or dead. A run that fails for
// good before it finds out stays failed.
func (f *Flow[In, Out]) Cancel(ctx context.Context, id string) (cancelled bool, err error) {
	if f.err != nil {
		return false, failRun("cancel", f.name, id, f.err)
	}
	return Cancel(ctx, f.db, f.name, id)
}

// Cancel is like [Flow.Cancel], for programs without the flow's function.
func Cancel(ctx context.Context, db *honker.DB, flow, id string) (cancelled bool, err error) {
	e := engine.Of(db)
	audit := e.AuditActor(ctx, "cancel flow", "flow", flow, "run", id)
	err = e.TxAgain(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		if cancelled, err = cancel(ctx, tx, e, flow, id); err != nil || !cancelled {
			return err
		}
		return audit.NoteOne(ctx, tx, e.Now())
	})
	return cancelled && err == nil, failRun("cancel", flow, id, err)
}

func cancel(ctx context.Context, tx honker.Tx, e *engine.Engine, flow, id string) (bool, error) {
	on, err := e.Join(ctx, tx, wake.Queue(QueuePrefix+flow))
	if err != nil {
		return false, err
	}
	r, found, err := e.Stores.Flows.Hold(ctx, on, flow, id)
	if err != nil || !found || !r.EndedAt.IsZero() {
		return false, err
	}
	fate, err := e.Stores.Results.Fate(ctx, on, r.Job, e.Now())
	if err != nil || !fate.Live {
		return false, err
	}
	if err := e.Stores.Flows.Cancel(ctx, on, r.Job); err != nil {
		return false, err
	}
	_, err = e.Stores.Flows.Resume(ctx, on, r.Job, e.Now())
	return true, err
}
