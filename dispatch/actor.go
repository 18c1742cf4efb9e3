package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/worker"
)

// ActorOptions of an Actor. The zero value of a field means its default.
type ActorOptions struct {
	Workers      int                                           // tasks at once; default 1
	Lease        time.Duration                                 // of a task, renewed at a third of it; what was killed lets its tasks go after it; default 30s
	DrainTimeout time.Duration                                 // default 20s: after the end of ctx, or a Stop, handlers finish; then their ctx ends, and what they do not finish is given back, attempt unspent
	Backoff      honker.Backoff                                // before the next attempt; default that of honker.QueueOptions
	OnError      func(context.Context, *honker.JobInfo, error) // of an attempt that has failed, or a task that was lost

	// Reply also pushes what the handler returns to the queue [Keys.Reply] of the task, in the
	// transaction that ends it: for callers in other languages that wait there. It costs a transaction
	// for each task. [honker.DB.Maintain] deletes a reply that no caller has acked within an hour.
	Reply bool
}

func (o *ActorOptions) withDefaults() (ActorOptions, error) {
	var out ActorOptions
	if o != nil {
		out = *o
	}
	err := errors.Join(engine.NotNegative("Lease", out.Lease), engine.NotNegative("DrainTimeout", out.DrainTimeout))
	if out.Workers < 0 {
		err = errors.Join(err, fmt.Errorf("%w: %d workers", honker.ErrInvalid, out.Workers))
	}
	out.Workers = or(out.Workers, 1)
	out.DrainTimeout = or(out.DrainTimeout, 20*time.Second)
	return out, err
}

// Actor takes the work of its instance, its group and its type.
type Actor[T any] struct {
	d       *Dispatcher
	id      Identity
	handler func(context.Context, *Task[T]) (any, error)
	opts    ActorOptions
	err     error
}

// NewActor returns an actor, which touches nothing until Run: a bad name or option, or a nil
// handler, is [honker.ErrInvalid] from it. nil opts means defaults.
func NewActor[T any](d *Dispatcher, id Identity, h func(context.Context, *Task[T]) (any, error), opts *ActorOptions) *Actor[T] {
	o, err := opts.withDefaults()
	err = errors.Join(d.err, err, id.check())
	if h == nil {
		err = errors.Join(err, fmt.Errorf("%w: nil handler", honker.ErrInvalid))
	}
	return &Actor[T]{d: d, id: id.withGroup(), handler: h, opts: o, err: err}
}

// Run registers the actor, takes work and heeds what is said by Stop, Pause and the others. It blocks
// until ctx ends or the actor is stopped, and its tasks are done, and returns nil then. It is
// [ErrInstanceTaken], at once or later, when another actor lives under the name: later after this
// process has stood still for Options.TTL.
//
// Work is taken by levels, and within a level from the instance's queue, the group's and the type's;
// from legacy queues last. A queue further down gets nothing while there is work above it. Nothing is
// claimed ahead. What the handler returns is saved as the result, for an hour; an error lets the job
// run again after the Backoff, and [honker.RetryAfter], [honker.Snooze] and [honker.Reject] say
// otherwise. A task is delivered at least once; see [Task.FinishTx].
//
// The handler's ctx ends when the task was stopped ([honker.ErrCancelled]) or lost
// ([honker.ErrClaimLost]), and at the end of DrainTimeout. A handler that ignores it keeps Run from
// returning and the name taken, not its task from running elsewhere: a second later it is given back.
func (a *Actor[T]) Run(ctx context.Context) error {
	name := a.id.target().String()
	if a.err != nil {
		return fail("run actor", name, a.err)
	}
	if err := a.d.engine.RefuseInTx(ctx, ""); err != nil {
		return fail("run actor", name, err)
	}
	s := newSession(a.d, a.id, a.opts)
	s.work = func(ctx context.Context, queues []string, o *honker.WorkOptions) error {
		lanes := honker.NewLanes[T](a.d.db, queues, &honker.LaneOptions{Strict: true, Queue: &honker.QueueOptions{Backoff: a.opts.Backoff}})
		return lanes.Work(ctx, a.handle(s), o)
	}
	return fail("run actor", name, s.run(ctx))
}

// handle is the handler of the jobs that a session claims.
func (a *Actor[T]) handle(s *session) func(context.Context, *honker.Job[T]) error {
	return func(ctx context.Context, job *honker.Job[T]) error {
		t, err := newTask(ctx, a.d, a.id, job)
		t.reply = s.opts.Reply
		if err != nil {
			a.d.engine.Logger.Warn("honker: dispatch: a task from a legacy queue waits, since its origin cannot be read", "job", job.ID, "error", err)
			return honker.Snooze(time.Second)
		}
		ctx, end := s.begin(ctx, t.ID, func(ctx context.Context) error { return job.Snooze(ctx, 0) })
		defer end()
		output, err := a.handler(ctx, t)
		switch {
		case err != nil:
			return released(ctx, err)
		case t.finished:
			return nil
		case t.reply:
			return released(ctx, t.finish(ctx, output))
		}
		return job.SetResult(output)
	}
}

// released is the error of a handler, or what gives its task back where the end of the actor has
// caused it: the task has not failed.
func released(ctx context.Context, err error) error {
	var directive *worker.Directive
	if context.Cause(ctx) == errDrained && !errors.As(err, &directive) {
		return honker.Snooze(0)
	}
	return err
}
