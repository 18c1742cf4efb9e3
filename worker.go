package honker

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"
)

// WorkOptions of one Work. The zero value of a field means its default.
type WorkOptions struct {
	Workers      int           // handlers at once; default runtime.GOMAXPROCS(0)
	WorkerID     string        // default host-pid-random; unique per running worker
	Lease        time.Duration // default 30s, renewed at a third of it by one statement for all jobs held
	DrainTimeout time.Duration // default 20s: after ctx ends, handlers finish; then their ctx is cancelled and what is unfinished is released, attempt unspent
	Middleware   []Middleware  // the first is the outermost
	// OnError is told of each attempt that failed, with the error that the handler
	// returned, and of a job whose claim was lost (ErrClaimLost). It runs in the
	// worker's goroutine.
	OnError func(ctx context.Context, job *JobInfo, err error)
}

// WorkFunc handles one job, seen without its type.
type WorkFunc func(ctx context.Context, job *JobInfo) error

// Middleware wraps the handler. It must pass on a ctx derived from the one it was
// given, and the same job.
type Middleware func(next WorkFunc) WorkFunc

func (o *WorkOptions) withDefaults() (WorkOptions, error) {
	var out WorkOptions
	if o != nil {
		out = *o
	}
	err := errors.Join(notNegative("Lease", out.Lease), notNegative("DrainTimeout", out.DrainTimeout))
	if out.Workers < 0 {
		err = fmt.Errorf("%w: %d workers", ErrInvalid, out.Workers)
	}
	if out.Workers == 0 {
		out.Workers = runtime.GOMAXPROCS(0)
	}
	if out.WorkerID == "" {
		out.WorkerID = newWorkerID()
	}
	if out.Lease == 0 {
		out.Lease = 30 * time.Second
	}
	if out.DrainTimeout == 0 {
		out.DrainTimeout = 20 * time.Second
	}
	return out, errors.Join(err, checkName("worker", out.WorkerID))
}

func newWorkerID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "host"
	}
	return fmt.Sprintf("%.64s-%d-%s", host, os.Getpid(), rand.Text()[:10])
}

// Work claims jobs and runs fn for each, in several goroutines, until ctx ends and the
// work is drained; then it returns nil. It returns an error at once for bad options,
// and later when the DB is closed or its file was replaced; other storage errors are
// logged and tried again.
//
// fn's return settles the job: nil acks it, an error lets it run again after the
// queue's Backoff or, its attempts spent, sends it to the dead letters; [RetryAfter],
// [Snooze] and [Reject] say otherwise. A job that fn has settled itself is left alone. A
// panic is an error with its stack. A job is delivered at least once: for effects that
// happen exactly once, see [Queue.WorkTx].
//
// A claim lasts for Lease and is renewed while fn runs. fn's ctx carries the values of
// ctx and is cancelled, with [ErrClaimLost] as its cause, when the claim was lost; by
// the queue's Timeout; and at the end of DrainTimeout. A handler that ignores it keeps
// Work from returning, not its job from being run elsewhere.
//
// Fast handlers are fed by claims of up to 256 jobs at once; what was claimed ahead and
// has not started is given back when handlers turn slow, and when ctx ends.
func (q *Queue[T]) Work(ctx context.Context, fn func(context.Context, *Job[T]) error, opts *WorkOptions) error {
	o, err := opts.withDefaults()
	if err = errors.Join(q.q.err, err); err == nil {
		err = inTx(ctx, q.q.db, "")
	}
	if err != nil {
		return fail("work", q.q.name, err)
	}
	c := newCrew(q.q, o)
	c.run = runTyped[T](q.q, c.chain(handler(fn)))
	return fail("work", q.q.name, c.work(ctx))
}

// jobKey carries the typed job past the middleware.
type jobKey struct{}

func handler[T any](fn func(context.Context, *Job[T]) error) WorkFunc {
	return func(ctx context.Context, _ *JobInfo) error {
		job, ok := ctx.Value(jobKey{}).(*Job[T])
		if !ok {
			return fmt.Errorf("%w: a middleware passed on a ctx of its own", ErrInvalid)
		}
		return fn(ctx, job)
	}
}

// runTyped makes the typed job, in the slot that will run it, and runs it. What does not
// decode never reaches the handler.
func runTyped[T any](q *queue, run WorkFunc) func(context.Context, *hand) error {
	return func(ctx context.Context, h *hand) error {
		job := &Job[T]{JobInfo: *h.info, q: q, claim: h.claim}
		if err := decode(h.stored, &job.Args); err != nil {
			return Reject(err)
		}
		return run(context.WithValue(ctx, jobKey{}, job), &job.JobInfo)
	}
}

// WorkTx is like [Queue.Work], but each handler runs in a write transaction of its own:
// what it writes through tx and the ack are committed together, so its effects in this
// file happen exactly once. When fn returns an error they are rolled back, and the job
// is settled as by Work.
//
// One writer works at a time: handlers run one after another, and all other writers
// wait meanwhile. No network and no waiting in fn.
func (q *Queue[T]) WorkTx(ctx context.Context, fn func(context.Context, *sql.Tx, *Job[T]) error, opts *WorkOptions) error {
	return q.Work(ctx, func(ctx context.Context, job *Job[T]) error {
		var began time.Time
		var ack *settlement
		err := q.q.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			began = time.Now()
			if err := fn(ctx, tx, job); err != nil || job.claim.settledTx.Load() {
				return err
			}
			ack = job.ack()
			ack.claim = job.claim
			err := ack.Run(ctx, tx, time.Now())
			if err == nil && ack.became == Lost {
				err = ErrClaimLost
			}
			return failID("ack job", job.ID, err)
		})
		if err == nil {
			job.claim.settled.Store(true)
			if ack != nil { // else the handler has settled the job, and that was told
				ack.observe(q.q, time.Since(began))
			}
		}
		if errors.Is(err, ErrBusy) && began.IsZero() {
			return Snooze(time.Second) // the handler has had no attempt
		}
		return err
	}, opts)
}

// steer is what a handler may return to say how its job goes on.
type steer struct {
	outcome Outcome
	delay   time.Duration
	err     error
}

func (s *steer) Error() string {
	switch {
	case s.outcome == Snoozed:
		return fmt.Sprintf("snooze for %v", s.delay)
	case s.err == nil:
		return "no reason given"
	}
	return s.err.Error()
}

func (s *steer) Unwrap() error { return s.err }

// RetryAfter, returned by a handler, lets the job run again after d instead of the
// queue's Backoff; err is kept as its LastError. A last attempt goes to the dead
// letters all the same.
func RetryAfter(d time.Duration, err error) error { return &steer{Retried, max(d, 0), err} }

// Snooze, returned by a handler, lets the job run again after d as if this attempt had
// not been.
func Snooze(d time.Duration) error { return &steer{Snoozed, max(d, 0), nil} }

// Reject, returned by a handler, sends the job to the dead letters now: it can never
// succeed.
func Reject(err error) error { return &steer{Died, 0, err} }
