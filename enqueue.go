package honker

import (
	"context"
	"errors"
	"fmt"
	"time"

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

// later reports a job that cannot be claimed yet.
func (e *enqueue) later() bool {
	if e.delayed {
		return e.delay > 0
	}
	return e.runAt.After(time.Now())
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
// calls share commits. Ids rise in the order of commits. Where a worker of this DB sleeps
// and no other job is due, the job is inserted as claimed by it: it is never pending.
func (q *Queue[T]) Enqueue(ctx context.Context, args T, opts ...EnqueueOption) (int64, error) {
	id, err := q.q.enqueue(ctx, args, opts)
	return id, fail("enqueue", q.q.name, err)
}

func (q *queue) enqueue(ctx context.Context, args any, opts []EnqueueOption) (int64, error) {
	b, err := newBatch(q, []any{args}, opts)
	if err == nil {
		err = b.write(ctx, "EnqueueTx")
	}
	if err != nil {
		return 0, err
	}
	return b.ids[0], nil
}

// EnqueueTx is like [Queue.Enqueue], within tx: the job exists when tx commits, and
// never did when it rolls back.
func (q *Queue[T]) EnqueueTx(ctx context.Context, tx Tx, args T, opts ...EnqueueOption) (int64, error) {
	id, err := q.q.enqueueTx(ctx, tx, args, opts)
	return id, fail("enqueue", q.q.name, err)
}

func (q *queue) enqueueTx(ctx context.Context, tx Tx, args any, opts []EnqueueOption) (int64, error) {
	b, err := newBatch(q, []any{args}, opts)
	if err == nil {
		err = b.writeTx(ctx, tx)
	}
	if err != nil {
		return 0, err
	}
	return b.ids[0], nil
}

// EnqueueMany adds a job for each of args, alike in their options, in one commit:
// all of them or none. Ids rise in the order of args. No args is no work and no
// error.
func (q *Queue[T]) EnqueueMany(ctx context.Context, args []T, opts ...EnqueueOption) ([]int64, error) {
	b, err := newBatch(q.q, args, opts)
	if err == nil && len(args) > 0 {
		err = b.write(ctx, "EnqueueManyTx")
	}
	if err != nil {
		return nil, fail("enqueue", q.q.name, err)
	}
	return b.ids, nil
}

// EnqueueManyTx is like [Queue.EnqueueMany], within tx, which has to be rolled back when
// it fails.
func (q *Queue[T]) EnqueueManyTx(ctx context.Context, tx Tx, args []T, opts ...EnqueueOption) ([]int64, error) {
	b, err := newBatch(q.q, args, opts)
	if err == nil && len(args) > 0 {
		err = b.writeTx(ctx, tx)
	}
	if err != nil {
		return nil, fail("enqueue", q.q.name, err)
	}
	return b.ids, nil
}

// batch is an enqueue, as a sqlite.Op.
type batch struct {
	enqueue
	q     *queue
	texts []string
	ids   []int64
	hands bool   // somebody waits for jobs
	taker *taker // who gets the first of them
}

func newBatch[T any](q *queue, args []T, opts []EnqueueOption) (*batch, error) {
	e, err := q.prepare(opts)
	if err != nil {
		return nil, err
	}
	b := &batch{enqueue: e, q: q, texts: make([]string, len(args))}
	for i, a := range args {
		if b.texts[i], err = encode(a, q.db.opts.MaxPayload); err != nil && len(args) > 1 {
			err = fmt.Errorf("job %d of %d: %w", i+1, len(args), err)
		}
		if err != nil {
			return nil, err
		}
	}
	return b, nil
}

// write commits b.
func (b *batch) write(ctx context.Context, twin string) error {
	b.hands = !b.later() && b.q.db.takers.any(b.q.name)
	err := b.q.db.do(ctx, twin, b)
	handed := 0
	if b.taker != nil {
		handed = b.taker.wake(err)
	}
	if err != nil {
		return err
	}
	if handed < len(b.ids) && !b.later() {
		b.q.db.hub.hint(queueWork, b.q.name)
	}
	b.observe(false)
	return nil
}

// writeTx adds b to tx.
func (b *batch) writeTx(ctx context.Context, tx Tx) error {
	tx, err := b.q.db.in(ctx, tx)
	if err == nil {
		err = b.insert(ctx, tx, b.job(b.q, time.Now()))
	}
	if err == nil {
		b.observe(true)
	}
	return err
}

// Single implements sqlite.Op. A claim needs a BEGIN: what waits for the writer in its own
// statement has its time from before.
func (b *batch) Single() bool { return len(b.texts) == 1 && !b.hands }

// Run implements sqlite.Op.
func (b *batch) Run(ctx context.Context, tx store.Querier, now time.Time) error {
	job := b.job(b.q, now)
	if err := b.handOver(ctx, tx, job, now); err != nil {
		return err
	}
	return b.insert(ctx, tx, job)
}

// handedAtOnce bounds what an enqueue writes for others, a statement each.
const handedAtOnce = 8

// handOver inserts the jobs that a worker who waits can take.
func (b *batch) handOver(ctx context.Context, tx store.Querier, job store.NewJob, now time.Time) error {
	if !b.hands || job.RunAt > now.Unix() {
		return nil
	}
	if b.taker = b.q.db.takers.call(b.q.name, now); b.taker == nil {
		return nil
	}
	for _, text := range b.texts[:min(len(b.texts), b.taker.want, handedAtOnce)] {
		id, err := b.taker.insert(ctx, tx, job, text, now)
		if err != nil || id == 0 {
			return err
		}
		b.ids = append(b.ids, id)
	}
	return nil
}

// insert adds the jobs that are left.
func (b *batch) insert(ctx context.Context, tx store.Querier, job store.NewJob) error {
	ids, err := store.Jobs{}.InsertMany(ctx, tx, job, b.texts[len(b.ids):])
	b.ids = append(b.ids, ids...)
	return err
}

func (b *batch) observe(inTx bool) {
	b.q.db.opts.Observer.enqueued(Enqueued{Queue: b.q.name, IDs: b.ids, Tx: inTx})
}
