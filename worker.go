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
	"github.com/honker-go/honker/internal/worker"
	"github.com/honker-go/honker/observe"
)

// WorkOptions configures a call of [Workers.Work], [Queue.Work], [Queue.WorkTx] or their WorkDue forms. Zero
// fields select the defaults. Negative values are [ErrInvalid].
type WorkOptions struct {
	Workers  int           // handlers that may run at once; default runtime.GOMAXPROCS(0), or the size of Pool up to 256
	WorkerID string        // must be unique among the running workers of the file; default host-pid-random
	Lease    time.Duration // length of a claim, rounded up to whole seconds; default 30s; renewed after each third of it
	// DrainTimeout is the time that handlers have to finish after ctx ends; default 20s. After that, their ctx
	// is cancelled and unfinished jobs are released without using up an attempt.
	DrainTimeout time.Duration
	Middleware   []Middleware // the first is the outermost; a nil Middleware is ErrInvalid
	Pool         *Pool        // limits the handlers of all loops that share it; nil means that only Workers applies
	// OnError is called after each failed attempt with the handler's error, and with ErrClaimLost for a job
	// whose claim was lost. It should return quickly, because the attempt is settled after it returns. Failures
	// are logged and reported to the Observer whether or not OnError is set.
	OnError func(ctx context.Context, job *JobInfo, err error)
}

// WorkFunc handles a job whose arguments may be of any type.
type WorkFunc func(ctx context.Context, job *JobInfo) error

// Middleware wraps the handler of each job. next decodes the payload with the DB's [Codec] and calls the
// job's handler with the ctx that it receives. The job is already claimed, and the Timeout of its queue is
// already running. Time that a Middleware spends waiting, for a semaphore for example, is lost to the
// handler. The job is settled after the outermost Middleware has returned, by the error that it returns;
// see [Queue.Work].
type Middleware func(next WorkFunc) WorkFunc

func (o *WorkOptions) withDefaults() (WorkOptions, error) {
	var out WorkOptions
	if o != nil {
		out = *o
	}
	err := errors.Join(engine.NotNegative("Lease", out.Lease), engine.NotNegative("DrainTimeout", out.DrainTimeout))
	if out.Workers < 0 {
		err = fmt.Errorf("%w: negative Workers %d", ErrInvalid, out.Workers)
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

// Work claims jobs and calls fn for each of them from several goroutines. It blocks until ctx ends and
// the running handlers have drained, and then returns nil. A nil opts means defaults. Work returns
// [ErrInvalid] immediately for a nil fn or an invalid option, and [ErrInTx] inside [DB.Tx]. It returns
// [ErrClosed] when the DB is closed and [ErrDatabaseReplaced] when its file is replaced. Other storage
// errors are logged and retried.
//
// The result of fn settles the job. nil acks it. An error schedules another attempt after the queue's
// Backoff, or dead-letters the job if its attempts are spent. [RetryAfter], [Snooze], [Reject] and
// [SlowDown] override this. If fn has already settled the job, its result changes nothing. A panic
// counts as an error that includes the stack. Delivery is at least once; see [Queue.WorkTx] for effects
// that must happen exactly once.
//
// Options.Logger receives failed attempts (Info, with the time of the next attempt), dead-lettered
// jobs (Warn), panics (Error), handlers that are still running a second after their Timeout (Warn),
// and handlers that settle their job and then return an error (Warn). The Timeout starts when the
// outermost Middleware is called.
//
// A claim lasts for Lease and is renewed while fn runs. The ctx passed to fn carries the values of
// ctx, but does not end with it. It ends DrainTimeout after ctx, and at the queue's Timeout. It is
// cancelled with cause [ErrClaimLost] if the claim is lost and with cause [ErrCancelled] if the job is
// cancelled. A handler that ignores its ctx keeps Work from returning, but does not keep its job from
// being run elsewhere.
//
// If handlers are fast, Work claims up to 256 jobs at once, and up to 512 ahead. Jobs that were claimed ahead and have
// not started are released when handlers become slow and when ctx ends. Work claims nothing ahead with a
// [Pool] and in a queue with [Limits].
func (q *Queue[T]) Work(ctx context.Context, fn func(context.Context, *Job[T]) error, opts *WorkOptions) error {
	return workersOf(q, fn).Work(ctx, opts)
}

// workersOf returns a Workers for a single queue.
func workersOf[T any](q *Queue[T], fn func(context.Context, *Job[T]) error) *Workers {
	w := &Workers{db: q.db}
	Handle(w, q, fn)
	return w
}

// working reports the start of a Work to the observer. The returned function reports its end.
func (db *DB) working(c worker.Config, queues ...string) (end func()) {
	w := observe.Working{Queues: slices.Clone(queues), Worker: c.WorkerID, Slots: c.Workers}
	db.opts.Observer.Working(w)
	return func() {
		w.Ended = true
		db.opts.Observer.Working(w)
	}
}

// WorkDue calls fn for each due job, sequentially and in the caller's goroutine, until no job is due. It
// returns the number of attempts. That number includes jobs whose payload does not decode, which are
// dead-lettered without calling fn. Jobs are claimed, handled and settled as by [Queue.Work]. The
// option Workers has no effect. With a Pool, WorkDue waits for a slot before each claim. A job that is
// retried without a delay is due again. WorkDue is meant for programs that run periodically, and for
// tests.
//
// If ctx ends, WorkDue returns an error, because more jobs may be due. It returns the first storage
// error without retrying.
func (q *Queue[T]) WorkDue(ctx context.Context, fn func(context.Context, *Job[T]) error, opts *WorkOptions) (int, error) {
	return workersOf(q, fn).WorkDue(ctx, opts)
}

// WorkDueTx is like [Queue.WorkDue], but runs each call of fn in its own write transaction, which also acks
// the job, as [Queue.WorkTx] does.
func (q *Queue[T]) WorkDueTx(ctx context.Context, fn func(context.Context, *sql.Tx, *Job[T]) error, opts *WorkOptions) (n int, err error) {
	if fn == nil {
		return q.WorkDue(ctx, nil, opts) // returns the error for a nil fn
	}
	return q.WorkDue(ctx, func(ctx context.Context, job *Job[T]) error { return job.handleTx(ctx, fn) }, opts)
}

// run decodes the payload and calls fn, within the middleware.
func (j *Job[T]) run(ctx context.Context, payload any, fn func(context.Context, *Job[T]) error, middleware []Middleware) error {
	run := func(ctx context.Context, _ *JobInfo) error {
		if err := j.decode(ctx, payload, &j.Args); err != nil {
			return err
		}
		return fn(ctx, j)
	}
	if len(middleware) == 0 {
		return run(ctx, nil)
	}
	for _, wrap := range slices.Backward(middleware) {
		run = wrap(run)
	}
	info := j.JobInfo
	info.claim = j.claim
	return run(ctx, &info)
}

// onSettled runs after the commit that settled a job of a Work.
func (q *queue) onSettled(end *worker.SettleOp, ran time.Duration) {
	q.wakeSettled(end)
	q.observeSettled(end, ran)
}

// WorkTx is like [Queue.Work], but runs each handler in its own write transaction. The handler's writes
// through tx are committed together with the ack, so its effects in this file happen exactly once. fn
// must not commit tx or roll it back. If fn returns an error, its writes are rolled back and the job is
// settled as by Work.
//
// SQLite has a single writer. Handlers therefore run one after another, and all other writers wait
// meanwhile. fn should not use the network and should not wait.
func (q *Queue[T]) WorkTx(ctx context.Context, fn func(context.Context, *sql.Tx, *Job[T]) error, opts *WorkOptions) error {
	if fn == nil {
		return q.Work(ctx, nil, opts) // returns the error for a nil fn
	}
	return q.Work(ctx, func(ctx context.Context, job *Job[T]) error { return job.handleTx(ctx, fn) }, opts)
}

// handleTx runs fn and acks the job in the same transaction, unless fn has settled the job.
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
		on, err := j.q.db.join(ctx, tx)
		if err != nil {
			return failID("ack job", j.ID, err)
		}
		ack = j.q.source.Ack(j.claim, j.q.opts.ResultTTL)
		if err := ack.Run(ctx, on, j.q.db.engine.Now()); err != nil {
			return failID("ack job", j.ID, err)
		}
		if ack.Became != worker.Acked {
			j.claim.RolledBack()
			return failID("ack job", j.ID, ErrClaimLost)
		}
		return nil
	})
	if errors.Is(err, ErrBusy) && began.IsZero() {
		return Snooze(time.Second) // the handler did not run, so the attempt is not spent
	}
	if errors.Is(err, ErrUncertain) {
		j.claim.SettledTx.Store(true) // the job may have been acked
	}
	if err != nil {
		return err
	}
	j.claim.Settled.Store(true)
	if ack != nil { // otherwise fn has settled the job, which was already observed
		j.q.wakeSettled(ack)
		j.q.observeSettled(ack, time.Since(began))
	}
	return nil
}

// RetryAfter returns an error with which a handler requests its next attempt after d, or up to a second
// later, in place of the queue's Backoff. A negative d counts as 0. err is stored as the job's LastError
// and may be nil. If the job has no attempts left, it is dead-lettered all the same.
func RetryAfter(d time.Duration, err error) error {
	return &worker.Directive{Outcome: worker.Retried, Delay: max(d, 0), Err: err}
}

// Snooze returns an error with which a handler postpones its job by d, or up to a second more, without
// using up an attempt. A negative d counts as 0. A snooze is not a failure: it is neither logged nor
// passed to OnError.
func Snooze(d time.Duration) error {
	return &worker.Directive{Outcome: worker.Snoozed, Delay: max(d, 0)}
}

// Reject returns an error with which a handler dead-letters its job immediately. Use it for a job that
// can never succeed. err is stored as the job's LastError and may be nil.
func Reject(err error) error { return &worker.Directive{Outcome: worker.Died, Err: err} }

// Backoff returns the delay between a failed attempt and the next attempt. attempt starts at 1, and
// starts at 1 again after the job is requeued by package admin. err is the handler's error. The file
// stores whole seconds, so the job may run up to a second later. A negative delay counts as 0. If a
// Backoff panics in Work, the delay is a minute. A Backoff must be safe for concurrent use.
type Backoff func(attempt int, err error) time.Duration

// Exponential returns a Backoff that doubles the delay with each attempt: base, 2·base, 4·base, up to max.
// Each delay then varies randomly by up to 20 % in either direction, also beyond max, so that jobs that
// failed together do not all come back at the same time.
func Exponential(base, max time.Duration) Backoff {
	return func(attempt int, _ error) time.Duration {
		return jitter(doubled(base, max, attempt))
	}
}

// Constant returns a Backoff that waits d after each attempt, without variation.
func Constant(d time.Duration) Backoff {
	return func(int, error) time.Duration { return d }
}

// doubled returns base·2^(attempt-1), limited to max. It does not overflow.
func doubled(base, max time.Duration, attempt int) time.Duration {
	d := base
	for i := 1; i < attempt && d > 0 && d < max; i++ {
		d += min(d, max-d)
	}
	return min(d, max)
}

// jitter returns d plus or minus up to a fifth.
func jitter(d time.Duration) time.Duration {
	fifth := d / 5
	if fifth <= 0 {
		return d
	}
	low := d - fifth
	return low + mathrand.N(min(2*fifth, math.MaxInt64-1-low)+1)
}

// SlowDown returns an error with which a handler pauses its job's [Key] for d, or up to a second longer. If the job has no
// key, it pauses the queue. The job itself runs again after the pause without using up an attempt. Use it for example for
// a 429 response with a Retry-After header.
//
// The pause is that of [Queue.Pause], and its reason is "slow down: " followed by err's text, or "slow down" for a nil
// err. It does not shorten a longer pause. [Queue.ResumeKey] or [Queue.Resume] ends it early.
func SlowDown(d time.Duration, err error) error {
	return &worker.Directive{Outcome: worker.Snoozed, Delay: max(d, 0), Err: err, SlowDown: true}
}
