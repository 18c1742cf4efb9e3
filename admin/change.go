package admin

import (
	"context"
	"errors"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
	"github.com/honker-go/honker/observe"
)

// DiscardOptions configures Discard. The zero value of a field selects its default.
type DiscardOptions struct {
	DryRun  bool    // count the jobs without changing them
	Waiters Waiters // how to handle jobs that wait for a discarded job; by default a job with waiters is skipped
}

// Discard permanently deletes the dead jobs that f selects. It blocks until all of them are deleted. The
// work is split into transactions of a few milliseconds with pauses in between. If ctx is done, Discard
// returns ctx's error and a report of the jobs deleted so far. A nil opts selects the defaults.
func Discard(ctx context.Context, db *honker.DB, f JobFilter, opts *DiscardOptions) (*Report, error) {
	var o DiscardOptions
	if opts != nil {
		o = *opts
	}
	a, err := newAction(ctx, db, "discard", f, true)
	if err := errors.Join(err, o.Waiters.check()); err != nil {
		return new(Report), engine.Wrap("discard", "", err)
	}
	a.dryRun = o.DryRun
	a.leaves = "other jobs wait for it"
	actor := engine.Actor(ctx)
	w := o.Waiters.row(KeepWaiters)
	a.changeAll(func(ctx context.Context, q engine.Querier, ids []int64, _ time.Time) (row.Removed, error) {
		return a.engine.Stores.Operators.Discard(ctx, q, ids, w)
	}, func(queue string, ids []int64) {
		a.engine.Observer.Discarded(observe.Discarded{Queue: queue, IDs: ids, Actor: actor})
	})
	r, err := a.run(ctx)
	return r, engine.Wrap("discard", "", err)
}

// CancelOptions configures Cancel. The zero value of a field selects its default.
type CancelOptions struct {
	Running bool    // also cancel running jobs and their handlers' contexts
	DryRun  bool    // count the jobs without changing them
	Waiters Waiters // how to handle jobs that wait for a cancelled job; by default the cancelled job counts as done (see WaitersOf)
}

// Cancel deletes the live jobs that f selects, like [honker.Queue.Cancel]. Jobs with a valid claim are
// skipped unless opts.Running is set.
//
// Cancel blocks until all jobs are deleted. The work is split into transactions of a few milliseconds
// with pauses in between. If ctx is done, Cancel returns ctx's error and a report of the jobs deleted so
// far. A nil opts selects the defaults.
func Cancel(ctx context.Context, db *honker.DB, f JobFilter, opts *CancelOptions) (*Report, error) {
	var o CancelOptions
	if opts != nil {
		o = *opts
	}
	a, err := newAction(ctx, db, "cancel", f, false)
	if err := errors.Join(err, o.Waiters.check()); err != nil {
		return new(Report), engine.Wrap("cancel", "", err)
	}
	a.dryRun = o.DryRun
	a.leaves = "a worker holds it"
	if o.Waiters == KeepWaiters {
		a.leaves = "other jobs wait for it, or a worker holds it"
	}
	actor := engine.Actor(ctx)
	w := o.Waiters.row(ReleaseWaiters)
	a.changeAll(func(ctx context.Context, q engine.Querier, ids []int64, now time.Time) (row.Removed, error) {
		return a.engine.Stores.Operators.CancelMany(ctx, q, row.CancelJobs{IDs: ids, Running: o.Running, Waiters: w}, now)
	}, a.tellCancelled(actor))
	r, err := a.run(ctx)
	return r, engine.Wrap("cancel", "", err)
}

// tellCancelled returns a function that notifies the observer and other processes of a queue's
// cancelled jobs.
func (a *action) tellCancelled(actor string) func(queue string, ids []int64) {
	return func(queue string, ids []int64) {
		over := make([]wake.Change, len(ids))
		for i, id := range ids {
			over[i] = wake.Job(id)
		}
		a.engine.Notifier.Wake(over...)
		a.engine.Observer.Cancelled(observe.Cancelled{Queue: queue, IDs: ids, Actor: actor})
	}
}

// BuryOptions configures Bury. The zero value of a field selects its default.
type BuryOptions struct {
	DryRun bool // count the jobs without changing them
}

// Bury moves the live jobs that f selects to the dead letters, where they wait for [Requeue] or [Discard]. A job keeps its
// last error and its attempts, and loses its unique key while it is dead. Jobs with a valid claim are skipped. To undo
// a Requeue, set Requeue of the filter to Audit of its report.
//
// Each job is reported to the observer as [observe.Settled] with OutcomeDied. Jobs that wait for it are treated as after
// any other death (see [honker.After]).
//
// Bury blocks until all jobs are dead. The work is split into transactions of a few milliseconds with
// pauses in between. If ctx is done, Bury returns ctx's error and a report of the jobs changed so far. A
// nil opts selects the defaults.
func Bury(ctx context.Context, db *honker.DB, f JobFilter, opts *BuryOptions) (*Report, error) {
	a, err := newAction(ctx, db, "bury", f, false)
	if err != nil {
		return new(Report), engine.Wrap("bury", "", err)
	}
	a.dryRun = opts != nil && opts.DryRun
	a.leaves = "a worker holds it"
	attempts := make(map[int64]int64)
	a.changeAll(func(ctx context.Context, q engine.Querier, ids []int64, now time.Time) (out row.Removed, err error) {
		dead, err := a.engine.Stores.Operators.Bury(ctx, q, ids, now)
		clear(attempts)
		for _, d := range dead {
			attempts[d.ID] = d.Attempts
			out.Jobs = append(out.Jobs, row.Change{ID: d.ID, Queue: d.Queue})
		}
		return out, err
	}, func(queue string, ids []int64) { a.tellBuried(queue, ids, attempts) })
	r, err := a.run(ctx)
	return r, engine.Wrap("bury", "", err)
}

// errBuried is the cause of a death by Bury.
var errBuried = errors.New(row.ReasonBuried)

// tellBuried notifies the observer and those who wait for the jobs. Other jobs may be claimable since.
func (a *action) tellBuried(queue string, ids []int64, attempts map[int64]int64) {
	over := []wake.Change{wake.Queue(queue)}
	for _, id := range ids {
		over = append(over, wake.Job(id))
	}
	a.engine.Notifier.Wake(over...)
	for _, id := range ids {
		a.engine.Observer.Settled(observe.Settled{Queue: queue, ID: id, Attempt: int(attempts[id]), Outcome: honker.OutcomeDied, Err: errBuried})
	}
}

// RunNowOptions configures RunNow. The zero value of a field selects its default.
type RunNowOptions struct {
	DryRun bool // count the jobs without changing them
}

// RunNow makes the selected jobs due immediately if they are delayed or waiting for a retry. It skips all
// other jobs.
//
// RunNow blocks until all jobs are due. The work is split into transactions of a few milliseconds with
// pauses in between. If ctx is done, RunNow returns ctx's error and a report of the jobs changed so far. A
// nil opts selects the defaults.
func RunNow(ctx context.Context, db *honker.DB, f JobFilter, opts *RunNowOptions) (*Report, error) {
	a, err := newAction(ctx, db, "run now", f, false)
	if err != nil {
		return new(Report), engine.Wrap("run now", "", err)
	}
	a.dryRun = opts != nil && opts.DryRun
	a.leaves = "it does not wait for its time"
	a.changeAll(func(ctx context.Context, q engine.Querier, ids []int64, now time.Time) (row.Removed, error) {
		changed, err := a.engine.Stores.Operators.RunNow(ctx, q, ids, now)
		return row.Removed{Jobs: changed}, err
	}, func(queue string, _ []int64) { a.engine.Notifier.Wake(wake.Queue(queue)) })
	r, err := a.run(ctx)
	return r, engine.Wrap("run now", "", err)
}

// changeFunc changes the jobs with the given IDs. It returns the changed jobs and any waiting jobs
// removed along with them.
type changeFunc func(ctx context.Context, q engine.Querier, ids []int64, now time.Time) (row.Removed, error)

// changeAll sets a.change to a function that calls do once per transaction. After the commit, told is
// called for each queue.
func (a *action) changeAll(do changeFunc, told func(queue string, ids []int64)) {
	a.change = func(ctx context.Context, q engine.Querier, found []row.SelectedJob, now time.Time, r *Report) (func(), error) {
		ids := make([]int64, len(found))
		for i, j := range found {
			ids[i] = j.ID
		}
		out, err := do(ctx, q, ids, now)
		if err != nil {
			return nil, err
		}
		r.Changed += int64(len(out.Jobs))
		r.Waiters += int64(len(out.Waiters))
		a.skipOthers(r, ids, out.Jobs)
		return func() {
			tellQueues(out.Waiters, a.tellCancelled(engine.Actor(ctx)))
			tellQueues(out.Jobs, told)
		}, nil
	}
}

// tellQueues groups changed jobs by queue and calls told for each queue.
func tellQueues(of []row.Change, told func(queue string, ids []int64)) {
	queues, ids := byQueue(of)
	for _, queue := range queues {
		told(queue, ids[queue])
	}
}

// skipOthers adds the IDs that were not changed to r's skipped jobs.
func (a *action) skipOthers(r *Report, ids []int64, changed []row.Change) {
	done := make(map[int64]bool, len(changed))
	for _, c := range changed {
		done[c.ID] = true
	}
	for _, id := range ids {
		if !done[id] {
			r.skip(id, a.leaves)
		}
	}
}
