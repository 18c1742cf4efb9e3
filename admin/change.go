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
	Waiters Waiters // default: skip jobs that other jobs or a batch wait for
}

// Discard permanently deletes the dead jobs that f selects. It blocks until all are deleted, and works in
// transactions of a few milliseconds with pauses between them. If ctx ends, Discard returns its error and a
// report of the jobs deleted so far. A nil opts selects the defaults.
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
	Running bool    // also cancel jobs that a worker holds; the ctx of their handlers ends
	DryRun  bool    // count the jobs without changing them
	Waiters Waiters // default: a cancelled job counts as done for the jobs that wait for it; see WaitersOf
}

// Cancel deletes the live jobs that f selects, like [honker.Queue.Cancel]. Without Running, it skips jobs
// that a worker holds by a valid claim.
//
// Cancel blocks until all jobs are deleted, and works in transactions of a few milliseconds with pauses
// between them. If ctx ends, Cancel returns its error and a report of the jobs deleted so far. A nil opts
// selects the defaults.
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

// tellCancelled returns a function that publishes the cancellation of jobs of a queue.
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

// RunNowOptions configures RunNow. The zero value of a field selects its default.
type RunNowOptions struct {
	DryRun bool // count the jobs without changing them
}

// RunNow makes jobs that f selects due at once: delayed jobs, and jobs between two attempts. It skips all
// others.
//
// RunNow blocks until all jobs are due, and works in transactions of a few milliseconds with pauses between
// them. If ctx ends, RunNow returns its error and a report of the jobs changed so far. A nil opts selects
// the defaults.
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

// changeFunc changes jobs. It returns the changed jobs and the waiting jobs that were removed with them.
type changeFunc func(ctx context.Context, q engine.Querier, ids []int64, now time.Time) (row.Removed, error)

// changeAll makes the action change all jobs of a transaction with a single call of do. It calls told for
// each queue after the commit.
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

// tellQueues calls told for each queue, with the ids of its jobs.
func tellQueues(of []row.Change, told func(queue string, ids []int64)) {
	queues, ids := byQueue(of)
	for _, queue := range queues {
		told(queue, ids[queue])
	}
}

// skipOthers adds the ids that the statement did not change to the skipped jobs of r.
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
