package honker

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/traffic"
	"github.com/honker-go/honker/internal/wake"
	"github.com/honker-go/honker/internal/worker"
	"github.com/honker-go/honker/observe"
)

// defaultAttempts is the default for MaxAttempts. With the default Backoff, 25 attempts last about half a day,
// so an outage does not kill jobs. The SQL functions keep honker's default of 3.
const defaultAttempts = 25

// QueueOptions configures a [Queue] handle. The options apply to the handle in this process and are not stored
// in the file. Zero fields select the defaults. Negative values are [ErrInvalid], except for ResultTTL.
type QueueOptions struct {
	MaxAttempts int           // maximum number of claims of a job; default 25; stored with each job when it is enqueued
	Lease       time.Duration // how long Claim and Jobs hold a job, rounded up to whole seconds; default 300s; not for Work
	Backoff     Backoff       // delay before the next attempt in Work; default Exponential(1s, 1h)
	Timeout     time.Duration // time limit of an attempt in Work, including its middleware; 0 means none
	ResultTTL   time.Duration // lifetime of results saved with the ack; default 1h; negative means forever

	// Enqueue holds default options, which apply before the options of each enqueue by this handle, in all its
	// forms. An option of the call overrides the same default. Delay and RunAt override each other, and so do
	// the options that set a unique key. Debounce overrides Delay and RunAt too. Headers are added to the
	// default headers. [After], [AfterBatch], [EvenIfDead] and [InBatch] override the defaults of all four
	// together. [Placed] is ErrInvalid here. Schedules and outboxes do not use the defaults.
	Enqueue []EnqueueOption
}

func (o *QueueOptions) withDefaults() (QueueOptions, error) {
	var out QueueOptions
	if o != nil {
		out = *o
	}
	err := errors.Join(engine.NotNegative("Lease", out.Lease), engine.NotNegative("Timeout", out.Timeout),
		checkMaxAttempts(out.MaxAttempts))
	if out.MaxAttempts == 0 {
		out.MaxAttempts = defaultAttempts
	}
	if out.Lease == 0 {
		out.Lease = 300 * time.Second
	}
	if out.Backoff == nil {
		out.Backoff = Exponential(time.Second, time.Hour)
	}
	if out.ResultTTL == 0 {
		out.ResultTTL = time.Hour
	}
	out.Enqueue = slices.Clone(out.Enqueue)
	if invalid := checkEnqueueDefaults(out.Enqueue); invalid != nil {
		out.Enqueue, err = nil, errors.Join(err, invalid)
	}
	return out, err
}

// checkMaxAttempts validates n. 0 stands for the default.
func checkMaxAttempts(n int) error {
	if n < 0 {
		return fmt.Errorf("%w: negative MaxAttempts %d", ErrInvalid, n)
	}
	return nil
}

// Queue is a handle for a durable queue of jobs with arguments of type T, which are stored as JSON. Handles are
// cheap, safe for concurrent use, and may be created where they are needed. Every binding of honker can enqueue to
// the queue and process its jobs. Most programs need only [Queue.Enqueue], [Queue.EnqueueTx], [Queue.Work],
// [Queue.WorkTx] and [Queue.Cancel].
type Queue[T any] struct{ *queue }

// queue is the untyped part of a Queue.
type queue struct {
	db     *DB
	name   string
	opts   QueueOptions
	source *worker.Source // makes the claims of this queue
	err    error          // invalid name, option or type, returned by the first verb
}

// NewQueue returns a handle for the queue called name. It does not access the file. A nil opts means defaults.
// NewQueue never fails, but every method returns [ErrInvalid] for an invalid option, for a T of []byte, and for a
// name that is not 1 to 1,024 bytes of UTF-8 without NUL. NewQueue panics if db is nil.
func NewQueue[T any](db *DB, name string, opts *QueueOptions) *Queue[T] {
	db.mustExist("NewQueue")
	o, err := opts.withDefaults()
	err = errors.Join(err, engine.CheckName("queue name", name), engine.CheckPayloadType(reflect.TypeFor[T]()))
	return &Queue[T]{&queue{db: db, name: name, opts: o, source: db.newSource(name), err: err}}
}

func (db *DB) newSource(queue string) *worker.Source {
	return &worker.Source{Engine: db.engine, Handoffs: &db.handoffs, Running: &db.running, Limits: &db.limited, Presence: db.presence,
		Name: queue, Queues: []string{queue}, Lanes: row.InOneOrder(queue)}
}

// Name returns the name of the queue.
func (q *Queue[T]) Name() string { return q.name }

// DB returns the database for which the handle was created.
func (q *Queue[T]) DB() *DB { return q.db }

// Claim leases up to n jobs to worker for the queue's Lease, ordered by priority DESC, run_at, id. It does not
// wait for jobs. If no job can be claimed, it returns an empty slice and no error without taking the write lock.
// Otherwise it waits for the writer until ctx ends or BusyTimeout has passed. It may return fewer jobs than are
// available: a claim takes at most 1,000 jobs and, after the first 32, no more than about 1 MiB of payloads,
// because other writers have to wait meanwhile. An n that is not positive is [ErrInvalid].
//
// A claim uses up an attempt of each job. A job that has no attempts left, or whose payload does not decode into
// T, is dead-lettered and not returned. A job for which the [Codec] returns an error is retried after the
// queue's Backoff.
//
// worker identifies the claimer and fences the settling of its jobs. It must be unique among all workers of the
// file.
func (q *Queue[T]) Claim(ctx context.Context, worker string, n int) ([]*Job[T], error) {
	rows, err := q.claim(ctx, worker, n)
	if err != nil {
		return nil, fail("claim", q.name, err)
	}
	var jobs []*Job[T]
	for _, row := range rows {
		if job, err := q.decodeOrSettle(ctx, row); err == nil {
			jobs = append(jobs, job)
		}
	}
	return jobs, nil
}

// claim reads a file before it takes the write lock, so that idle workers do not block writers. On a server, where they
// block nobody, the read would be a round trip more.
func (q *queue) claim(ctx context.Context, worker string, n int) ([]*row.Job, error) {
	if q.err != nil {
		return nil, q.err
	}
	if n <= 0 {
		return nil, fmt.Errorf("%w: the number of jobs must be positive, got %d", ErrInvalid, n)
	}
	if err := engine.CheckName("worker", worker); err != nil {
		return nil, err
	}
	if err := q.db.engine.UsableToWrite(ctx, ""); err != nil {
		return nil, err
	}
	if !q.db.engine.Stores.Single {
		ready, err := q.source.Ready(ctx)
		if err != nil || !ready {
			return nil, err
		}
	}
	op := q.source.NewClaim(worker, n, q.opts.Lease)
	if err := q.db.engine.Write(ctx, "", op); err != nil {
		q.source.ClaimFailed(ctx, err)
		return nil, err
	}
	q.claimed(op)
	return op.Rows, nil
}

// claimed reports a committed claim, including the dead jobs that it found.
func (q *queue) claimed(op *worker.ClaimOp) {
	d := deaths{db: q.db, queue: q.name}
	d.report(op.Dead)
	d.end()
	if len(op.Rows) > 0 {
		q.db.traffic.Add(op.Began, q.name, claims(op))
		q.db.opts.Observer.Claimed(observe.Claimed{
			Queue: q.name, Worker: op.Worker, Jobs: len(op.Rows), Took: max(0, q.db.engine.Now().Sub(op.Began)), RawHeaders: headersOf(op.Rows),
		})
	}
}

// headersOf returns the encoded headers of those jobs that have any.
func headersOf(rows []*row.Job) (all []string) {
	for _, row := range rows {
		if row.Headers != "" {
			all = append(all, row.Headers)
		}
	}
	return all
}

// claims returns the traffic counts of a claim: its jobs, and how long they had been ready.
func claims(op *worker.ClaimOp) traffic.Counts {
	c := traffic.Counts{Claimed: int64(len(op.Rows))}
	for _, row := range op.Rows {
		wait := max(0, op.Began.Sub(op.ReadyAt(row)))
		c.Wait += wait
		c.MaxWait = max(c.MaxWait, wait)
	}
	return c
}

// decodeOrSettle converts a claimed row to a job. It dead-letters a job whose payload does not decode, because a
// later attempt could not succeed. An error from the codec may be temporary, so that job is retried.
func (q *Queue[T]) decodeOrSettle(ctx context.Context, row *row.Job) (*Job[T], error) {
	claim := worker.ClaimOf(row)
	claim.Made = q.db.engine.Now()
	job := newJob[T](q.queue, row, claim)
	cause := job.decode(ctx, row.Payload, &job.Args)
	if cause == nil {
		return job, nil
	}
	if err := job.unreadable(ctx, cause); err != nil && !errors.Is(err, ErrClaimLost) {
		// The job can be claimed again when its lease expires. The other jobs should not wait for it.
		q.db.opts.Logger.Warn("honker: an undecodable job could not be settled", "queue", q.name, "job", row.ID, "error", err)
	}
	return job, failID("decode job", row.ID, cause)
}

// Jobs returns an iterator over the jobs of the queue. Each job is claimed for worker when the loop asks for it
// and is leased for the queue's Lease, which is not renewed. The body must settle the job, for example with
// [Job.Ack]. The iterator waits for jobs without polling and ends silently when ctx ends. After a break, only the
// current job remains claimed.
//
// A job whose payload does not decode into T is yielded without Args and with an error, and the loop
// continues. It has already been dead-lettered or, after an error of the [Codec], scheduled for
// another attempt. Any other error is yielded without a job and ends the loop.
func (q *Queue[T]) Jobs(ctx context.Context, worker string) iter.Seq2[*Job[T], error] {
	return func(yield func(*Job[T], error) bool) {
		for {
			rows, err := q.next(ctx, worker)
			if engine.Ended(ctx) && len(rows) == 0 {
				return
			}
			if err != nil {
				yield(nil, fail("claim", q.name, err))
				return
			}
			for _, row := range rows {
				if !yield(q.decodeOrSettle(ctx, row)) {
					return
				}
			}
		}
	}
}

// next waits for a job and claims it. It returns no job if another worker claimed it first.
func (q *queue) next(ctx context.Context, worker string) ([]*row.Job, error) {
	rows, err := q.claim(ctx, worker, 1)
	if err != nil || len(rows) > 0 {
		return rows, err
	}
	op := q.source.NewClaim(worker, 1, q.opts.Lease)
	_, err = q.source.Await(ctx, op, nil)
	if len(op.Rows) == 0 {
		return nil, err
	}
	q.claimed(op)
	return op.Rows, nil
}

// AckMany acks the jobs in ids for which worker holds valid claims, regardless of their attempts, and ignores
// all other ids. It returns the number of acked jobs, even together with an error, because jobs that other jobs
// wait for (see [After]) are acked in a separate commit.
func (q *Queue[T]) AckMany(ctx context.Context, worker string, ids []int64) (n int, err error) {
	if err := errors.Join(q.err, engine.CheckName("worker", worker)); err != nil {
		return 0, fail("ack", q.name, err)
	}
	if len(ids) == 0 {
		return 0, nil
	}
	n, others, err := q.ackAlone(ctx, worker, ids)
	if err == nil && others {
		var more int
		more, err = q.ackAwaited(ctx, worker, ids)
		n += more
	}
	return n, fail("ack", q.name, err)
}

// ackAlone acks the jobs in ids that no other job waits for, in a single statement. It reports whether some ids
// may remain.
func (q *queue) ackAlone(ctx context.Context, worker string, ids []int64) (n int, others bool, err error) {
	var at time.Time
	err = q.db.engine.Write(ctx, "AckTx", engine.SingleOp(func(ctx context.Context, tx engine.Querier, now time.Time) (err error) {
		at = now
		n, others, err = q.db.engine.Stores.Jobs.AckMany(ctx, tx, row.AckMany{Queue: q.name, Worker: worker, IDs: ids, Alone: true}, now)
		return err
	}))
	if err != nil {
		return 0, false, err
	}
	q.countAcked(at, n)
	return n, others, nil
}

// ackAwaited acks the jobs in ids that other jobs wait for.
func (q *queue) ackAwaited(ctx context.Context, worker string, ids []int64) (n int, err error) {
	var at time.Time
	err = q.db.engine.Write(ctx, "AckTx", engine.OpFunc(func(ctx context.Context, tx engine.Querier, now time.Time) (err error) {
		at = now
		n, _, err = q.db.engine.Stores.Jobs.AckMany(ctx, tx, row.AckMany{Queue: q.name, Worker: worker, IDs: ids}, now)
		return err
	}))
	if err != nil {
		return 0, err // the transaction was rolled back, including the acks counted in n
	}
	q.countAcked(at, n)
	return n, nil
}

func (q *queue) countAcked(at time.Time, n int) {
	if n > 0 {
		q.db.traffic.Add(at, q.name, traffic.Counts{Acked: int64(n)})
	}
}

// Get returns the job with the given id if it belongs to this queue and is waiting, running, dead, or done and
// retained (see [Queue.SetRetention]). It returns [ErrNotFound] if the job was done and not retained, was
// cancelled, or never existed. Get never waits for the writer.
func (q *Queue[T]) Get(ctx context.Context, id int64) (*JobInfo, error) {
	info, err := q.get(ctx, id)
	return info, fail("get job of queue", q.name, err)
}

func (q *queue) get(ctx context.Context, id int64) (*JobInfo, error) {
	if q.err != nil {
		return nil, q.err
	}
	return q.db.findJob(ctx, id, q.name)
}

// Cancel removes a waiting or running job from this queue without a trace and reports whether there was such a
// job. Done and dead jobs are not changed. Jobs that wait for the removed job (see [After]) treat it as done.
// Cancel waits for the writer until ctx ends or BusyTimeout has passed.
//
// If a handler of Work is running the job, its ctx is cancelled with cause [ErrCancelled]. In this process this
// happens immediately. In another process that uses this package it happens after a wake, once the handler has
// been running for a tenth of a second. The claim ends with [OutcomeCancelled] regardless of the handler's
// return value, and OnError is not called. In a queue with [Limits] the job keeps its slot until the claim or
// its lease has ended.
func (q *Queue[T]) Cancel(ctx context.Context, id int64) (cancelled bool, err error) {
	if q.err != nil {
		return false, fail("cancel", q.name, q.err)
	}
	err = q.db.engine.Write(ctx, "CancelTx", engine.OpFunc(func(ctx context.Context, tx engine.Querier, now time.Time) (err error) {
		cancelled, err = q.db.engine.Stores.Jobs.Cancel(ctx, tx, q.name, id, now)
		return err
	}))
	if err == nil && cancelled {
		q.db.running.Cancel(q.name, id)
		q.db.engine.Notifier.Wake(wake.Job(id))
	}
	return cancelled, fail("cancel", q.name, err)
}

// CancelTx is like [Queue.Cancel], within tx. If a handler is running the job, its ctx is cancelled after tx has
// committed, in the same way as after a cancel in another process.
func (q *Queue[T]) CancelTx(ctx context.Context, tx Tx, id int64) (bool, error) {
	if q.err != nil {
		return false, fail("cancel", q.name, q.err)
	}
	on, err := q.db.join(ctx, tx, wake.Job(id))
	if err != nil {
		return false, fail("cancel", q.name, err)
	}
	cancelled, err := q.db.engine.Stores.Jobs.Cancel(ctx, on, q.name, id, q.db.engine.Now())
	return cancelled, fail("cancel", q.name, err)
}

// SweepExpired dead-letters the jobs of this queue whose start deadline has passed, with the error "expired",
// and returns their number. It blocks until all are moved. It works in transactions of a few milliseconds, with
// pauses in which other writers can proceed. On an error, or if ctx ends, it returns the number of jobs moved so
// far together with the error.
func (q *Queue[T]) SweepExpired(ctx context.Context) (swept int, err error) {
	if q.err != nil {
		return 0, fail("sweep", q.name, q.err)
	}
	swept, err = q.db.sweepPart(ctx, q.db.engine.Stores.Sweeps.Expired, row.Part{Name: q.name}, 0)
	return swept, fail("sweep", q.name, err)
}

// NextClaimAt returns the earliest time at which a job that cannot be claimed now becomes claimable, either
// because its start time comes or because the lease of its claim may expire. It returns the zero time if there
// is no such job. Jobs that are already due are not considered.
//
// While the queue is paused (see [Queue.Pause]), the result is no earlier than the end of the pause. While the
// Rate in its [Limits] is exhausted, it is no earlier than the next allowed start, rounded up to a second. While
// the limit Running is reached, it is no earlier than the end of a claim. The limits of a key affect a job only
// after a claim has encountered it.
func (q *Queue[T]) NextClaimAt(ctx context.Context) (next time.Time, err error) {
	if q.err != nil {
		return time.Time{}, fail("find next claim", q.name, q.err)
	}
	err = q.db.engine.Read(ctx, func(ctx context.Context, r engine.Querier) (err error) {
		next, err = q.db.engine.Stores.Jobs.NextClaim(ctx, r, q.name, q.db.engine.Now())
		return err
	})
	return next, fail("find next claim", q.name, err)
}
