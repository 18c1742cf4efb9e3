package honker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker/internal/sqlite"
	"github.com/honker-go/honker/internal/store"
)

// EnqueueOption says more of one enqueue.
type EnqueueOption func(*enqueue)

// enqueue is what the options of one call add up to.
type enqueue struct {
	delay       time.Duration
	delayed     bool
	runAt       time.Time
	priority    int
	maxAttempts int
	expiresIn   time.Duration
	err         error
}

// Delay makes the job wait: it can be claimed from the second that lies d, rounded
// up to seconds, after the current one. It wins over RunAt. Negative is ErrInvalid.
func Delay(d time.Duration) EnqueueOption {
	return func(e *enqueue) {
		e.delay, e.delayed = d, true
		e.err = errors.Join(e.err, notNegative("delay", d))
	}
}

// RunAt makes the job wait until t, rounded up to a whole second. A time that has
// passed, or the zero time, means now.
func RunAt(t time.Time) EnqueueOption { return func(e *enqueue) { e.runAt = t } }

// Priority lets jobs with a larger n be claimed first. The default is 0.
func Priority(n int) EnqueueOption { return func(e *enqueue) { e.priority = n } }

// MaxAttempts replaces the queue's MaxAttempts for this job. Less than 1 is
// ErrInvalid.
func MaxAttempts(n int) EnqueueOption {
	return func(e *enqueue) {
		e.maxAttempts = n
		if n < 1 {
			e.err = errors.Join(e.err, fmt.Errorf("%w: MaxAttempts %d", ErrInvalid, n))
		}
	}
}

// ExpiresIn drops the job if no attempt has started d, rounded up to seconds, after
// the enqueue: it is never claimed then, and SweepExpired moves it to the dead
// letters. d must be positive.
func ExpiresIn(d time.Duration) EnqueueOption {
	return func(e *enqueue) {
		e.expiresIn = d
		e.err = errors.Join(e.err, positive("ExpiresIn", d))
	}
}

// job turns the options into a row, at the time now.
func (e *enqueue) job(q *queue, now time.Time) store.NewJob {
	j := store.NewJob{
		Queue:       q.name,
		Priority:    int64(e.priority),
		RunAt:       now.Unix(),
		MaxAttempts: int64(e.maxAttempts),
		CreatedAt:   now.Unix(),
	}
	switch {
	case e.delayed:
		j.RunAt += seconds(e.delay)
	case e.runAt.After(now):
		j.RunAt = unixUp(e.runAt)
	}
	if e.expiresIn > 0 {
		j.ExpiresAt = now.Unix() + seconds(e.expiresIn)
	}
	return j
}

// bringing is the write o, which carries the claim of a worker that sleeps.
func (e *enqueue) bringing(q *queue, o op) sqlite.Op {
	if !e.later() {
		o.brings = q.name
	}
	return o
}

// later reports a job that cannot be claimed yet.
func (e *enqueue) later() bool {
	if e.delayed {
		return e.delay > 0
	}
	return e.runAt.After(time.Now())
}

// prepareOne checks all that an enqueue of one job is given, and encodes it.
func (q *queue) prepareOne(args any, opts []EnqueueOption) (e enqueue, text string, err error) {
	if e, err = q.prepare(opts); err == nil {
		text, err = encode(args, q.db.opts.MaxPayload)
	}
	return e, text, err
}

// prepare checks the handle and the options.
func (q *queue) prepare(opts []EnqueueOption) (enqueue, error) {
	e := enqueue{maxAttempts: q.opts.MaxAttempts}
	for _, o := range opts {
		o(&e)
	}
	return e, errors.Join(q.err, e.err)
}

// Enqueue adds a job and returns its id when it is committed. It waits for its turn
// to write until ctx ends, which withdraws it, or BusyTimeout has passed; concurrent
// calls share commits. Ids rise in the order of commits. A worker of this DB that sleeps
// has claimed the job by then: its claim is in the same commit.
func (q *Queue[T]) Enqueue(ctx context.Context, args T, opts ...EnqueueOption) (int64, error) {
	id, err := q.q.enqueue(ctx, args, opts)
	return id, fail("enqueue", q.q.name, err)
}

func (q *queue) enqueue(ctx context.Context, args any, opts []EnqueueOption) (int64, error) {
	e, text, err := q.prepareOne(args, opts)
	if err != nil {
		return 0, err
	}
	var id int64
	err = q.db.do(ctx, "EnqueueTx", e.bringing(q, writeOne(func(ctx context.Context, tx store.Querier, now time.Time) (err error) {
		id, err = store.InsertJob(ctx, tx, e.job(q, now), text)
		return err
	})))
	if err != nil {
		return 0, err
	}
	q.enqueued(&e, false, id)
	return id, nil
}

// EnqueueTx is like [Queue.Enqueue], within tx: the job exists when tx commits, and
// never did when it rolls back.
func (q *Queue[T]) EnqueueTx(ctx context.Context, tx Tx, args T, opts ...EnqueueOption) (int64, error) {
	id, err := q.q.enqueueTx(ctx, tx, args, opts)
	return id, fail("enqueue", q.q.name, err)
}

func (q *queue) enqueueTx(ctx context.Context, tx Tx, args any, opts []EnqueueOption) (int64, error) {
	e, text, err := q.prepareOne(args, opts)
	if err != nil {
		return 0, err
	}
	if tx, err = q.db.in(ctx, tx); err != nil {
		return 0, err
	}
	id, err := store.InsertJob(ctx, tx, e.job(q, time.Now()), text)
	if err != nil {
		return 0, err
	}
	q.enqueued(&e, true, id)
	return id, nil
}

// EnqueueMany adds a job for each of args, alike in their options, in one commit:
// all of them or none. Ids rise in the order of args. No args is no work and no
// error.
func (q *Queue[T]) EnqueueMany(ctx context.Context, args []T, opts ...EnqueueOption) ([]int64, error) {
	b, err := newBatch(q.q, args, opts)
	if err == nil && len(args) > 0 {
		err = q.q.db.do(ctx, "EnqueueManyTx", b.bringing(q.q, write(b.insert)))
	}
	if err != nil {
		return nil, fail("enqueue", q.q.name, err)
	}
	q.q.enqueued(&b.enqueue, false, b.ids...)
	return b.ids, nil
}

// EnqueueManyTx is like [Queue.EnqueueMany], within tx, which has to be rolled back when
// it fails.
func (q *Queue[T]) EnqueueManyTx(ctx context.Context, tx Tx, args []T, opts ...EnqueueOption) ([]int64, error) {
	b, err := newBatch(q.q, args, opts)
	if err == nil && len(args) > 0 {
		if tx, err = q.q.db.in(ctx, tx); err == nil {
			err = b.insert(ctx, tx, time.Now())
		}
	}
	if err != nil {
		return nil, fail("enqueue", q.q.name, err)
	}
	q.q.enqueued(&b.enqueue, true, b.ids...)
	return b.ids, nil
}

// batch is what EnqueueMany writes.
type batch struct {
	enqueue
	q     *queue
	texts []string
	ids   []int64
}

func newBatch[T any](q *queue, args []T, opts []EnqueueOption) (*batch, error) {
	e, err := q.prepare(opts)
	if err != nil {
		return nil, err
	}
	b := &batch{enqueue: e, q: q, texts: make([]string, len(args))}
	for i, a := range args {
		if b.texts[i], err = encode(a, q.db.opts.MaxPayload); err != nil {
			return nil, fmt.Errorf("job %d of %d: %w", i+1, len(args), err)
		}
	}
	return b, nil
}

func (b *batch) insert(ctx context.Context, tx store.Querier, now time.Time) (err error) {
	b.ids, err = store.InsertJobs(ctx, tx, b.job(b.q, now), b.texts)
	return err
}

func (q *queue) enqueued(e *enqueue, inTx bool, ids ...int64) {
	if len(ids) == 0 {
		return
	}
	if !inTx && !e.later() {
		q.db.hub.hint(queueWork, q.name)
	}
	q.db.opts.Observer.enqueued(Enqueued{Queue: q.name, IDs: ids, Tx: inTx})
}
