package admin

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
)

// DiscardOptions of one Discard. The zero value of a field means its default.
type DiscardOptions struct {
	DryRun  bool    // count, and change nothing
	Waiters Waiters // default: a job that others wait for, or a batch, is Skipped
}

// Discard deletes the dead jobs that f picks, for good. It blocks until that is done, in transactions
// of some milliseconds with pauses between them; when ctx ends it returns its error, and what was done
// until then. nil opts means defaults.
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
	a.leaves = "others wait for it"
	actor := engine.Actor(ctx)
	keep := o.Waiters == DefaultWaiters || o.Waiters == KeepWaiters
	a.changeAll(func(ctx context.Context, q engine.Querier, ids []int64, _ time.Time) (changed, dropped []row.Change, err error) {
		if o.Waiters == DropWaiters {
			dropped, err = changes.DropWaiters(ctx, q, ids)
		}
		if err == nil {
			changed, err = changes.Discard(ctx, q, ids, !keep)
		}
		return changed, dropped, err
	}, func(queue string, ids []int64) {
		a.engine.Observe(honker.Discarded{Queue: queue, IDs: ids, Actor: actor})
	})
	r, err := a.run(ctx)
	return r, engine.Wrap("discard", "", err)
}

// CancelOptions of one Cancel. The zero value of a field means its default.
type CancelOptions struct {
	Running bool    // also jobs that a worker holds: the ctx of their handlers ends
	DryRun  bool    // count, and change nothing
	Waiters Waiters // default: for jobs that wait for one, it counts as done; see WaitersOf
}

// Cancel removes the live jobs that f picks, and leaves no trace of them, as [honker.Queue.Cancel]
// does. One that a worker holds by a valid claim is Skipped without Running. It blocks until that is
// done, in transactions of some milliseconds with pauses between them; when ctx ends it returns its
// error, and what was done until then. nil opts means defaults.
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
		a.leaves = "others wait for it, or a worker holds it"
	}
	actor := engine.Actor(ctx)
	a.changeAll(func(ctx context.Context, q engine.Querier, ids []int64, now time.Time) (changed, dropped []row.Change, err error) {
		switch o.Waiters {
		case DropWaiters:
			dropped, err = changes.DropWaitersOfLive(ctx, q, ids, o.Running, now.Unix())
		case KeepWaiters:
			ids, err = changes.Unawaited(ctx, q, ids)
		}
		if err == nil {
			changed, err = changes.CancelMany(ctx, q, ids, o.Running, now.Unix())
		}
		return changed, dropped, err
	}, a.tellCancelled(actor))
	r, err := a.run(ctx)
	return r, engine.Wrap("cancel", "", err)
}

// tellCancelled tells of jobs of a queue that were cancelled.
func (a *action) tellCancelled(actor string) func(queue string, ids []int64) {
	return func(queue string, ids []int64) {
		over := make([]wake.Change, len(ids))
		for i, id := range ids {
			over[i] = wake.Change{Kind: wake.JobDone, Name: strconv.FormatInt(id, 10)}
		}
		a.engine.Notifier.Wake(over...)
		a.engine.Observe(honker.Cancelled{Queue: queue, IDs: ids, Actor: actor})
	}
}

// RunNowOptions of one RunNow. The zero value of a field means its default.
type RunNowOptions struct {
	DryRun bool // count, and change nothing
}

// RunNow makes the jobs that f picks due that wait for their time: delayed ones, and those between two
// attempts. Others are Skipped. It blocks until that is done, in transactions of some milliseconds with
// pauses between them; when ctx ends it returns its error, and what was done until then. nil opts means
// defaults.
func RunNow(ctx context.Context, db *honker.DB, f JobFilter, opts *RunNowOptions) (*Report, error) {
	a, err := newAction(ctx, db, "run now", f, false)
	if err != nil {
		return new(Report), engine.Wrap("run now", "", err)
	}
	a.dryRun = opts != nil && opts.DryRun
	a.leaves = "it does not wait for its time"
	a.changeAll(func(ctx context.Context, q engine.Querier, ids []int64, now time.Time) (changed, _ []row.Change, err error) {
		changed, err = changes.RunNow(ctx, q, ids, now.Unix())
		return changed, nil, err
	}, func(queue string, _ []int64) { a.engine.Notifier.Wake(ready(queue)) })
	r, err := a.run(ctx)
	return r, engine.Wrap("run now", "", err)
}

// changeFunc changes jobs, and returns them and those that waited for them and were removed too.
type changeFunc func(ctx context.Context, q engine.Querier, ids []int64, now time.Time) (changed, dropped []row.Change, err error)

// changeAll makes change one statement for all jobs of a transaction. told is called for each queue,
// after the commit.
func (a *action) changeAll(do changeFunc, told func(queue string, ids []int64)) {
	a.change = func(ctx context.Context, q engine.Querier, found []row.SelectedJob, now time.Time, r *Report) (func(), error) {
		ids := make([]int64, len(found))
		for i, j := range found {
			ids[i] = j.ID
		}
		changed, dropped, err := do(ctx, q, ids, now)
		if err != nil {
			return nil, err
		}
		r.Changed += int64(len(changed))
		r.Waiters += int64(len(dropped))
		a.skipOthers(r, ids, changed)
		return func() {
			tellQueues(dropped, a.tellCancelled(engine.Actor(ctx)))
			tellQueues(changed, told)
		}, nil
	}
}

// tellQueues calls told for each queue of jobs.
func tellQueues(of []row.Change, told func(queue string, ids []int64)) {
	queues, ids := byQueue(of)
	for _, queue := range queues {
		told(queue, ids[queue])
	}
}

// skipOthers reports those of ids that the statement has left.
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
