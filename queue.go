package honker

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"time"

	"github.com/honker-go/honker/internal/store"
)

// QueueOptions of a handle. They live in this process, not in the file. The zero
// value of a field means its default.
type QueueOptions struct {
	MaxAttempts int           // how often a job may be claimed; default 3, stamped on each job at enqueue
	Visibility  time.Duration // how long Claim and Jobs hold a job; default 300s
	Backoff     Backoff       // delay before the next attempt in Work; default Exponential(1s, 1h)
	Timeout     time.Duration // deadline of one attempt in Work; 0: none
	ResultTTL   time.Duration // lifetime of results saved with the ack; default 1h; negative: for ever
}

func (o *QueueOptions) withDefaults() (QueueOptions, error) {
	var out QueueOptions
	if o != nil {
		out = *o
	}
	err := errors.Join(notNegative("Visibility", out.Visibility), notNegative("Timeout", out.Timeout))
	if out.MaxAttempts < 0 {
		err = fmt.Errorf("%w: MaxAttempts %d", ErrInvalid, out.MaxAttempts)
	}
	if out.MaxAttempts == 0 {
		out.MaxAttempts = 3
	}
	if out.Visibility == 0 {
		out.Visibility = 300 * time.Second
	}
	if out.Backoff == nil {
		out.Backoff = Exponential(time.Second, time.Hour)
	}
	if out.ResultTTL == 0 {
		out.ResultTTL = time.Hour
	}
	return out, err
}

// Queue is a durable queue of jobs whose arguments are a T, stored as JSON. It is a
// cheap handle: make it where you need it. Any binding of honker can enqueue to and
// work off the same queue.
type Queue[T any] struct{ q *queue }

// queue is a Queue without its type.
type queue struct {
	db   *DB
	name string
	opts QueueOptions
	err  error // a bad name, option or type: said by the first verb
}

// NewQueue returns a handle. It touches nothing; a bad name or option, or a T of
// []byte, is [ErrInvalid] from its first verb. nil opts means defaults.
func NewQueue[T any](db *DB, name string, opts *QueueOptions) *Queue[T] {
	o, err := opts.withDefaults()
	err = errors.Join(err, checkName("queue name", name), checkPayloadType(reflect.TypeFor[T]()))
	return &Queue[T]{&queue{db: db, name: name, opts: o, err: err}}
}

// Name returns the name of the queue.
func (q *Queue[T]) Name() string { return q.q.name }

// Claim gives up to n jobs to worker at once, in the order priority DESC, run_at, id,
// and holds them for the queue's Visibility. No job is an empty result and no error;
// it takes no write lock then. A claim spends one of the job's attempts. A job whose
// attempts are spent, or whose payload does not decode into T, goes to the dead
// letters instead.
//
// worker names the claimer and fences its settles: it must be unique among all
// workers of the file.
func (q *Queue[T]) Claim(ctx context.Context, worker string, n int) ([]*Job[T], error) {
	jobs, err := q.claim(ctx, worker, n)
	return jobs, fail("claim", q.q.name, err)
}

func (q *Queue[T]) claim(ctx context.Context, worker string, n int) ([]*Job[T], error) {
	if err := q.q.checkClaim(worker, n); err != nil {
		return nil, err
	}
	if ready, err := q.q.ready(ctx); err != nil || !ready {
		return nil, err
	}
	rows, err := q.q.claim(ctx, worker, n, q.q.opts.Visibility)
	if err != nil {
		return nil, err
	}
	return q.decodeAll(ctx, rows), nil
}

func (q *queue) checkClaim(worker string, n int) error {
	if q.err != nil {
		return q.err
	}
	if n <= 0 {
		return fmt.Errorf("%w: claim of %d jobs", ErrInvalid, n)
	}
	return checkName("worker", worker)
}

// ready reads whether a claim would do something.
func (q *queue) ready(ctx context.Context) (ready bool, err error) {
	if err := q.db.mayLook(ctx, ""); err != nil {
		return false, err
	}
	ready, err = store.Jobs{}.Ready(context.WithoutCancel(ctx), q.db.own, q.name, time.Now().Unix())
	return ready, q.db.because(err)
}

// state reads that, and when a claim will do something, as a unix second.
func (q *queue) state(ctx context.Context) (store.QueueState, error) {
	if err := q.db.mayLook(ctx, ""); err != nil {
		return store.QueueState{}, err
	}
	states, err := store.Jobs{}.States(context.WithoutCancel(ctx), q.db.own, []string{q.name}, time.Now().Unix())
	if err != nil {
		return store.QueueState{}, q.db.because(err)
	}
	return states[0], nil
}

func (q *queue) claim(ctx context.Context, worker string, n int, hold time.Duration) ([]store.Job, error) {
	c := &claiming{q: q, worker: worker, want: n, hold: hold, began: time.Now()}
	if err := q.db.do(ctx, "", c); err != nil {
		return nil, err
	}
	c.observe()
	return c.rows, nil
}

// claiming is a claim, as a sqlite.Op.
type claiming struct {
	q      *queue
	worker string
	want   int
	hold   time.Duration

	began time.Time
	rows  []store.Job
}

// Single implements sqlite.Op.
func (c *claiming) Single() bool { return false }

// Run implements sqlite.Op.
func (c *claiming) Run(ctx context.Context, tx store.Querier, now time.Time) (err error) {
	c.rows, err = store.Jobs{}.Claim(ctx, tx, c.q.name, c.worker, c.want, now.Unix(), now.Unix()+seconds(c.hold))
	return err
}

// full says that there may be more than was claimed.
func (c *claiming) full() bool { return c.want > 0 && len(c.rows) == c.want }

func (c *claiming) observe() {
	if len(c.rows) > 0 {
		c.q.db.opts.Observer.claimed(Claimed{Queue: c.q.name, Worker: c.worker, Jobs: len(c.rows), Took: time.Since(c.began)})
	}
}

// decodeAll makes jobs of rows, and dead letters of those that do not decode.
func (q *Queue[T]) decodeAll(ctx context.Context, rows []store.Job) (jobs []*Job[T]) {
	for _, row := range rows {
		job, err := newJob[T](q.q, row)
		if err == nil {
			jobs = append(jobs, job)
			continue
		}
		if err := job.Fail(ctx, err); err != nil && !errors.Is(err, ErrClaimLost) {
			// It will lapse, and be tried again; the others must not wait for that.
			q.q.db.opts.Logger.Warn("honker: an undecodable job could not be buried", "queue", q.q.name, "error", err)
		}
	}
	return jobs
}

// Jobs yields jobs one by one, each claimed for worker when the loop asks for it and
// held for the queue's Visibility: settle it in the body. It waits for work without
// polling and ends when ctx ends. An error is yielded once and is the last. Breaking
// off leaves nothing claimed but the job of the body.
func (q *Queue[T]) Jobs(ctx context.Context, worker string) iter.Seq2[*Job[T], error] {
	return func(yield func(*Job[T], error) bool) {
		for {
			jobs, err := q.next(ctx, worker)
			if ctx.Err() != nil && len(jobs) == 0 {
				return
			}
			if err != nil {
				yield(nil, fail("claim", q.q.name, err))
				return
			}
			for _, job := range jobs {
				if !yield(job, nil) {
					return
				}
			}
		}
	}
}

// next waits for one job; none when others were faster.
func (q *Queue[T]) next(ctx context.Context, worker string) ([]*Job[T], error) {
	jobs, err := q.claim(ctx, worker, 1)
	if err != nil || len(jobs) > 0 {
		return jobs, err
	}
	c := &claiming{q: q.q, worker: worker, want: 1, hold: q.q.opts.Visibility}
	_, err = q.q.await(ctx, nil, c)
	if len(c.rows) == 0 {
		return nil, err
	}
	c.observe()
	return q.decodeAll(ctx, c.rows), nil
}

// await returns true when a claim should find something to do, and false when also
// has something to say before. After a wake it does not ask again: the hub has. If c
// wants anything, an enqueue may have given it rows, whatever is returned.
func (q *queue) await(ctx context.Context, also <-chan struct{}, c *claiming) (found bool, err error) {
	s := q.db.hub.subscribe(topic{queueWork, q.name})
	defer s.leave()
	now, err := q.state(ctx) // after subscribing: a commit between is not missed
	if err != nil || now.Ready {
		return now.Ready, err
	}
	q.db.hub.expect(now.Next)
	var called <-chan struct{}
	if c.want > 0 {
		k := q.db.takers.wait(c)
		defer k.leave()
		called = k.woken
	}
	select {
	case <-also:
	case <-called:
		return c.full(), nil
	case <-s.slot:
		return true, q.db.hub.state()
	case <-ctx.Done():
		return false, ended(ctx)
	}
	return false, nil
}

// AckMany removes those of ids that worker holds by valid claims, whatever the
// attempt, and returns how many that were. The others are left as they are.
func (q *Queue[T]) AckMany(ctx context.Context, worker string, ids []int64) (int, error) {
	n, err := q.q.ackMany(ctx, worker, ids)
	return n, fail("ack", q.q.name, err)
}

func (q *queue) ackMany(ctx context.Context, worker string, ids []int64) (n int, err error) {
	if err := errors.Join(q.err, checkName("worker", worker)); err != nil || len(ids) == 0 {
		return 0, err
	}
	err = q.db.do(ctx, "AckTx", writeOne(func(ctx context.Context, tx store.Querier, now time.Time) (err error) {
		n, err = store.Jobs{}.AckMany(ctx, tx, q.name, ids, worker, now.Unix())
		return err
	}))
	return n, err
}

// Get reads a job of this queue that waits, runs or is dead. [ErrNotFound]: it was
// done, was cancelled, or never existed.
func (q *Queue[T]) Get(ctx context.Context, id int64) (*JobInfo, error) {
	info, err := q.q.get(ctx, id)
	return info, fail("get", q.q.name, err)
}

// usable checks what a read needs.
func (q *queue) usable() error {
	if q.err == nil && q.db.isClosed() {
		return ErrClosed
	}
	return q.err
}

func (q *queue) get(ctx context.Context, id int64) (*JobInfo, error) {
	if err := q.usable(); err != nil {
		return nil, err
	}
	for _, read := range []func(context.Context, store.Querier, string, int64) (store.Job, bool, error){
		store.Jobs{}.Get, store.Jobs{}.GetDead, // in the direction in which jobs move
	} {
		row, found, err := read(ctx, q.db.own, q.name, id)
		if err != nil {
			return nil, q.db.because(err)
		}
		if found {
			info := infoOf(row)
			return &info, nil
		}
	}
	return nil, fmt.Errorf("job %d: %w", id, ErrNotFound)
}

// Cancel removes a job of this queue that waits or runs, and leaves no trace of it.
// It reports whether there was one. A handler at work is not interrupted at once: its
// lease renewal or its settle finds the claim lost.
func (q *Queue[T]) Cancel(ctx context.Context, id int64) (cancelled bool, err error) {
	if q.q.err != nil {
		return false, fail("cancel", q.q.name, q.q.err)
	}
	err = q.q.db.do(ctx, "CancelTx", writeOne(func(ctx context.Context, tx store.Querier, _ time.Time) (err error) {
		cancelled, err = store.Jobs{}.Cancel(ctx, tx, q.q.name, id)
		return err
	}))
	return cancelled, fail("cancel", q.q.name, err)
}

// CancelTx is like [Queue.Cancel], within tx.
func (q *Queue[T]) CancelTx(ctx context.Context, tx Tx, id int64) (bool, error) {
	err := q.q.err
	if err == nil {
		tx, err = q.q.db.in(ctx, tx)
	}
	if err != nil {
		return false, fail("cancel", q.q.name, err)
	}
	cancelled, err := store.Jobs{}.Cancel(ctx, tx, q.q.name, id)
	return cancelled, fail("cancel", q.q.name, err)
}

// SweepExpired moves jobs of this queue that were to start by a time that has passed
// to the dead letters, with the error "expired", and returns how many.
func (q *Queue[T]) SweepExpired(ctx context.Context) (swept int, err error) {
	if q.q.err != nil {
		return 0, fail("sweep", q.q.name, q.q.err)
	}
	err = q.q.db.do(ctx, "", write(func(ctx context.Context, tx store.Querier, now time.Time) (err error) {
		swept, err = store.Jobs{}.SweepExpired(ctx, tx, q.q.name, now.Unix())
		return err
	}))
	return swept, fail("sweep", q.q.name, err)
}

// NextClaimAt returns the next time at which a job of this queue can be claimed that
// cannot be now: one that waits for its time, or one whose claim may lapse. The zero
// time means that nothing is coming. Jobs that are due already do not count.
func (q *Queue[T]) NextClaimAt(ctx context.Context) (time.Time, error) {
	if err := q.q.usable(); err != nil {
		return time.Time{}, fail("next claim", q.q.name, err)
	}
	next, err := store.Jobs{}.NextClaimAt(ctx, q.q.db.own, q.q.name, time.Now().Unix())
	return instant(next), fail("next claim", q.q.name, q.q.db.because(err))
}
