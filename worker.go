package honker

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/worker"
)

// WorkOptions of one Work. The zero value of a field means its default.
type WorkOptions struct {
	Workers      int           // handlers at once; default runtime.GOMAXPROCS(0), or with a Pool its size, but no more than 256
	WorkerID     string        // default host-pid-random; unique per running worker
	Lease        time.Duration // default 30s, renewed at a third of it by one statement for all jobs held
	DrainTimeout time.Duration // default 20s: after ctx ends, handlers finish; then their ctx is cancelled and what is unfinished is released, attempt unspent
	Middleware   []Middleware  // the first is the outermost
	Pool         *Pool         // bounds the handlers of all the Work loops that share it; default nil: Workers alone does
	// OnError is called for each attempt that failed, with the error that the handler
	// returned, and for a job that lost its claim (ErrClaimLost). It runs in the
	// worker's goroutine. The log and the Observer are told of failures without it too.
	OnError func(ctx context.Context, job *JobInfo, err error)
}

// WorkFunc handles one job, seen without its type.
type WorkFunc func(ctx context.Context, job *JobInfo) error

// Middleware wraps the handler of each job. next decodes the payload, by the DB's [Codec], and runs the
// job's own handler, with the ctx that it is given. The job is claimed by then and its queue's Timeout runs, also while the
// middleware waits for something, such as a semaphore. What next returns says how the job goes on, as what a
// handler of [Queue.Work] returns; it is settled after the outermost Middleware has returned.
type Middleware func(next WorkFunc) WorkFunc

func (o *WorkOptions) withDefaults() (WorkOptions, error) {
	var out WorkOptions
	if o != nil {
		out = *o
	}
	err := errors.Join(engine.NotNegative("Lease", out.Lease), engine.NotNegative("DrainTimeout", out.DrainTimeout))
	if out.Workers < 0 {
		err = fmt.Errorf("%w: %d workers", ErrInvalid, out.Workers)
	}
	err = errors.Join(err, out.Pool.check())
	if slices.ContainsFunc(out.Middleware, func(m Middleware) bool { return m == nil }) {
		err = errors.Join(err, fmt.Errorf("%w: nil Middleware", ErrInvalid))
	}
	if out.Workers == 0 {
		out.Workers = out.Pool.workers()
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
	return out, errors.Join(err, engine.CheckName("worker", out.WorkerID))
}

func newWorkerID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "host"
	}
	return fmt.Sprintf("%.64s-%d-%s", host, os.Getpid(), rand.Text()[:10])
}

// Work claims jobs and runs fn for each, in several goroutines, until ctx ends and the
// work is drained; then it returns nil. It returns an error at once for a nil fn or bad options,
// and later when the DB is closed or its file was replaced; other storage errors are
// logged and tried again.
//
// fn's return settles the job: nil acks it, an error lets it run again after the
// queue's Backoff or, its attempts spent, sends it to the dead letters; [RetryAfter],
// [Snooze] and [Reject] say otherwise. A job that fn has settled itself is left alone. A
// panic is an error with its stack. A job is delivered at least once: for effects that
// happen exactly once, see [Queue.WorkTx].
//
// Options.Logger is told of each failed attempt (Info, with the time of the next), of a job
// that goes to the dead letters (Warn), of a panic (Error), of a handler that goes on for a
// second after its Timeout (Warn), and of one that settles its job and then returns an error
// (Warn). The Timeout runs from the call of the outermost Middleware: one that makes jobs wait
// uses up their time.
//
// A claim lasts for Lease and is renewed while fn runs. fn's ctx carries the values of
// ctx and is cancelled, with [ErrClaimLost] as its cause, when the claim was lost; with
// [ErrCancelled], when the job was cancelled; by the queue's Timeout; and at the end of
// DrainTimeout. A handler that ignores it keeps Work from returning, not its job from being
// run elsewhere.
//
// Fast handlers are fed by claims of up to 256 jobs at once; what was claimed ahead and
// has not started is given back when handlers turn slow, and when ctx ends. With a
// [Pool] nothing is claimed ahead.
func (q *Queue[T]) Work(ctx context.Context, fn func(context.Context, *Job[T]) error, opts *WorkOptions) error {
	c, err := workConfig(ctx, q.queue, q.itself, fn, opts)
	if err != nil {
		return fail("work", q.name, err)
	}
	defer q.db.working(c, q.name)()
	return fail("work", q.name, worker.NewPool(q.source, c).Run(ctx))
}

// working tells the observer of a Work that begins, and its result of the end.
func (db *DB) working(c worker.Config, queues ...string) (end func()) {
	w := Working{Queues: queues, Worker: c.WorkerID, Slots: c.Workers}
	db.opts.Observer.Working(w)
	return func() {
		w.Ended = true
		db.opts.Observer.Working(w)
	}
}

// WorkDue runs fn for each job that is due, one after another in the caller's goroutine, until
// none is due any more. It returns the number of attempts, which includes those of jobs with a
// payload that did not decode: fn is not called for them, and they are dead. Jobs are claimed, handled
// and settled as by [Queue.Work], by the same options but Workers; with a Pool, it waits for a slot
// before each claim. A job that is retried without a delay is due again. It is for programs that
// run now and then, and for tests.
//
// The end of ctx is returned as an error: there may be more that is due. So is an error of
// storage, at the first try.
func (q *Queue[T]) WorkDue(ctx context.Context, fn func(context.Context, *Job[T]) error, opts *WorkOptions) (n int, err error) {
	c, err := workConfig(ctx, q.queue, q.itself, fn, opts)
	if err != nil {
		return 0, fail("work", q.name, err)
	}
	handle := c.Handle
	c.Due, c.Workers = true, 1
	c.Handle = func(ctx context.Context, claim *worker.Claim, row *row.Job) error {
		n++
		return handle(ctx, claim, row)
	}
	defer q.db.working(c, q.name)()
	if err = worker.NewPool(q.source, c).Run(ctx); err == nil && ctx.Err() != nil {
		err = engine.Cause(ctx)
	}
	return n, fail("work", q.name, err)
}

// WorkDueTx is [Queue.WorkDue] with a function as that of [Queue.WorkTx]: each call runs in a write transaction of its own, in
// which the job is acked.
func (q *Queue[T]) WorkDueTx(ctx context.Context, fn func(context.Context, *sql.Tx, *Job[T]) error, opts *WorkOptions) (n int, err error) {
	if fn == nil {
		return q.WorkDue(ctx, nil, opts) // refuses it
	}
	return q.WorkDue(ctx, func(ctx context.Context, job *Job[T]) error { return job.handleTx(ctx, fn) }, opts)
}

// workConfig checks what a Work is given and makes the configuration of its pool. Of several
// queues, q is one, and queueOf finds that of a job.
func workConfig[T any](ctx context.Context, q *queue, queueOf func(*row.Job) *queue, fn func(context.Context, *Job[T]) error, opts *WorkOptions) (c worker.Config, err error) {
	o, err := opts.withDefaults()
	if fn == nil {
		err = errors.Join(err, errNilFunction)
	}
	if err := errors.Join(q.err, err); err != nil {
		return c, err
	}
	if err := q.db.engine.RefuseInTx(ctx, ""); err != nil {
		return c, err
	}
	c = q.poolConfig(o)
	c.Handle = func(ctx context.Context, claim *worker.Claim, row *row.Job) error {
		job := newJob[T](queueOf(row), row, claim)
		run := func(ctx context.Context, _ *JobInfo) error {
			if err := job.decode(ctx, row.Payload, &job.Args); err != nil {
				return err
			}
			return fn(ctx, job)
		}
		if len(o.Middleware) == 0 {
			return run(ctx, nil)
		}
		for _, wrap := range slices.Backward(o.Middleware) {
			run = wrap(run)
		}
		info := job.JobInfo
		info.claim = claim
		return run(ctx, &info)
	}
	return c, nil
}

// itself is the queue of each job of a Work of one queue.
func (q *queue) itself(*row.Job) *queue { return q }

// ended is called after the commit that has settled a job of a Work.
func (q *queue) ended(end *worker.SettleOp, ran time.Duration) {
	q.wakeSettled(end)
	q.observeSettled(end, ran)
}

// poolConfig is a pool's configuration but for its handler.
func (q *queue) poolConfig(o WorkOptions) worker.Config {
	c := worker.Config{
		WorkerID:     o.WorkerID,
		Workers:      o.Workers,
		Lease:        o.Lease,
		Timeout:      q.opts.Timeout,
		DrainTimeout: o.DrainTimeout,
		ResultTTL:    q.opts.ResultTTL,
		Backoff:      q.opts.Backoff,
		Logger:       q.db.opts.Logger,
		Slots:        o.Pool.shared(),
		OnClaimed:    q.claimed,
		OnStarted:    q.started,
		OnReturned:   q.returned,
		OnSettled:    q.ended,
	}
	if o.OnError != nil {
		c.OnError = func(ctx context.Context, row *row.Job, err error) {
			info := infoOf(row, time.Now(), q.db.opts.Codec)
			o.OnError(ctx, &info, err)
		}
	}
	return c
}

// WorkTx is like [Queue.Work], but each handler runs in a write transaction of its own:
// what it writes through tx and the ack are committed together, so its effects in this
// file happen exactly once. When fn returns an error they are rolled back, and the job
// is settled as by Work.
// A nil fn is [ErrInvalid].
//
// One writer works at a time: handlers run one after another, and all other writers
// wait meanwhile. No network and no waiting in fn.
func (q *Queue[T]) WorkTx(ctx context.Context, fn func(context.Context, *sql.Tx, *Job[T]) error, opts *WorkOptions) error {
	if fn == nil {
		return q.Work(ctx, nil, opts) // refuses it
	}
	return q.Work(ctx, func(ctx context.Context, job *Job[T]) error { return job.handleTx(ctx, fn) }, opts)
}

// handleTx runs fn and acks the job in one transaction, unless fn has settled it.
func (j *Job[T]) handleTx(ctx context.Context, fn func(context.Context, *sql.Tx, *Job[T]) error) error {
	var began time.Time
	var ack *worker.SettleOp
	var settling int32
	defer func() { j.claim.Settling(-settling) }()
	err := j.q.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		began = time.Now()
		j.inTx = ctx
		defer func() { j.inTx = nil }()
		if err := fn(ctx, tx, j); err != nil || j.claim.SettledTx.Load() {
			return err
		}
		settling = 1
		j.claim.Settling(settling)
		ack = j.q.source.Ack(j.claim, j.q.opts.ResultTTL)
		if err := ack.Run(ctx, tx, time.Now()); err != nil {
			return failID("ack job", j.ID, err)
		}
		if ack.Became != worker.Acked {
			j.claim.RolledBack()
			return failID("ack job", j.ID, ErrClaimLost)
		}
		return nil
	})
	if errors.Is(err, ErrBusy) && began.IsZero() {
		return Snooze(time.Second) // the handler has had no attempt
	}
	if err != nil {
		return err
	}
	j.claim.Settled.Store(true)
	if ack != nil { // else fn has settled the job, and that was observed
		j.q.wakeSettled(ack)
		j.q.observeSettled(ack, time.Since(began))
	}
	return nil
}

// RetryAfter, returned by a handler, lets the job run again after d, or up to a second later,
// instead of after the queue's Backoff; err is kept as its LastError. A last attempt goes to
// the dead letters all the same.
func RetryAfter(d time.Duration, err error) error {
	return &worker.Directive{Outcome: worker.Retried, Delay: max(d, 0), Err: err}
}

// Snooze, returned by a handler, lets the job run again after d, or up to a second later,
// without using up an attempt.
func Snooze(d time.Duration) error {
	return &worker.Directive{Outcome: worker.Snoozed, Delay: max(d, 0)}
}

// Reject, returned by a handler, sends the job to the dead letters now: it can never
// succeed.
func Reject(err error) error { return &worker.Directive{Outcome: worker.Died, Err: err} }

// Backoff says how long a job that failed waits before its next attempt. attempt
// counts from 1, and again from 1 after a requeue by package admin; err is what the handler
// returned. The job runs again after the delay or up to a second later, since the file keeps
// whole seconds; a negative one counts as zero.
type Backoff func(attempt int, err error) time.Duration

// Exponential doubles the delay with each attempt: base, 2·base, 4·base, up to max,
// each with up to 20 % more or less, so that jobs that failed together do not come
// back together.
func Exponential(base, max time.Duration) Backoff {
	return func(attempt int, _ error) time.Duration {
		return jitter(doubled(base, max, attempt))
	}
}

// Constant waits d after each attempt.
func Constant(d time.Duration) Backoff {
	return func(int, error) time.Duration { return d }
}

// doubled is base·2^(attempt-1), at most max, without an overflow.
func doubled(base, max time.Duration, attempt int) time.Duration {
	d := base
	for i := 1; i < attempt && d > 0 && d < max; i++ {
		d += min(d, max-d)
	}
	return min(d, max)
}

// jitter is d with up to a fifth more or less.
func jitter(d time.Duration) time.Duration {
	fifth := d / 5
	if fifth <= 0 {
		return d
	}
	low := d - fifth
	return low + mathrand.N(min(2*fifth, math.MaxInt64-1-low)+1)
}
