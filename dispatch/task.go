package dispatch

import (
	"context"
	"database/sql"
	"errors"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
)

// Task is a job claimed by an actor.
type Task[T any] struct {
	ID      int64 // ID returned by Send, even if a copy in a legacy queue was claimed
	Args    T
	Target  Target // target that the job was sent to
	Attempt int    // number of this attempt, from 1

	d        *Dispatcher
	job      *honker.Job[T]
	reply    bool // see ActorOptions.Reply
	finished bool
}

// FinishTx acks the task and saves output as its result in the caller's transaction. Use it to make
// the transaction's other writes take effect exactly once. The handler's return values are then
// ignored. FinishTx returns [honker.ErrClaimLost] if the actor has lost its claim; the caller must
// then roll tx back.
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

// finish calls FinishTx in its own transaction. It retries on ErrBusy, because the completed
// handler would otherwise run again.
func (t *Task[T]) finish(ctx context.Context, output any) error {
	retry := engine.Retry{Log: t.d.engine.Logger, Message: "dispatch: a reply could not be saved, retrying", Attrs: []any{"job", t.ID}}
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

// newTask returns the task for a claimed job.
func newTask[T any](ctx context.Context, d *Dispatcher, a Identity, job *honker.Job[T]) (*Task[T], error) {
	t := &Task[T]{ID: job.ID, Args: job.Args, Attempt: job.Attempts, d: d, job: job}
	if key, err := d.keys.Parse(job.Queue); err == nil && key.Kind == KindWork {
		t.Target = key.Target
		return t, nil
	}
	// The job comes from a legacy queue. Usually it is a copy, and only the original job has the
	// target.
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
