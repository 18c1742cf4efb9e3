package flow

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
	"github.com/honker-go/honker/internal/worker"
)

// handle is the handler of the flow's jobs. It calls the function from its beginning.
func (f *Flow[In, Out]) handle(ctx context.Context, job *honker.Job[In]) error {
	a, err := f.load(ctx, &job.JobInfo)
	if err != nil {
		return err
	}
	if !a.run.EndedAt.IsZero() {
		return nil // the end was recorded with an ack whose answer was lost
	}
	a.probe = engine.StepProbeOf(ctx)
	out, err := callSafely(context.WithValue(ctx, attemptKey{}, a), f, job.Args)
	e := &ending[In]{attempt: a, job: job, suspended: a.end()}
	if err := a.dieAt(row.FlowStepRow{Seq: a.seq}, engine.StepUncommitted); err != nil {
		return err
	}
	if err = e.end(ctx, out, err); errors.Is(err, errCancelled) {
		e.run.Cancelled = true
		err = e.end(ctx, nil, nil)
	}
	return err
}

// end settles the job according to the state of the run and the results of its function.
func (e *ending[In]) end(ctx context.Context, out any, err error) error {
	switch {
	case e.run.Cancelled:
		return e.cancel(ctx)
	case e.run.Failure != "":
		return e.fail(ctx, e.run.Failure)
	case e.suspended:
		return e.suspend(ctx)
	case err == nil:
		return e.finish(ctx, out)
	case interrupted(ctx) || !isFinal(err, &e.job.JobInfo):
		return err
	case len(e.undos) > 0:
		return e.fail(ctx, engine.Describe(err))
	}
	return e.die(ctx, err)
}

// interrupted reports whether the worker has ended ctx before the function had its time. The run has not failed then.
func interrupted(ctx context.Context) bool {
	cause := context.Cause(ctx)
	return errors.Is(cause, worker.ErrEnded) || errors.Is(cause, honker.ErrClaimLost) || errors.Is(cause, honker.ErrCancelled)
}

// callSafely calls the flow's function and turns a panic into an error.
func callSafely[In, Out any](ctx context.Context, f *Flow[In, Out], in In) (out Out, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = worker.Panicked(f.engine.Logger, r, "flow", f.name, "run", ID(ctx))
		}
	}()
	return f.fn(ctx, in)
}

// isFinal reports whether an attempt that returned err is the last of its job.
func isFinal(err error, job *honker.JobInfo) bool {
	var d *worker.Directive
	if errors.As(err, &d) && d.Outcome != worker.Retried {
		return d.Outcome == worker.Died
	}
	return job.Attempts >= job.MaxAttempts && !errors.Is(err, honker.ErrClaimLost)
}

// load returns the attempt of a claimed job. A job that was not started by this package becomes a run whose ID is its
// unique key or, without one, its number.
func (f *flow) load(ctx context.Context, job *honker.JobInfo) (*attempt, error) {
	h, found, err := f.history(ctx, job.ID)
	if err == nil && !found {
		h.Run, err = f.adopt(ctx, job)
	}
	if err != nil {
		return nil, fail("load run of job", strconv.FormatInt(job.ID, 10), err)
	}
	a := &attempt{
		flow: f, run: h.Run, signals: h.Signals,
		claim: row.Claim{ID: job.ID, Worker: job.WorkerID, Attempt: int64(job.Attempts)},
		steps: make(map[string]row.FlowStepRow, len(h.Steps)), used: make(map[string]bool),
	}
	for _, s := range h.Steps {
		a.steps[s.Name] = s
		a.seq = max(a.seq, s.Seq)
	}
	return a, nil
}

func (f *flow) history(ctx context.Context, job int64) (h row.FlowHistory, found bool, err error) {
	err = f.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		h, found, err = f.store.History(ctx, q, job)
		return err
	})
	return h, found, err
}

// adopt records the run of a job that another program has enqueued.
func (f *flow) adopt(ctx context.Context, job *honker.JobInfo) (r row.FlowRun, err error) {
	r = row.FlowRun{Job: job.ID, Flow: f.name, ID: job.Unique}
	if r.ID == "" || len(r.ID) > maxName {
		r.ID = "job-" + strconv.FormatInt(job.ID, 10)
	}
	err = f.engine.Write(ctx, "", engine.OpFunc(func(ctx context.Context, q engine.Querier, _ time.Time) error {
		if err := f.store.Prepare(ctx, q); err != nil {
			return err
		}
		other, found, err := f.store.Find(ctx, q, f.name, r.ID)
		if err == nil && found && other.Job != job.ID {
			return honker.Reject(fmt.Errorf("job %d is another run with the ID %q", other.Job, r.ID))
		}
		if err != nil || found {
			return err
		}
		_, err = f.add(ctx, q, r)
		return err
	}))
	return r, err
}

// ending ends an attempt after its function has returned.
type ending[In any] struct {
	*attempt
	job       *honker.Job[In]
	suspended bool
}

// finish records the result of the run and acks its job.
func (e *ending[In]) finish(ctx context.Context, out any) error {
	text, err := e.encode(ctx, out)
	if err != nil {
		return err
	}
	return e.over(ctx, row.FlowDone, text)
}

// over ends the run and acks its job.
func (e *ending[In]) over(ctx context.Context, o row.FlowOutcome, result string) error {
	if err := e.job.SetResult(json.RawMessage(result)); err != nil {
		return err
	}
	var keepUntil time.Time
	if e.keep >= 0 {
		keepUntil = e.engine.Now().Add(e.keep)
	}
	return e.settle(ctx, func(ctx context.Context, tx *sql.Tx, on engine.Querier) error {
		if err := e.store.End(ctx, on, e.run.Job, o, keepUntil, e.engine.Now()); err != nil {
			return err
		}
		if err := e.job.AckTx(ctx, tx); err != nil {
			return err
		}
		return e.resumeParent(ctx, tx, on)
	})
}

// die makes the job a dead letter. A run without a parent leaves that to the worker.
func (e *ending[In]) die(ctx context.Context, cause error) error {
	if e.run.Parent == 0 {
		return honker.Reject(cause)
	}
	return e.settle(ctx, func(ctx context.Context, tx *sql.Tx, on engine.Querier) error {
		if err := e.job.RejectTx(ctx, tx, cause); err != nil {
			return err
		}
		return e.resumeParent(ctx, tx, on)
	})
}

// resumeParent lets the calling run go on.
func (e *ending[In]) resumeParent(ctx context.Context, tx *sql.Tx, on engine.Querier) error {
	if e.run.Parent == 0 {
		return nil
	}
	caller, err := e.store.Resume(ctx, on, e.run.Parent, e.engine.Now())
	if err == nil && caller != "" {
		_, err = e.engine.Join(ctx, tx, wake.Queue(QueuePrefix+caller))
	}
	return err
}

// suspend gives the claim back until a reason for the suspension is over.
func (e *ending[In]) suspend(ctx context.Context) error {
	return e.settle(ctx, func(ctx context.Context, tx *sql.Tx, on engine.Querier) error {
		d, err := e.pause(ctx, on)
		if err != nil {
			return err
		}
		return e.job.SnoozeTx(ctx, tx, d)
	})
}

// unbounded is the length of a suspension without a limit. The signal or the end of the child cuts it short.
const unbounded = 100 * 365 * 24 * time.Hour

// pause returns for how long the run is to be suspended. A signal that came, or a child that ended, while the attempt
// was running has not resumed the run: nothing waited. So both are looked at again in the transaction of the settle.
func (a *attempt) pause(ctx context.Context, q engine.Querier) (time.Duration, error) {
	signals, err := a.store.Signals(ctx, q, a.name, a.run.ID)
	if err != nil {
		return 0, err
	}
	d, now := unbounded, a.engine.Now()
	for _, w := range a.waits {
		if !w.until.IsZero() {
			d = min(d, max(0, w.until.Sub(now)))
		}
		if _, come := signals[w.signal]; come && w.signal != "" {
			return 0, nil
		}
		if w.child.ID == "" {
			continue
		}
		if over, err := a.isOver(ctx, q, w.child); err != nil || over {
			return 0, err
		}
	}
	return d, nil
}

// isOver reports whether a run is over or dead, or its job is gone.
func (a *attempt) isOver(ctx context.Context, q engine.Querier, r row.FlowRun) (bool, error) {
	r, found, err := a.store.Find(ctx, q, r.Flow, r.ID)
	if err != nil || !found || !r.EndedAt.IsZero() {
		return err == nil, err
	}
	fate, err := a.engine.Stores.Results.Fate(ctx, q, r.Job, a.engine.Now())
	return !fate.Live, err
}

// errCancelled is returned by settle if the run was cancelled while its function was running.
var errCancelled = errors.New("the run was cancelled meanwhile")

// settle runs f in a transaction, even if ctx has ended. f must settle the job. If the writer is not free, the function
// runs again later, which costs little, because its steps are recorded. A run that was cancelled meanwhile is not
// settled.
func (e *ending[In]) settle(ctx context.Context, f func(ctx context.Context, tx *sql.Tx, on engine.Querier) error) error {
	err := e.engine.TxAgain(context.WithoutCancel(ctx), func(ctx context.Context, tx *sql.Tx) error {
		on, err := e.engine.Join(ctx, tx)
		if err != nil {
			return err
		}
		run, _, err := e.store.Hold(ctx, on, e.name, e.run.ID)
		if err != nil {
			return err
		}
		if run.Cancelled && !e.ending() {
			return errCancelled
		}
		return f(ctx, tx, on)
	})
	if errors.Is(err, honker.ErrBusy) {
		return honker.Snooze(time.Second)
	}
	return err
}
