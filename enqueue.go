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
	"github.com/honker-go/honker/internal/wake"
	"github.com/honker-go/honker/internal/worker"
	"github.com/honker-go/honker/observe"
)

// EnqueueOption configures an enqueue or, in [QueueOptions], every enqueue of a [Queue]. A nil option is
// [ErrInvalid].
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
	along       engine.Along
	err         error
}

// Delay makes the job wait for at least d. The file stores whole seconds, so the job can be claimed from the first
// whole second that is at least d after the enqueue. A d of 0 means no delay. A negative d is [ErrInvalid], and so
// is Delay together with RunAt.
func Delay(d time.Duration) EnqueueOption {
	return func(o *enqueueOptions) {
		o.delay, o.delayed = d, true
		o.err = errors.Join(o.err, engine.NotNegative("delay", d))
	}
}

// RunAt makes the job wait until t, rounded up to a whole second. The zero time and times in the past mean now. RunAt
// together with Delay is [ErrInvalid].
func RunAt(t time.Time) EnqueueOption {
	return func(o *enqueueOptions) { o.runAt, o.timed = t, true }
}

// Priority sets the job's priority, which may be negative. Jobs with a larger n are claimed first. The default is 0.
func Priority(n int) EnqueueOption { return func(o *enqueueOptions) { o.priority = n } }

// MaxAttempts overrides the queue's MaxAttempts for this job. An n less than 1 is [ErrInvalid].
func MaxAttempts(n int) EnqueueOption {
	return func(o *enqueueOptions) {
		o.maxAttempts = n
		if n < 1 {
			o.err = errors.Join(o.err, fmt.Errorf("%w: MaxAttempts must be positive, got %d", ErrInvalid, n))
		}
	}
}

// ExpiresIn gives the job a deadline: if no attempt has started within d of the enqueue, none will. The deadline
// may be up to a second later, because the file stores whole seconds. [DB.Maintain] and [Queue.SweepExpired] move
// expired jobs to the dead letters. A d that is not positive is [ErrInvalid].
func ExpiresIn(d time.Duration) EnqueueOption {
	return func(o *enqueueOptions) {
		o.expiresIn = d
		o.err = errors.Join(o.err, engine.Positive("ExpiresIn", d))
	}
}

// Headers attaches metadata to a job, such as a trace context or a tenant, separate from its arguments. Handlers
// and middleware read it from JobInfo.Headers, and operators can select jobs by it. Workers in other languages
// do not see headers. A job keeps its headers across attempts, when it dies and when it is requeued. A done job
// keeps them for as long as it is retained.
//
// Headers adds to the headers from [Options].Headers and from earlier Headers options of the same enqueue,
// overriding headers with the same name. EnqueueMany gives the headers to every job. An enqueue that replaces a
// job through its unique key replaces the job's headers along with its arguments. h is read when the enqueue
// begins. A nil or empty h adds nothing.
//
// A job can have at most 64 headers, with at most 8 KiB of names and values in total. More is [ErrInvalid], and
// so are an empty name and any text that contains NUL or is not valid UTF-8.
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

// headersIn returns the encoded headers of an enqueue in ctx: the DB's headers, overridden by own.
func (db *DB) headersIn(ctx context.Context, own map[string]string) (string, error) {
	if db.opts.Headers == nil {
		return engine.EncodeHeaders(own)
	}
	if err := engine.CheckContext(ctx); err != nil { // the application's function need not handle a nil ctx
		return "", err
	}
	all := maps.Clone(db.opts.Headers(ctx))
	if all == nil {
		all = own
	}
	maps.Copy(all, own)
	return engine.EncodeHeaders(all)
}

// insert returns the row.Insert described by the options, without payloads.
func (o *enqueueOptions) insert(queue string) row.Insert {
	in := row.Insert{
		Queue:       queue,
		Priority:    int64(o.priority),
		MaxAttempts: int64(o.maxAttempts),
		Delay:       o.delay,
		RunAt:       o.runAt,
		ExpiresIn:   o.expiresIn,
		Key:         o.key,
		Links:       o.links,
	}
	if o.unique != nil {
		in.Unique = &o.unique.Unique
	}
	return in
}

// later reports whether the job cannot be claimed yet.
func (o *enqueueOptions) later(now time.Time) bool { return o.delay > 0 || o.runAt.After(now) }

// Enqueue adds a job and returns its id once it is committed. With a unique key it may add nothing and return the
// id of an existing job; see [Unique]. Enqueue waits for the writer until ctx ends or BusyTimeout has passed, and
// then adds no job. Concurrent calls share commits. Ids increase in commit order.
//
// The arguments are encoded as JSON. Enqueue returns [ErrInvalid] for invalid options and for arguments that cannot
// be encoded or are larger than Options.MaxPayload, [ErrInTx] inside [DB.Tx], [ErrBusy] after BusyTimeout, and
// [ErrNotInserted] if an application's trigger drops the row.
//
// If a worker of this DB is idle and no other job is due, the job is inserted as already claimed by that worker and
// is never pending.
func (q *Queue[T]) Enqueue(ctx context.Context, args T, opts ...EnqueueOption) (int64, error) {
	id, err := q.enqueue(ctx, args, opts)
	return id, fail("enqueue", q.name, err)
}

func (q *queue) enqueue(ctx context.Context, args any, opts []EnqueueOption) (id int64, err error) {
	ctx, ended := q.startEnqueue(ctx, 1, false)
	defer func() { ended(observe.OperationEnd{First: id, Last: id, Err: err}) }()
	op, err := newEnqueueOp(ctx, q, []any{args}, opts)
	if err != nil {
		return 0, err
	}
	if err := op.commit(ctx, "EnqueueTx"); err != nil {
		return 0, err
	}
	return op.Inserted.IDs[0], nil
}

// EnqueueTx is like [Queue.Enqueue], within tx: the job exists once tx commits, and does not exist if tx rolls back.
// A worker cannot see the job before the commit, which wakes it.
func (q *Queue[T]) EnqueueTx(ctx context.Context, tx Tx, args T, opts ...EnqueueOption) (int64, error) {
	id, err := q.enqueueTx(ctx, tx, args, opts)
	return id, fail("enqueue", q.name, err)
}

func (q *queue) enqueueTx(ctx context.Context, tx Tx, args any, opts []EnqueueOption) (id int64, err error) {
	ctx, ended := q.startEnqueue(ctx, 1, true)
	defer func() { ended(observe.OperationEnd{First: id, Last: id, Err: err}) }()
	op, err := newEnqueueOp(ctx, q, []any{args}, opts)
	if err != nil {
		return 0, err
	}
	if err := op.addTo(ctx, tx); err != nil {
		return 0, err
	}
	return op.Inserted.IDs[0], nil
}

// EnqueueMany adds a job with the same options for each element of args, in a single commit: either all jobs are
// added or none. It returns their ids in the order of args. If args is empty, EnqueueMany writes nothing and returns
// no error. Otherwise it waits and fails as [Queue.Enqueue] does.
func (q *Queue[T]) EnqueueMany(ctx context.Context, args []T, opts ...EnqueueOption) ([]int64, error) {
	ids, err := enqueueMany(ctx, q.queue, args, opts, false, func(ctx context.Context, op *enqueueOp) error {
		return op.commit(ctx, "EnqueueManyTx")
	})
	return ids, fail("enqueue", q.name, err)
}

// EnqueueManyTx is like [Queue.EnqueueMany], within tx. If it fails, tx must be rolled back.
func (q *Queue[T]) EnqueueManyTx(ctx context.Context, tx Tx, args []T, opts ...EnqueueOption) ([]int64, error) {
	ids, err := enqueueMany(ctx, q.queue, args, opts, true, func(ctx context.Context, op *enqueueOp) error {
		return op.addTo(ctx, tx)
	})
	return ids, fail("enqueue", q.name, err)
}

// enqueueMany checks and encodes args and passes them to add.
func enqueueMany[T any](ctx context.Context, q *queue, args []T, opts []EnqueueOption, inTx bool, add func(context.Context, *enqueueOp) error) (ids []int64, err error) {
	if len(args) > 0 {
		var ended func(observe.OperationEnd)
		ctx, ended = q.startEnqueue(ctx, len(args), inTx)
		defer func() { ended(endOf(ids, err)) }()
	}
	op, err := newEnqueueOp(ctx, q, args, opts)
	if err != nil || len(args) == 0 {
		return nil, err
	}
	if err := add(ctx, op); err != nil {
		return nil, err
	}
	return op.Inserted.IDs, nil
}

// startEnqueue reports the start of an enqueue of n jobs to the observer.
func (q *queue) startEnqueue(ctx context.Context, n int, inTx bool) (context.Context, func(observe.OperationEnd)) {
	return q.db.opts.Observer.Begin(ctx, observe.Operation{Verb: "enqueue", Name: q.name, N: n, Tx: inTx})
}

// endOf returns the OperationEnd of an enqueue that added ids.
func endOf(ids []int64, err error) observe.OperationEnd {
	if len(ids) == 0 {
		return observe.OperationEnd{Err: err}
	}
	return observe.OperationEnd{First: slices.Min(ids), Last: slices.Max(ids), Err: err}
}

// enqueueOp is an enqueue of one or more jobs.
type enqueueOp struct {
	enqueueOptions
	worker.InsertOp
	q *queue
}

// newEnqueueOp checks the handle and the options, and encodes args.
func newEnqueueOp[T any](ctx context.Context, q *queue, args []T, opts []EnqueueOption) (*enqueueOp, error) {
	op := &enqueueOp{q: q, enqueueOptions: enqueueOptions{maxAttempts: q.opts.MaxAttempts}}
	if err := op.setAll(q.opts.Enqueue, opts); err != nil {
		return nil, err
	}
	if err := errors.Join(q.err, op.check(len(args))); err != nil {
		return nil, err
	}
	if len(args) == 0 {
		_, err := engine.EncodeHeaders(op.headers) // validates this call's headers only; the DB's function is not called
		return op, err
	}
	op.Insert, op.Along = op.insert(q.name), op.along
	var err error
	if op.Headers, err = q.db.headersIn(ctx, op.headers); err != nil {
		return nil, err
	}
	op.Payloads, err = engine.Payloads(ctx, q.db.engine, q.name, args, op.setKeys)
	return op, err
}

// setKeys derives the unique keys from the payloads, before a codec has changed them.
func (op *enqueueOp) setKeys(payloads []string) (err error) {
	if op.unique != nil {
		op.unique.Keys, err = op.unique.keysOf(payloads)
	}
	return err
}

// setAll applies the queue's default options and then the options of the call, which override them.
func (o *enqueueOptions) setAll(defaults, call []EnqueueOption) error {
	if len(defaults) == 0 {
		return o.set(call)
	}
	if err := o.set(defaults); err != nil {
		return err
	}
	d := *o
	o.delayed, o.timed, o.unique, o.links = false, false, nil, nil
	if err := o.set(call); err != nil {
		return err
	}
	if o.unique == nil {
		o.unique = d.unique
	}
	if o.links == nil {
		o.links = d.links
	}
	switch {
	case o.delayed && !o.timed, o.unique != d.unique && o.unique.wait > 0:
		o.runAt = time.Time{}
	case o.timed:
		o.delay = 0
	default:
		o.delayed, o.timed = d.delayed, d.timed
	}
	return nil
}

func (o *enqueueOptions) set(options []EnqueueOption) error {
	for _, option := range options {
		if option == nil {
			return fmt.Errorf("%w: nil option", ErrInvalid)
		}
		option(o)
	}
	return nil
}

// check returns an error for invalid options of an enqueue of n jobs, and for options that cannot be combined.
func (o *enqueueOptions) check(n int) error {
	err := o.err
	if o.delayed && o.timed {
		err = errors.Join(err, fmt.Errorf("%w: Delay cannot be combined with RunAt", ErrInvalid))
	}
	if o.unique != nil || o.placed != nil {
		err = errors.Join(err, o.checkUnique(n))
	}
	if o.links != nil {
		err = errors.Join(err, o.checkLinks(n))
	}
	return err
}

// checkEnqueueDefaults returns an error for options that cannot be the defaults of a queue.
func checkEnqueueDefaults(defaults []EnqueueOption) error {
	var o enqueueOptions
	if err := o.set(defaults); err != nil {
		return err
	}
	if o.placed != nil {
		return fmt.Errorf("%w: Placed describes a single enqueue and cannot be a default", ErrInvalid)
	}
	return o.check(1)
}

// runsAt returns when the jobs of a delayed enqueue may start.
func (op *enqueueOp) runsAt() time.Time {
	if op.Delay > 0 {
		return op.At.Add(op.Delay)
	}
	return op.RunAt
}

// commit writes the jobs in a new transaction.
func (op *enqueueOp) commit(ctx context.Context, txForm string) error {
	later := op.later(op.q.db.engine.Now())
	handed, err := op.Commit(ctx, op.q.source, txForm)
	if err != nil {
		return err
	}
	if handed < len(op.Inserted.IDs) && (!later || op.unique != nil) { // a debounced job may already be due because of its maximum delay
		op.q.db.engine.Notifier.Wake(wake.Queue(op.q.name))
	} else if later {
		op.q.db.engine.Notifier.Announce(op.runsAt(), wake.Queue(op.q.name))
	}
	op.q.db.traffic.Add(op.At, op.q.name, traffic.Counts{Enqueued: int64(op.observe(false))})
	return nil
}

// addTo writes the jobs within the caller's transaction.
func (op *enqueueOp) addTo(ctx context.Context, tx Tx) error {
	q, now, added := op.q, op.q.db.engine.Now(), 0 // count must not capture op, which would keep the payloads in memory until the commit
	count := func() { q.db.traffic.Add(now, q.name, traffic.Counts{Enqueued: int64(added)}) }
	on, seen, err := q.db.engine.JoinThen(ctx, tx, count, wake.Queue(q.name))
	if err != nil {
		return err
	}
	if op.Inserted, err = q.db.engine.Stores.Jobs.Insert(ctx, on, &op.Insert, now); err != nil {
		return err
	}
	if added = op.observe(true); !seen {
		count()
	}
	return nil
}

// observe reports the added jobs to the observer and returns how many there are.
func (op *enqueueOp) observe(inTx bool) int {
	added := op.Inserted.IDs
	if op.unique != nil || op.placed != nil {
		if added = op.tellPlaces(inTx); len(added) == 0 {
			return 0
		}
	}
	op.q.db.opts.Observer.Enqueued(observe.Enqueued{Queue: op.q.name, IDs: added, Tx: inTx})
	return len(added)
}

// Key sets the key by which jobs share limits, for example a customer, a host or an account. The limits
// themselves are set on the queue (see [Limits]). In a queue without limits the key is only stored. All jobs of
// an enqueue have the same key. A key must be 1 to 1,024 bytes of UTF-8 without NUL; otherwise Key is [ErrInvalid].
//
// A job keeps its key when it dies and is requeued. Key is independent of the key of [Unique], which
// deduplicates enqueues; a job may have both. If an enqueue finds an existing job by its unique key, the Key of
// that job does not change.
func Key(key string) EnqueueOption {
	return func(o *enqueueOptions) {
		o.key = key
		o.err = errors.Join(o.err, engine.CheckName("key", key))
	}
}
