package honker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/traffic"
	"github.com/honker-go/honker/internal/worker"
)

// EnqueueOption configures a single enqueue.
type EnqueueOption func(*enqueueOptions)

type enqueueOptions struct {
	delay       time.Duration
	delayed     bool
	runAt       time.Time
	timed       bool
	priority    int
	maxAttempts int
	expiresIn   time.Duration
	unique      *uniqueOptions
	placed      *Placement
	key         string
	headers     map[string]string
	links       *row.Links // nil: none
	err         error
}

// Delay makes the job wait for d, and never less: it can be claimed from the first whole
// second that is not before d after the enqueue. 0 is no delay. Negative, or together with
// RunAt, is ErrInvalid.
func Delay(d time.Duration) EnqueueOption {
	return func(o *enqueueOptions) {
		o.delay, o.delayed = d, true
		o.err = errors.Join(o.err, engine.NotNegative("delay", d))
	}
}

// RunAt makes the job wait until t, rounded up to a whole second. A time that has
// passed, or the zero time, means now. Together with Delay it is ErrInvalid.
func RunAt(t time.Time) EnqueueOption {
	return func(o *enqueueOptions) { o.runAt, o.timed = t, true }
}

// Priority lets jobs with a larger n be claimed first. The default is 0.
func Priority(n int) EnqueueOption { return func(o *enqueueOptions) { o.priority = n } }

// MaxAttempts replaces the queue's MaxAttempts for this job. Less than 1 is
// ErrInvalid.
func MaxAttempts(n int) EnqueueOption {
	return func(o *enqueueOptions) {
		o.maxAttempts = n
		if n < 1 {
			o.err = errors.Join(o.err, fmt.Errorf("%w: MaxAttempts %d", ErrInvalid, n))
		}
	}
}

// ExpiresIn drops the job if no attempt has started d after the enqueue, or up to a second
// later, since the file keeps whole seconds: it is never claimed then, and [Queue.SweepExpired]
// or [DB.Maintain] moves it to the dead letters. d must be positive.
func ExpiresIn(d time.Duration) EnqueueOption {
	return func(o *enqueueOptions) {
		o.expiresIn = d
		o.err = errors.Join(o.err, engine.Positive("ExpiresIn", d))
	}
}

// Headers gives a job what is about it rather than for it: a trace context, a tenant. A handler and a
// middleware find them as JobInfo.Headers, and an operator picks jobs by them; the arguments are free of them, also for
// workers of other bindings, which do not see headers. They stay with the job through its attempts, its death,
// a requeue, and until it is done and kept no longer.
//
// They are added to those of [Options].Headers, and of an earlier Headers of the same enqueue; of two with one name
// this one counts. EnqueueMany gives them to each job. A job that an enqueue with a unique key changes gets the
// headers of that enqueue, with its arguments. h is read when the enqueue begins; nil and empty add none.
//
// All of one job are at most 64, and 8 KiB of names and values. More, or a name that is empty, or text that is not
// UTF-8 or has a NUL, is [ErrInvalid].
func Headers(h map[string]string) EnqueueOption {
	return func(o *enqueueOptions) { o.addHeaders(h) }
}

func (o *enqueueOptions) addHeaders(h map[string]string) {
	if len(h) == 0 {
		return
	}
	if o.headers == nil {
		o.headers = make(map[string]string, len(h))
	}
	maps.Copy(o.headers, h)
}

// headersIn are the headers of an enqueue in ctx, as the file has them: those of the DB, and above them
// its own.
func (db *DB) headersIn(ctx context.Context, own map[string]string) (string, error) {
	if db.opts.Headers == nil {
		return engine.EncodeHeaders(own)
	}
	if err := engine.CheckContext(ctx); err != nil { // the application's function need not bear a nil one
		return "", err
	}
	all := maps.Clone(db.opts.Headers(ctx))
	if all == nil {
		all = own
	}
	maps.Copy(all, own)
	return engine.EncodeHeaders(all)
}

// job turns the options into a row, at the time now.
func (o *enqueueOptions) job(queue string, now time.Time) row.NewJob {
	j := row.NewJob{
		Queue:       queue,
		Priority:    int64(o.priority),
		RunAt:       now.Unix(),
		MaxAttempts: int64(o.maxAttempts),
		CreatedAt:   now.Unix(),
	}
	switch {
	case o.delayed:
		j.RunAt = engine.UnixAfter(now, o.delay)
	case o.runAt.After(now):
		j.RunAt = engine.UnixUp(o.runAt)
	}
	if o.expiresIn > 0 {
		j.ExpiresAt = engine.UnixAfter(now, o.expiresIn)
	}
	return j
}

// later reports a job that cannot be claimed yet.
func (o *enqueueOptions) later() bool { return o.delay > 0 || o.runAt.After(time.Now()) }

// Enqueue adds a job and returns its id when it is committed. It waits for the writer until
// ctx ends, which withdraws it, or BusyTimeout has passed; concurrent calls share commits.
// Ids rise in the order of commits. Where a worker of this DB is idle and no other job is
// due, the job is inserted as claimed by it: it is never pending. A trigger of the
// application's that drops the job makes it [ErrNotInserted].
func (q *Queue[T]) Enqueue(ctx context.Context, args T, opts ...EnqueueOption) (int64, error) {
	id, err := q.enqueue(ctx, args, opts)
	return id, fail("enqueue", q.name, err)
}

func (q *queue) enqueue(ctx context.Context, args any, opts []EnqueueOption) (id int64, err error) {
	ctx, ended := q.began(ctx, 1, false)
	defer func() { ended(OperationEnd{id, id, err}) }()
	op, err := newEnqueueOp(ctx, q, []any{args}, opts)
	if err != nil {
		return 0, err
	}
	if err := op.commit(ctx, "EnqueueTx"); err != nil {
		return 0, err
	}
	return op.ids[0], nil
}

// EnqueueTx is like [Queue.Enqueue], within tx: the job exists when tx commits, and
// never did when it rolls back.
func (q *Queue[T]) EnqueueTx(ctx context.Context, tx Tx, args T, opts ...EnqueueOption) (int64, error) {
	id, err := q.enqueueTx(ctx, tx, args, opts)
	return id, fail("enqueue", q.name, err)
}

func (q *queue) enqueueTx(ctx context.Context, tx Tx, args any, opts []EnqueueOption) (id int64, err error) {
	ctx, ended := q.began(ctx, 1, true)
	defer func() { ended(OperationEnd{id, id, err}) }()
	op, err := newEnqueueOp(ctx, q, []any{args}, opts)
	if err != nil {
		return 0, err
	}
	if err := op.addTo(ctx, tx); err != nil {
		return 0, err
	}
	return op.ids[0], nil
}

// EnqueueMany adds a job for each of args, alike in their options, in one commit:
// all of them or none. Ids rise in the order of args. No args is no work and no
// error.
func (q *Queue[T]) EnqueueMany(ctx context.Context, args []T, opts ...EnqueueOption) ([]int64, error) {
	ids, err := enqueueMany(ctx, q.queue, args, opts, false, func(ctx context.Context, op *enqueueOp) error {
		return op.commit(ctx, "EnqueueManyTx")
	})
	return ids, fail("enqueue", q.name, err)
}

// EnqueueManyTx is like [Queue.EnqueueMany], within tx, which has to be rolled back when
// it fails.
func (q *Queue[T]) EnqueueManyTx(ctx context.Context, tx Tx, args []T, opts ...EnqueueOption) ([]int64, error) {
	ids, err := enqueueMany(ctx, q.queue, args, opts, true, func(ctx context.Context, op *enqueueOp) error {
		return op.addTo(ctx, tx)
	})
	return ids, fail("enqueue", q.name, err)
}

// enqueueMany checks and encodes args, and adds them by add.
func enqueueMany[T any](ctx context.Context, q *queue, args []T, opts []EnqueueOption, inTx bool, add func(context.Context, *enqueueOp) error) (ids []int64, err error) {
	if len(args) > 0 {
		var ended func(OperationEnd)
		ctx, ended = q.began(ctx, len(args), inTx)
		defer func() { ended(endOf(ids, err)) }()
	}
	op, err := newEnqueueOp(ctx, q, args, opts)
	if err != nil || len(args) == 0 {
		return nil, err
	}
	if err := add(ctx, op); err != nil {
		return nil, err
	}
	return op.ids, nil
}

// began tells the observer of an enqueue of n jobs.
func (q *queue) began(ctx context.Context, n int, inTx bool) (context.Context, func(OperationEnd)) {
	return q.db.opts.Observer.began(ctx, Operation{Verb: "enqueue", Name: q.name, N: n, Tx: inTx})
}

// endOf is the end of an enqueue that has added ids.
func endOf(ids []int64, err error) OperationEnd {
	if len(ids) == 0 {
		return OperationEnd{Err: err}
	}
	return OperationEnd{slices.Min(ids), slices.Max(ids), err}
}

// enqueueOp is an enqueue of one job or more, as an engine.Op.
type enqueueOp struct {
	enqueueOptions
	q        *queue
	side     row.Side
	payloads []string
	handOver bool              // a worker of this DB waits for jobs of the queue
	idle     *worker.IdleClaim // that worker's claim, once Run has taken it
	ids      []int64           // after Run
	at       time.Time         // after Run: of its transaction
	places   []row.Placed      // of jobs with a unique key, after Run
}

// newEnqueueOp checks the handle and the options, and encodes args.
func newEnqueueOp[T any](ctx context.Context, q *queue, args []T, opts []EnqueueOption) (*enqueueOp, error) {
	op := &enqueueOp{q: q, enqueueOptions: enqueueOptions{maxAttempts: q.opts.MaxAttempts}}
	for _, option := range opts {
		if option == nil {
			return nil, fmt.Errorf("%w: nil option", ErrInvalid)
		}
		option(&op.enqueueOptions)
	}
	if op.delayed && op.timed {
		op.err = errors.Join(op.err, fmt.Errorf("%w: Delay together with RunAt", ErrInvalid))
	}
	if op.unique != nil || op.placed != nil {
		op.err = errors.Join(op.err, op.checkUnique(len(args)))
	}
	if op.links != nil {
		op.err = errors.Join(op.err, op.checkLinks(len(args)))
	}
	if err := errors.Join(q.err, op.err); err != nil {
		return nil, err
	}
	op.payloads = make([]string, len(args))
	for i, a := range args {
		payload, err := q.db.encode(a)
		if err != nil && len(args) > 1 {
			return nil, fmt.Errorf("job %d of %d: %w", i+1, len(args), err)
		}
		if err != nil {
			return nil, err
		}
		op.payloads[i] = payload
	}
	var err error
	if op.unique != nil {
		if op.unique.keys, err = op.unique.keysOf(op.payloads); err != nil {
			return nil, err
		}
	}
	op.side.Key = op.key
	if len(args) == 0 {
		_, err = engine.EncodeHeaders(op.headers) // what is wrong with the call; those of the DB are not asked for
		return op, err
	}
	if op.side.Headers, err = q.db.headersIn(ctx, op.headers); err != nil {
		return nil, err
	}
	return op, op.seal(ctx)
}

// seal has the DB's codec make of the payloads what is stored. Unique keys are of the arguments, so they
// come before.
func (op *enqueueOp) seal(ctx context.Context) (err error) {
	for i, payload := range op.payloads {
		if op.payloads[i], err = op.q.db.engine.EncodeJob(ctx, op.q.name, payload); err != nil {
			return err
		}
	}
	return nil
}

// commit writes the jobs in a transaction of their own.
func (op *enqueueOp) commit(ctx context.Context, txForm string) error {
	later := op.later()
	op.handOver = !later && op.unique == nil && op.key == "" && op.links == nil && op.q.db.handoffs.Waiting(op.q.name)
	err := op.q.db.engine.Write(ctx, txForm, op)
	handed := op.idle.Fill(err)
	if err != nil {
		return err
	}
	if handed < len(op.ids) && (!later || op.unique != nil) { // one that is debounced may be due by its max
		op.q.db.engine.Notifier.Wake(op.q.ready())
	}
	op.q.db.traffic.Add(op.at, op.q.name, traffic.Counts{Enqueued: int64(op.observe(false))})
	return nil
}

// addTo writes the jobs within the caller's transaction.
func (op *enqueueOp) addTo(ctx context.Context, tx Tx) error {
	q, now, added := op.q, time.Now(), 0 // not op, which has the payloads, and would stay until the commit
	count := func() { q.db.traffic.Add(now, q.name, traffic.Counts{Enqueued: int64(added)}) }
	on, seen, err := q.db.engine.JoinThen(ctx, tx, count, q.ready())
	if err != nil {
		return err
	}
	if err := op.insert(ctx, on, op.job(q.name, now), now); err != nil {
		return err
	}
	if added = op.observe(true); !seen {
		count()
	}
	return nil
}

// Single implements engine.Op. A handoff needs a BEGIN, see [worker.IdleClaim.Insert].
func (op *enqueueOp) Single() bool {
	return len(op.payloads) == 1 && !op.handOver && op.plain()
}

// plain reports that the jobs are rows of one table, and nothing beside.
func (op *enqueueOp) plain() bool { return op.unique == nil && op.side.None() && op.links == nil }

// Run implements engine.Op.
func (op *enqueueOp) Run(ctx context.Context, tx engine.Querier, now time.Time) (err error) {
	op.at = now
	job := op.job(op.q.name, now)
	job.Headers = op.side.Headers
	if op.handOver && job.RunAt <= now.Unix() {
		op.idle = op.q.db.handoffs.Take(op.q.name, now)
	}
	if op.ids, err = op.idle.Insert(ctx, tx, job, op.payloads, now); err != nil {
		return err
	}
	return op.insert(ctx, tx, job, now)
}

// insert adds the jobs that were not handed over.
func (op *enqueueOp) insert(ctx context.Context, tx engine.Querier, job row.NewJob, now time.Time) error {
	if op.links != nil {
		if err := op.q.db.jobs.CheckLinks(ctx, tx, op.q.name, op.side.Key, op.links); err != nil {
			return err
		}
	}
	if op.unique != nil {
		return op.insertUnique(ctx, tx, job, now)
	}
	ids, err := op.q.db.jobs.InsertMany(ctx, tx, job, op.payloads[len(op.ids):])
	op.ids = append(op.ids, ids...)
	if err != nil || op.plain() {
		return err
	}
	if err := op.q.db.jobs.SetSides(ctx, tx, op.q.name, op.side, op.ids); err != nil || op.links == nil {
		return err
	}
	return op.q.db.jobs.AddLinks(ctx, tx, op.links, ids)
}

// observe tells of the jobs that were added, and returns how many they are.
func (op *enqueueOp) observe(inTx bool) int {
	added := op.ids
	if op.unique != nil || op.placed != nil {
		if added = op.tellPlaces(inTx); len(added) == 0 {
			return 0
		}
	}
	op.q.db.opts.Observer.Enqueued(Enqueued{Queue: op.q.name, IDs: added, Tx: inTx})
	return len(added)
}
