package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/worker"
)

// ActorOptions configures an Actor. The zero value of each field selects its default.
type ActorOptions struct {
	// Workers is the maximum number of concurrent tasks; default 1.
	Workers int
	// Lease is the duration of a claim; default 30s. Claims are renewed every Lease/3. If a process
	// is killed, its tasks are retried once their leases have expired.
	Lease time.Duration
	// DrainTimeout is how long handlers may take to finish after ctx ends or a Stop arrives;
	// default 20s. After that, their ctx is canceled, and unfinished tasks are released without
	// using up an attempt.
	DrainTimeout time.Duration
	// Backoff is the delay before the next attempt; default as in honker.QueueOptions.
	Backoff honker.Backoff
	// OnError is called after each failed attempt and for each task that lost its claim. It may be
	// nil.
	OnError func(context.Context, *honker.JobInfo, error)
	// Middleware wraps the handler of each job, as in honker.WorkOptions, for example to record traces.
	// A nil Middleware is ErrInvalid.
	Middleware []honker.Middleware

	// Reply also enqueues the handler's result in the task's reply queue, [Keys.Reply], where
	// callers in other languages wait for it. The reply is written in the transaction that ends the
	// task, so tasks cannot share a transaction. [honker.DB.Maintain] deletes a reply that has not
	// been acked within an hour.
	Reply bool
}

func (o *ActorOptions) withDefaults() (ActorOptions, error) {
	var out ActorOptions
	if o != nil {
		out = *o
	}
	err := errors.Join(engine.NotNegative("Lease", out.Lease), engine.NotNegative("DrainTimeout", out.DrainTimeout))
	if out.Workers < 0 {
		err = errors.Join(err, fmt.Errorf("%w: negative Workers %d", honker.ErrInvalid, out.Workers))
	}
	if slices.ContainsFunc(out.Middleware, func(m honker.Middleware) bool { return m == nil }) {
		err = errors.Join(err, fmt.Errorf("%w: nil Middleware", honker.ErrInvalid))
	}
	out.Workers = cmp.Or(out.Workers, 1)
	out.DrainTimeout = cmp.Or(out.DrainTimeout, 20*time.Second)
	return out, err
}

// Actor runs the jobs that are sent to its instance, its group and its type.
type Actor[T any] struct {
	d       *Dispatcher
	id      Identity
	handler func(context.Context, *Task[T]) (any, error)
	opts    ActorOptions
	err     error
}

// NewActor returns an actor with the handler h. If opts is nil, the defaults are used. NewActor
// does not access the database. If a name or an option is invalid or h is nil, Run returns
// [honker.ErrInvalid].
func NewActor[T any](d *Dispatcher, id Identity, h func(context.Context, *Task[T]) (any, error), opts *ActorOptions) *Actor[T] {
	o, err := opts.withDefaults()
	err = errors.Join(d.err, err, id.check())
	if h == nil {
		err = errors.Join(err, fmt.Errorf("%w: nil handler", honker.ErrInvalid))
	}
	return &Actor[T]{d: d, id: id.withGroup(), handler: h, opts: o, err: err}
}

// Run registers the actor, runs its tasks and responds to Stop, Pause and the other commands. It
// blocks until ctx ends or the actor is stopped and all handlers have returned, and then returns
// nil. It returns [ErrInstanceTaken] if another actor with the same name is alive. This can also
// happen later, if the process has been suspended for longer than Options.TTL.
//
// Run claims jobs in order of their level. Within a level it claims from the instance's queue
// first, then from the group's queue, then from the type's queue. Legacy queues come last. A queue
// is used only while all queues before it are empty. Run does not prefetch jobs.
//
// The handler's result is saved for an hour. If the handler returns an error, the job is retried
// after Backoff, unless the error comes from [honker.RetryAfter], [honker.Snooze] or
// [honker.Reject]. Tasks are delivered at least once; see [Task.FinishTx].
//
// The handler's ctx is canceled with cause [honker.ErrCancelled] when the task is stopped, with
// cause [honker.ErrClaimLost] when its claim is lost, and when DrainTimeout has passed. If the
// handler still does not return, its task is released a second after DrainTimeout and can run
// elsewhere. Run keeps waiting for the handler, and the name stays taken.
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
		w := honker.NewWorkers(a.d.db, &honker.WorkersOptions{Order: honker.Strict})
		for _, queue := range queues {
			honker.Handle(w, honker.NewQueue[T](a.d.db, queue, &honker.QueueOptions{Backoff: a.opts.Backoff}), a.handle(s))
		}
		return w.Work(ctx, o)
	}
	return fail("run actor", name, s.run(ctx))
}

// handle returns s's job handler. It calls the actor's handler and saves its result.
func (a *Actor[T]) handle(s *session) func(context.Context, *honker.Job[T]) error {
	return func(ctx context.Context, job *honker.Job[T]) error {
		t, err := newTask(ctx, a.d, a.id, job)
		t.reply = s.opts.Reply
		if err != nil {
			a.d.engine.Logger.Warn("honker: dispatch: the origin of a task from a legacy queue cannot be read; retrying in a second", "job", job.ID, "error", err)
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

// released returns err, or a Snooze if the handler failed only because the drain canceled its
// context. The attempt is then not counted as a failure.
func released(ctx context.Context, err error) error {
	var directive *worker.Directive
	if context.Cause(ctx) == errDrained && !errors.As(err, &directive) {
		return honker.Snooze(0)
	}
	return err
}
