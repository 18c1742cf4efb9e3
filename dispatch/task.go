package dispatch

import (
	"context"
	"database/sql"
	"errors"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
)

// Task is a job in the hands of an actor.
type Task[T any] struct {
	ID      int64 // what Send has returned, also where a copy in a legacy queue was claimed
	Args    T
	Target  Target // where it was sent to
	Attempt int    // from 1

	d        *Dispatcher
	job      *honker.Job[T]
	reply    bool // see ActorOptions.Reply
	finished bool
}

// FinishTx ends the task with its output in the caller's transaction: what else that writes happens
// exactly once, together with the end. What the handler returns then changes nothing.
// [honker.ErrClaimLost]: the task is no longer the actor's, and the transaction must be rolled back.
func (t *Task[T]) FinishTx(ctx context.Context, tx honker.Tx, output any) error {
	if err := t.job.SetResult(output); err != nil {
		return failID("finish task", t.ID, err)
	}
	if err := t.job.AckTx(ctx, tx); err != nil {
		return failID("finish task", t.ID, err)
	}
	if t.reply {
		if _, err := honker.NewQueue[any](t.d.db, t.d.keys.Reply(t.ID), nil).EnqueueTx(ctx, tx, output); err != nil {
			return failID("reply to task", t.ID, err)
		}
	}
	t.finished = true
	return nil
}

// finish is FinishTx in a transaction of its own. It waits for a writer that is busy: the handler has
// done its work.
func (t *Task[T]) finish(ctx context.Context, output any) error {
	retry := engine.Retry{Log: t.d.engine.Logger, What: "dispatch: a reply was not saved, retrying", Attrs: []any{"job", t.ID}}
	for {
		err := t.d.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error { return t.FinishTx(ctx, tx, output) })
		if !errors.Is(err, honker.ErrBusy) {
			return err
		}
		if retry.After(ctx, err) != nil {
			return err
		}
	}
}

// newTask makes a task of a claimed job.
func newTask[T any](ctx context.Context, d *Dispatcher, a Identity, job *honker.Job[T]) (*Task[T], error) {
	t := &Task[T]{ID: job.ID, Args: job.Args, Attempt: job.Attempts, d: d, job: job}
	if key, err := d.keys.Parse(job.Queue); err == nil && key.Kind == KindWork {
		t.Target = key.Target
		return t, nil
	}
	// From a legacy queue: mostly a copy, which says where it was sent to.
	t.Target = Target{Type: a.Type}
	err := d.read(ctx, func(ctx context.Context, q engine.Querier) error {
		id, queue, found, err := d.store.Original(ctx, q, job.ID)
		if err != nil || !found {
			return err
		}
		t.ID = id
		if key, err := d.keys.Parse(queue); err == nil {
			t.Target = key.Target
		}
		return nil
	})
	return t, err
}
