package flow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Start starts a run with the given ID, which is 1 to 255 bytes of UTF-8. It returns false and starts nothing if the
// flow has a run with that ID that is not over, is dead, or is kept (see Options.Keep).
//
// Start waits for the writer until ctx ends or BusyTimeout has passed. opts apply to the run's job. They must not set
// a unique key, which is the ID. Within [honker.DB.Tx] use StartTx.
func (f *Flow[In, Out]) Start(ctx context.Context, id string, in In, opts ...honker.EnqueueOption) (started bool, err error) {
	if err := cmp.Or(f.engine.Writable(), f.engine.RefuseInTx(ctx, "StartTx")); err != nil {
		return false, failRun("start", f.name, id, err)
	}
	started, err = f.enqueue(ctx, row.FlowRun{Flow: f.name, ID: id}, in, opts)
	return started, failRun("start", f.name, id, err)
}

// errTaken undoes the enqueue of a run with an ID that the flow has already.
var errTaken = errors.New("the flow has a run with this ID")

// enqueue starts r in a transaction of its own. An idle worker of this DB may get the run with the commit, as it gets a
// job from [honker.Queue.Enqueue].
func (f *Flow[In, Out]) enqueue(ctx context.Context, r row.FlowRun, in In, opts []honker.EnqueueOption) (started bool, err error) {
	if taken, err := f.taken(ctx, r.ID); err != nil || taken {
		return false, err
	}
	along := func(ctx context.Context, q engine.Querier, inserted row.Inserted, _ time.Time) error {
		if started = inserted.Places[0].Result == row.PlacedNew; !started {
			return nil
		}
		r.Job = inserted.IDs[0]
		if err := f.store.Prepare(ctx, q); err != nil {
			return err
		}
		first, err := f.add(ctx, q, r)
		if err == nil && !first {
			return errTaken
		}
		return err
	}
	opts = append(opts[:len(opts):len(opts)], honker.Unique(r.ID, nil), engine.WithAlong(along).(honker.EnqueueOption))
	_, err = f.queue.Enqueue(ctx, in, opts...)
	if errors.Is(err, errTaken) {
		return false, nil
	}
	return started && err == nil, err
}

// taken reports whether the flow has a run with the given ID, before the writer is asked for.
func (f *flow) taken(ctx context.Context, id string) (found bool, err error) {
	if err := f.check(id); err != nil {
		return false, err
	}
	err = f.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		_, found, err = f.store.Find(ctx, q, f.name, id)
		return err
	})
	return found, err
}

// check returns an error for an invalid flow or an invalid ID of a run.
func (f *flow) check(id string) error { return cmp.Or(f.err, checkName("ID of the run", id)) }

// StartTx is like [Flow.Start] but runs within tx, so that the run starts if and only if tx commits.
func (f *Flow[In, Out]) StartTx(ctx context.Context, tx honker.Tx, id string, in In, opts ...honker.EnqueueOption) (started bool, err error) {
	run, err := f.start(ctx, tx, row.FlowRun{Flow: f.name, ID: id}, in, opts)
	return run.Job != 0, failRun("start", f.name, id, err)
}

// start starts r and returns it with its job. The job is 0 if the flow has a run with that ID.
func (f *Flow[In, Out]) start(ctx context.Context, tx honker.Tx, r row.FlowRun, in In, opts []honker.EnqueueOption) (row.FlowRun, error) {
	if err := f.check(r.ID); err != nil {
		return r, err
	}
	on, err := f.engine.Join(ctx, tx)
	if err != nil {
		return r, err
	}
	if err := f.store.Prepare(ctx, on); err != nil {
		return r, err
	}
	if _, found, err := f.store.Find(ctx, on, f.name, r.ID); err != nil || found {
		return r, err
	}
	var placed honker.Placement
	opts = append(opts[:len(opts):len(opts)], honker.Unique(r.ID, nil), honker.Placed(&placed))
	if _, err := f.queue.EnqueueTx(ctx, tx, in, opts...); err != nil || placed.Result != honker.PlacedNew {
		return r, err
	}
	r.Job = placed.ID
	first, err := f.add(ctx, on, r)
	if err == nil && !first {
		_, err = f.queue.CancelTx(ctx, tx, r.Job)
		r.Job = 0
	}
	return r, err
}

// add records a run whose job was enqueued in the same transaction. It returns false and changes nothing if another
// transaction has meanwhile added a run with that ID, which may be over already.
func (f *flow) add(ctx context.Context, q engine.Querier, r row.FlowRun) (first bool, err error) {
	first, err = f.store.Add(ctx, q, r, f.engine.Now())
	if err != nil || first {
		return first, err
	}
	_, found, err := f.store.Find(ctx, q, r.Flow, r.ID)
	if err == nil && !found {
		err = fmt.Errorf("%w: a trigger has dropped the run", honker.ErrNotInserted)
	}
	return false, err
}
