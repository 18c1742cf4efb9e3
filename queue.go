package honker

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/traffic"
	"github.com/honker-go/honker/internal/wake"
	"github.com/honker-go/honker/internal/worker"
)

// jobStore are the statements about jobs.
type jobStore interface {
	worker.Jobs
	InsertMany(ctx context.Context, q engine.Querier, j row.NewJob, payloads []string) ([]int64, error)
	InsertUnique(ctx context.Context, q engine.Querier, j row.NewJob, payload string, u row.Unique) (row.Placed, error)
	SetSides(ctx context.Context, q engine.Querier, queue string, s row.Side, ids []int64) error
	SetSide(ctx context.Context, q engine.Querier, queue string, s row.Side, id int64) error
	CheckLinks(ctx context.Context, q engine.Querier, queue, key string, l *row.Links) error
	AddLinks(ctx context.Context, q engine.Querier, l *row.Links, ids []int64) error
	AddWaits(ctx context.Context, q engine.Querier, l *row.Links, id int64) error
	AfterOf(ctx context.Context, q engine.Querier, id int64) ([]int64, error)
	DropWaiters(ctx context.Context, q engine.Querier, nodes []int64) ([]row.Change, error)
	CancelMany(ctx context.Context, q engine.Querier, ids []int64, running bool, now int64) ([]row.Change, error)
	ReplaceSide(ctx context.Context, q engine.Querier, was row.Job, headers string) error
	Checkpoint(ctx context.Context, q engine.Querier, c row.Claim, value string, now int64) (bool, error)
	Keys(ctx context.Context, q engine.Querier, queue string, now int64, limit int) ([]row.KeyStats, error)
	ReleaseUnique(ctx context.Context, q engine.Querier, queue, key string, now, nowMS int64) (bool, error)
	Get(ctx context.Context, q engine.Querier, queue string, id int64) (row.Job, bool, error)
	GetDead(ctx context.Context, q engine.Querier, queue string, id int64) (row.Job, bool, error)
	Find(ctx context.Context, q engine.Querier, id int64) (row.Job, bool, error)
	FindDead(ctx context.Context, q engine.Querier, id int64) (row.Job, bool, error)
	GetDone(ctx context.Context, q engine.Querier, queue string, id int64) (row.Job, bool, error)
	FindDone(ctx context.Context, q engine.Querier, id int64) (row.Job, bool, error)
	Cancel(ctx context.Context, q engine.Querier, queue string, id, now int64) (bool, error)
	AckManyAlone(ctx context.Context, q engine.Querier, queue string, ids []int64, worker string, now int64) (n int, others bool, err error)
	AckMany(ctx context.Context, q engine.Querier, queue string, ids []int64, worker string, now int64) (int, error)
	Extend(ctx context.Context, q engine.Querier, c row.Claim, expires, now int64) (bool, error)
	NextClaimAt(ctx context.Context, q engine.Querier, queue string, nowMS int64) (int64, error)

	// For Maintain.
	Queues(ctx context.Context, q engine.Querier) ([]string, error)
	Overdue(ctx context.Context, q engine.Querier, queue string, now int64) (bool, error)
	SettleOverdue(ctx context.Context, q engine.Querier, queue string, now int64) ([]row.Death, error)
	Expired(ctx context.Context, q engine.Querier, queue string, now int64, limit int) ([]int64, error)
	DeadLetterExpired(ctx context.Context, q engine.Querier, ids []int64, now int64) ([]row.Death, error)
	KeysOver(ctx context.Context, q engine.Querier, nowMS int64, limit int) ([]int64, error)
	DropKeysOver(ctx context.Context, q engine.Querier, ids []int64, nowMS int64) (int, error)
}

// defaultAttempts is how often a job may be claimed. With the default Backoff they are
// spent after half a day: an outage must not kill jobs. The SQL functions keep honker's default, 3.
const defaultAttempts = 25

// QueueOptions of a handle. They live in this process, not in the file. The zero
// value of a field means its default.
type QueueOptions struct {
	MaxAttempts int           // how often a job may be claimed; default 25, stamped on each job at enqueue
	Lease       time.Duration // how long Claim and Jobs hold a job; default 300s
	Backoff     Backoff       // delay before the next attempt in Work; default Exponential(1s, 1h)
	Timeout     time.Duration // deadline of one attempt in Work, its middleware included; 0: none
	ResultTTL   time.Duration // lifetime of results saved with the ack; default 1h; negative: for ever
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
	return out, err
}

// checkMaxAttempts checks an option of which the zero value means a default.
func checkMaxAttempts(n int) error {
	if n < 0 {
		return fmt.Errorf("%w: MaxAttempts %d", ErrInvalid, n)
	}
	return nil
}

// Queue is a durable queue of jobs. The arguments of a job are a T, stored as JSON. A
// Queue is a cheap handle: make it where you need it. Any binding of honker can enqueue to
// and work off the same queue.
type Queue[T any] struct{ *queue }

// queue is a Queue without its type.
type queue struct {
	db     *DB
	name   string
	opts   QueueOptions
	source *worker.Source // of claims
	err    error          // a bad name, option or type: returned by the first verb
}

// NewQueue returns a handle. It touches nothing; a bad name or option, or a T of
// []byte, is [ErrInvalid] from its first verb. nil opts means defaults.
func NewQueue[T any](db *DB, name string, opts *QueueOptions) *Queue[T] {
	db.mustExist("NewQueue")
	o, err := opts.withDefaults()
	err = errors.Join(err, engine.CheckName("queue name", name), engine.CheckPayloadType(reflect.TypeFor[T]()))
	return &Queue[T]{&queue{db: db, name: name, opts: o, source: db.newSource(name), err: err}}
}

func (db *DB) newSource(queue string) *worker.Source {
	return &worker.Source{Engine: db.engine, Jobs: db.jobs, Results: db.results, Handoffs: &db.handoffs, Running: &db.running, Presence: db.presence, Queue: queue}
}

// Name returns the name of the queue.
func (q *Queue[T]) Name() string { return q.name }

// DB returns the database that the handle was made with.
func (q *Queue[T]) DB() *DB { return q.db }

// Claim gives up to n jobs to worker at once, in the order priority DESC, run_at, id,
// and holds them for the queue's Lease. No job is an empty result and no error;
// it takes no write lock then. There may be more than it returns: it takes at most 1,000, and
// after 32 only what fits into about 1 MiB of payloads, since other writers wait meanwhile.
// A claim spends one of the job's attempts. A job that has spent its attempts, or has a payload
// that does not decode into T, goes to the dead letters instead. One that the [Codec] has an error
// for is tried again after the queue's Backoff.
//
// worker names the claimer and fences its settles: it must be unique among all
// workers of the file.
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

// claim reads before it takes the write lock, which an idle worker would hold up others with.
func (q *queue) claim(ctx context.Context, worker string, n int) ([]*row.Job, error) {
	if q.err != nil {
		return nil, q.err
	}
	if n <= 0 {
		return nil, fmt.Errorf("%w: claim of %d jobs", ErrInvalid, n)
	}
	if err := engine.CheckName("worker", worker); err != nil {
		return nil, err
	}
	if err := q.db.engine.UsableToWrite(ctx, ""); err != nil {
		return nil, err
	}
	ready, err := q.source.Ready(ctx)
	if err != nil || !ready {
		return nil, err
	}
	op := q.source.NewClaim(worker, n, q.opts.Lease)
	if err := q.db.engine.Write(ctx, "", op); err != nil {
		q.source.ClaimFailed(ctx, err)
		return nil, err
	}
	q.claimed(op)
	return op.Rows, nil
}

// claimed tells of a claim that is committed, and of the jobs that it has found dead.
func (q *queue) claimed(op *worker.ClaimOp) {
	d := deaths{db: q.db, queue: q.name}
	d.report(op.Dead)
	d.end()
	if len(op.Rows) > 0 {
		q.db.traffic.Add(op.Began, q.name, claims(op))
		q.db.opts.Observer.Claimed(Claimed{
			Queue: q.name, Worker: op.Worker, Jobs: len(op.Rows), Took: time.Since(op.Began), headers: headersOf(op.Rows),
		})
	}
}

// headersOf are those of the jobs that have some.
func headersOf(rows []*row.Job) (all []string) {
	for _, row := range rows {
		if row.Headers != "" {
			all = append(all, row.Headers)
		}
	}
	return all
}

// claims counts the jobs of a claim, and how long they could have begun before it.
func claims(op *worker.ClaimOp) traffic.Counts {
	c := traffic.Counts{Claimed: int64(len(op.Rows))}
	for _, row := range op.Rows {
		wait := max(0, op.Began.Sub(op.ReadyAt(row)))
		c.Wait += wait
		c.MaxWait = max(c.MaxWait, wait)
	}
	return c
}

// decodeOrSettle makes a job of a claimed row. One with a payload that does not decode
// is dead-lettered: no later attempt could succeed. After an error of the codec one may.
func (q *Queue[T]) decodeOrSettle(ctx context.Context, row *row.Job) (*Job[T], error) {
	claim := worker.ClaimOf(row)
	claim.Made = time.Now()
	job := newJob[T](q.queue, row, claim)
	cause := job.decode(ctx, row.Payload, &job.Args)
	if cause == nil {
		return job, nil
	}
	if err := job.unreadable(ctx, cause); err != nil && !errors.Is(err, ErrClaimLost) {
		// Its lease will lapse and it will be claimed again; the others must not wait for it.
		q.db.opts.Logger.Warn("honker: an undecodable job was not settled", "queue", q.name, "job", row.ID, "error", err)
	}
	return job, failID("decode job", row.ID, cause)
}

// Jobs yields jobs one by one, each claimed for worker when the loop asks for it and
// held for the queue's Lease: settle it in the body. It waits for work without polling and
// ends silently when ctx ends. Breaking off leaves nothing claimed but the job of the body.
//
// A job with a payload that does not decode into T is yielded with the error, already moved
// to the dead letters, or for an error of the [Codec] to be tried again, and without Args; the loop goes on. Any other error comes without
// a job and is the last.
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

// next waits for one job: none when another worker was faster.
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

// AckMany removes those of ids that worker holds by valid claims, whatever the
// attempt, and returns how many that were, with an error too: those that others wait for, see [After], go in
// a commit of their own. The others are left as they are.
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

// ackAlone acks those of ids that none waits for, by a statement, and tells whether there may be others.
func (q *queue) ackAlone(ctx context.Context, worker string, ids []int64) (n int, others bool, err error) {
	var at time.Time
	err = q.db.engine.Write(ctx, "AckTx", engine.SingleOp(func(ctx context.Context, tx engine.Querier, now time.Time) (err error) {
		at = now
		n, others, err = q.db.jobs.AckManyAlone(ctx, tx, q.name, ids, worker, now.Unix())
		return err
	}))
	if err != nil {
		return 0, false, err
	}
	q.countAcked(at, n)
	return n, others, nil
}

// ackAwaited acks those of ids that others wait for.
func (q *queue) ackAwaited(ctx context.Context, worker string, ids []int64) (n int, err error) {
	var at time.Time
	err = q.db.engine.Write(ctx, "AckTx", engine.OpFunc(func(ctx context.Context, tx engine.Querier, now time.Time) (err error) {
		at = now
		n, err = q.db.jobs.AckMany(ctx, tx, q.name, ids, worker, now.Unix())
		return err
	}))
	if err != nil {
		return 0, err // what it has counted was undone
	}
	q.countAcked(at, n)
	return n, nil
}

func (q *queue) countAcked(at time.Time, n int) {
	if n > 0 {
		q.db.traffic.Add(at, q.name, traffic.Counts{Acked: int64(n)})
	}
}

// Get reads a job of this queue that waits, runs, is dead, or is done and was kept: see
// [Queue.SetRetention]. [ErrNotFound]: it was done, was cancelled, or never existed.
func (q *Queue[T]) Get(ctx context.Context, id int64) (*JobInfo, error) {
	info, err := q.get(ctx, id)
	return info, fail("get", q.name, err)
}

func (q *queue) get(ctx context.Context, id int64) (*JobInfo, error) {
	if q.err != nil {
		return nil, q.err
	}
	in := func(get func(context.Context, engine.Querier, string, int64) (row.Job, bool, error)) finder {
		return func(ctx context.Context, r engine.Querier, id int64) (row.Job, bool, error) {
			return get(ctx, r, q.name, id)
		}
	}
	return q.db.findJob(ctx, id, in(q.db.jobs.Get), in(q.db.jobs.GetDead), in(q.db.jobs.GetDone))
}

// ready is what a commit brings after which a job of the queue may be claimed.
func (q *queue) ready() wake.Change { return wake.Change{Kind: wake.QueueReady, Name: q.name} }

// Cancel removes a job of this queue that waits or runs, and leaves no trace of it.
// It reports whether there was one. For jobs that wait for it, see [After], it counts as done. The ctx of a handler of Work that runs it ends, with
// [ErrCancelled] as its cause: at once in this process, after a wake in another one of this
// package, where the handler has run for a tenth of a second. The claim ends as
// [OutcomeCancelled], whatever the handler returns, and OnError is not called. In a queue with [Limits] the job keeps
// its place until then, or until its lease has ended.
func (q *Queue[T]) Cancel(ctx context.Context, id int64) (cancelled bool, err error) {
	if q.err != nil {
		return false, fail("cancel", q.name, q.err)
	}
	err = q.db.engine.Write(ctx, "CancelTx", engine.OpFunc(func(ctx context.Context, tx engine.Querier, now time.Time) (err error) {
		cancelled, err = q.db.jobs.Cancel(ctx, tx, q.name, id, now.Unix())
		return err
	}))
	if err == nil && cancelled {
		q.db.running.Cancel(q.name, id)
		q.db.engine.Notifier.Wake(decided(id))
	}
	return cancelled, fail("cancel", q.name, err)
}

// CancelTx is like [Queue.Cancel], within tx. A handler that runs the job is told when tx has
// committed, as if by another process.
func (q *Queue[T]) CancelTx(ctx context.Context, tx Tx, id int64) (bool, error) {
	if q.err != nil {
		return false, fail("cancel", q.name, q.err)
	}
	on, err := q.db.join(ctx, tx, decided(id))
	if err != nil {
		return false, fail("cancel", q.name, err)
	}
	cancelled, err := q.db.jobs.Cancel(ctx, on, q.name, id, time.Now().Unix())
	return cancelled, fail("cancel", q.name, err)
}

// SweepExpired moves jobs of this queue that were to start by a time that has passed
// to the dead letters, with the error "expired", and returns how many. It blocks until that is
// done, in transactions of some milliseconds with pauses between them, in which other
// writers get the file. An error, also the end of ctx, comes with what was moved until then.
func (q *Queue[T]) SweepExpired(ctx context.Context) (swept int, err error) {
	if q.err != nil {
		return 0, fail("sweep", q.name, q.err)
	}
	swept, err = q.db.sweepExpired(ctx, q.name)
	return swept, fail("sweep", q.name, err)
}

// NextClaimAt returns the next time at which a job of this queue can be claimed that
// cannot be now: one that waits for its time, or one with a claim that may lapse. The zero
// time means that nothing is coming. Jobs that are due already do not count. While the queue is
// paused nothing can be claimed before the end of the pause, see [Queue.Pause]; while its Rate lets no job
// start, before the next start, rounded up to a second; and while Running jobs run, before the end of a
// claim, see [Limits]. What the limits of a key do to a job is known when a claim has met the job.
func (q *Queue[T]) NextClaimAt(ctx context.Context) (next time.Time, err error) {
	if q.err != nil {
		return time.Time{}, fail("next claim", q.name, q.err)
	}
	err = q.db.engine.Read(ctx, func(ctx context.Context, r engine.Querier) error {
		unix, err := q.db.jobs.NextClaimAt(ctx, r, q.name, time.Now().UnixMilli())
		next = engine.Instant(unix)
		return err
	})
	return next, fail("next claim", q.name, err)
}
