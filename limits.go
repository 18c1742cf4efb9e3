package honker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
	"github.com/honker-go/honker/internal/worker"
)

// Key sets the key by which jobs share limits, for example a customer, a host or an account. The limits are set on the
// queue, see [Limits]; a queue without limits only stores the key. All jobs of an enqueue have the same key, of 1 to 1,024
// bytes of UTF-8.
//
// A job keeps its key when it dies and is requeued. Key is independent of the key of [Unique], which limits the jobs that
// are enqueued; a job may have both. An enqueue that finds an existing job by its unique key does not change the Key of
// that job.
func Key(key string) EnqueueOption {
	return func(o *enqueueOptions) {
		o.key = key
		o.err = errors.Join(o.err, engine.CheckName("key", key))
	}
}

// Limits are the limits of a queue. They are stored in the file and apply to all processes, handles and bindings of honker
// together. The zero value of a field means no limit.
//
// A claim skips jobs that may not start. It counts and claims in a single statement of SQLite's only writer, so a limit is
// never exceeded, and there is no semaphore that could be left behind by a crash. A job whose key is full is held
// ([PhaseHeld]) and does not slow down claims. The commit that settles a job of the key releases the next job, even if it
// comes from another binding. A job whose claim has lapsed counts as running until it is claimed again or dead.
//
// A job that is cancelled while it runs keeps its place until its handler has returned. If that cannot be known, because
// the worker has died or belongs to another binding, the job keeps its place until the end of its lease. A job that is
// cancelled by another binding gives up its place at once, since other bindings cancel and ack jobs with the same delete.
type Limits struct {
	// Running is the number of jobs of the queue that may run at a time, at most 10,000. Jobs that are claimed ahead or
	// by hand count as running.
	Running int
	// PerKey is the number of jobs with the same Key that may run at a time, at most 10,000.
	PerKey int
	// InOrder runs jobs with the same Key one at a time, in the order of their ids. A job that is delayed or waits for
	// another attempt holds up its key.
	InOrder bool
	// Rate limits the starts of jobs of the queue. Each attempt counts.
	Rate Rate
	// KeyRate limits the starts of jobs with the same Key.
	KeyRate Rate
}

// Rate limits the number of starts to N in each Per, evenly spaced, after a burst of at most Burst saved starts. The zero
// Rate means no limit.
//
// For example, five a second with a burst of 1 means a start every 200 ms. A KeyRate gives a job that comes too early its
// start time as RunAt, which the file stores in whole seconds. Rates below one start a second are therefore exact to the
// second. At higher rates, the jobs of a second start together. A job that could not start at its RunAt, because there was
// no worker or its key was full or paused, may get a new time.
type Rate struct {
	N     int           // at most 1,000,000
	Per   time.Duration // whole milliseconds
	Burst int           // 0 means 1; at most 1,000,000
}

// Upper bounds of limits. Each claim counts the running jobs, and so does each job that another binding claims.
const (
	maxAtOnce = 10_000
	maxRate   = 1_000_000
)

// row converts l to its stored form.
func (l Limits) row() (row.QueueLimits, error) {
	row := row.QueueLimits{
		Running: int64(l.Running), PerKey: int64(l.PerKey), InOrder: l.InOrder, Rate: l.Rate.row(), KeyRate: l.KeyRate.row(),
	}
	return row, errors.Join(checkAtOnce("Running", l.Running), checkAtOnce("PerKey", l.PerKey),
		l.Rate.check("Rate"), l.KeyRate.check("KeyRate"))
}

func checkAtOnce(what string, n int) error {
	if n < 0 || n > maxAtOnce {
		return fmt.Errorf("%w: %s must be between 0 and %d, got %d", ErrInvalid, what, maxAtOnce, n)
	}
	return nil
}

func (r Rate) row() row.StartRate {
	if r == (Rate{}) {
		return row.StartRate{}
	}
	return row.StartRate{N: int64(r.N), Per: r.Per, Burst: int64(max(r.Burst, 1))}
}

func (r Rate) check(what string) error {
	switch {
	case r == (Rate{}):
		return nil
	case r.N < 1 || r.N > maxRate || r.Burst < 0 || r.Burst > maxRate:
		return fmt.Errorf("%w: %s: N must be between 1 and %d, and Burst between 0 and %d, got %d and %d", ErrInvalid, what, maxRate, maxRate, r.N, r.Burst)
	case r.Per < time.Millisecond || r.Per%time.Millisecond != 0:
		return fmt.Errorf("%w: %s: Per must be a positive number of whole milliseconds, got %v", ErrInvalid, what, r.Per)
	}
	return nil
}

func limitsOf(row row.QueueLimits) Limits {
	return Limits{
		Running: int(row.Running), PerKey: int(row.PerKey), InOrder: row.InOrder, Rate: rateOf(row.Rate), KeyRate: rateOf(row.KeyRate),
	}
}

func rateOf(row row.StartRate) Rate {
	return Rate{N: int(row.N), Per: row.Per, Burst: int(row.Burst)}
}

// SetLimits replaces the limits of the queue in the file. The zero Limits removes them. Setting the current limits again
// writes nothing, so a program may call SetLimits whenever it starts.
//
// New limits apply from the next claim on. Running jobs continue. If they exceed a limit, no other job to which it applies
// starts until there is room. A Rate starts afresh when it is changed. If there is more room than before, held jobs are
// released.
//
// SetLimits returns after all jobs of the queue have been adjusted to the new limits. It adjusts them in transactions of
// some milliseconds, with pauses in which others can write. The limits apply from the first of these transactions on, and
// a job waits until it has been adjusted. If ctx ends earlier, SetLimits returns its error and the limits remain set; the
// remaining jobs are adjusted by claims on the queue, the next SetLimits or [DB.Maintain], even if the process dies.
//
// Setting the first limit of a kind in a file changes its schema, and so does removing the last. Every connection then
// has to prepare its statements again, so set limits at the start of a program or as an operator, not for each job. While
// a file contains limits on keys, each claim of any queue costs a little more.
//
// Each transaction waits for the writer until ctx ends or BusyTimeout has passed. Inside [DB.Tx], SetLimits returns
// [ErrInTx]. A limit that is negative or too large is [ErrInvalid].
func (q *Queue[T]) SetLimits(ctx context.Context, l Limits) error {
	return fail("set limits", q.name, q.setLimits(ctx, l))
}

func (q *queue) setLimits(ctx context.Context, l Limits) error {
	row, err := l.row()
	if err := errors.Join(q.err, err); err != nil {
		return err
	}
	if err := errors.Join(q.db.engine.Writable(), q.db.engine.RefuseInTx(ctx, "SetLimitsTx")); err != nil {
		return err
	}
	is, err := q.limits(ctx)
	if err != nil {
		return err
	}
	if is != row {
		if err := q.changeLimits(ctx, row); err != nil {
			return err
		}
	}
	return q.db.fitJobs(ctx, q.name)
}

// changeLimits stores the limits, which is the first transaction of SetLimits.
func (q *queue) changeLimits(ctx context.Context, row row.QueueLimits) error {
	audit := q.db.engine.AuditActor(ctx, "set limits", "queue", q.name)
	err := q.db.engine.Write(ctx, "", engine.OpFunc(func(ctx context.Context, tx engine.Querier, now time.Time) error {
		changed, err := q.db.engine.Stores.Limits.Set(ctx, tx, q.name, row)
		if err != nil || !changed {
			return err
		}
		return audit.NoteOne(ctx, tx, now)
	}))
	if err == nil {
		q.db.engine.Notifier.Wake(q.ready())
	}
	return err
}

// fitJobs adjusts the jobs of a queue to its limits, if that has not been done.
func (db *DB) fitJobs(ctx context.Context, queue string) error {
	_, err := db.engine.InChunks(ctx, db.engine.Stores.Sweeps.Fits, row.Part{Name: queue}, 0, func(row.Swept) {
		db.engine.Notifier.Wake(wake.Change{Kind: wake.QueueReady, Name: queue})
	})
	return err
}

// Limits returns the limits of the queue as stored in the file. It never waits for the writer.
func (q *Queue[T]) Limits(ctx context.Context) (Limits, error) {
	row, err := q.limits(ctx)
	return limitsOf(row), fail("read limits", q.name, err)
}

func (q *queue) limits(ctx context.Context) (row row.QueueLimits, err error) {
	if q.err != nil {
		return row, q.err
	}
	err = q.db.engine.Read(ctx, func(ctx context.Context, r engine.Querier) (err error) {
		row, err = q.db.engine.Stores.Limits.Get(ctx, r, q.name)
		return err
	})
	return row, err
}

// KeyStats describes the live jobs of a queue that share a [Key].
type KeyStats struct {
	Key       string
	Running   int64     // claimed, even if the claim has lapsed
	Cancelled int64     // cancelled while running, with handlers that may still run: each takes up a place like a running job
	Held      int64     // held until the key has room
	Waiting   int64     // all others: ready, or waiting for their time
	Oldest    time.Time // enqueue time of the oldest job that is not running; zero if all are running
	Pause     *Pause    // pause of this [PauseOptions.Key], or of a [SlowDown]; nil if the key is not paused
}

// maxKeys is the maximum number of keys returned by Keys.
const maxKeys = 1000

// Keys returns the keys of the live jobs of the queue and the paused keys, at most 1,000. Keys with the most held jobs come
// first, then keys with the most running jobs. Keys reads all jobs of the queue that have a key, and never waits for the
// writer.
func (q *Queue[T]) Keys(ctx context.Context) ([]KeyStats, error) {
	keys, err := q.keys(ctx)
	return keys, fail("list keys", q.name, err)
}

func (q *queue) keys(ctx context.Context) (keys []KeyStats, err error) {
	if q.err != nil {
		return nil, q.err
	}
	err = q.db.engine.Read(ctx, func(ctx context.Context, r engine.Querier) error {
		rows, err := q.db.engine.Stores.Jobs.Keys(ctx, r, q.name, maxKeys, time.Now())
		keys = make([]KeyStats, len(rows))
		for i, k := range rows {
			keys[i] = KeyStats{
				Key: k.Key, Running: k.Running, Cancelled: k.Cancelled, Held: k.Held, Waiting: k.Waiting, Oldest: k.Oldest, Pause: pauseOf(k.Pause),
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return keys, nil
}

// SlowDown returns an error with which a handler pauses its job's [Key] for d, or up to a second longer. If the job has no
// key, it pauses the queue. The job itself runs again after the pause without using up an attempt. Use it for example for
// a 429 response with a Retry-After header.
//
// The pause is a [Queue.Pause] with the reason "slow down: " and err. It does not shorten a longer pause. [Queue.Resume]
// ends it early.
func SlowDown(d time.Duration, err error) error {
	return &worker.Directive{Outcome: worker.Snoozed, Delay: max(d, 0), Err: err, SlowDown: true}
}

// SetLimitsTx is like [Queue.SetLimits], entirely within tx. If keys get more room or an earlier start, every job that
// waits for it is updated in tx. In a queue with many such jobs this holds the writer for a long time, so use SetLimits
// unless the limits have to change together with something else in tx.
func (q *Queue[T]) SetLimitsTx(ctx context.Context, tx Tx, l Limits) error {
	return fail("set limits", q.name, q.setLimitsTx(ctx, tx, l))
}

func (q *queue) setLimitsTx(ctx context.Context, tx Tx, l Limits) error {
	row, err := l.row()
	if err := errors.Join(q.err, err); err != nil {
		return err
	}
	changed := false
	audit := q.db.engine.AuditActor(ctx, "set limits", "queue", q.name)
	return q.db.write(ctx, within(tx), func(ctx context.Context, tx engine.Querier, now time.Time) error {
		if changed, err = q.db.engine.Stores.Limits.Set(ctx, tx, q.name, row); err != nil || !changed {
			return err
		}
		if err := q.fitWithin(ctx, tx, now); err != nil {
			return err
		}
		return audit.NoteOne(ctx, tx, now)
	}, func() {
		if changed {
			q.db.engine.Notifier.Wake(q.ready())
		}
	})
}

// fitWithin is like fitJobs, in a single transaction.
func (q *queue) fitWithin(ctx context.Context, tx engine.Querier, now time.Time) (err error) {
	for left := (row.Swept{More: true}); left.More && err == nil; {
		left, err = q.db.engine.Stores.Sweeps.Fits.Take(ctx, tx, row.Part{Name: q.name}, nil, now, math.MaxInt)
	}
	return err
}
