package honker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
	"github.com/honker-go/honker/internal/worker"
)

// limitStore are the statements about limits.
type limitStore interface {
	engine.LimitStore
	Get(ctx context.Context, q engine.Querier, queue string) (row.QueueLimits, error)
	Set(ctx context.Context, q engine.Querier, queue string, l row.QueueLimits) (changed bool, err error)
	Fitting(ctx context.Context, q engine.Querier) ([]string, error)
	FitSome(ctx context.Context, q engine.Querier, queue string, n int, now int64) (more bool, err error)
}

// Key says what the job shares a limit by: a customer, a host, an account. See [Limits] for the limits,
// which are the queue's; without any the key is only kept. The jobs of one enqueue have one key. It
// has 1 to 1,024 bytes of UTF-8.
//
// A job keeps its key when it dies and is requeued. It is another thing than the key of [Unique],
// which bounds what is enqueued; a job may have both. An enqueue that finds a job by its unique key
// leaves that one's Key as it is.
func Key(key string) EnqueueOption {
	return func(o *enqueueOptions) {
		o.key = key
		o.err = errors.Join(o.err, engine.CheckName("key", key))
	}
}

// Limits of a queue. They are kept in the file and hold for all processes, handles and bindings of
// honker together. The zero value of a field is no bound.
//
// A claim passes over what may not start: it counts and claims in one statement of SQLite's one
// writer, so a limit is never exceeded, and there is no semaphore that a crash could leave behind. A job
// of a key that is full is held, [PhaseHeld], and out of the way of claims; the commit that
// settles a job of the key lets the next one go, also one by another binding. A job with a claim that
// has lapsed counts as running until it is claimed again or is dead.
//
// A job that is cancelled while it runs keeps its place until its handler has returned, or until its lease has ended where
// that is not known: in a worker that has died, or of another binding. Another binding cancels a job as it acks one, by a delete,
// so a job that such a program cancels gives up its place at once.
type Limits struct {
	Running int  // jobs of the queue that run at a time, claimed ahead or by hand included; at most 10,000
	PerKey  int  // jobs of one Key that run at a time; at most 10,000
	InOrder bool // jobs of one Key run one at a time in the order of their ids: one that waits for its time, or for another attempt, holds up its key
	Rate    Rate // starts of jobs of the queue; each attempt is one
	KeyRate Rate // starts of jobs of one Key
}

// Rate is how many jobs may start in a time: N in each Per, evenly, after at most Burst at once that
// were saved up. The zero Rate is no bound.
//
// Five a second with a burst of 1 are one each 200 ms. A KeyRate gives a job that comes too early its start as
// RunAt, which the file keeps in whole seconds: below one start a second it is exact to the second, and
// above it, those of a second start together. One that could not start then, because no worker was there or its
// key was full or paused, may get another time.
type Rate struct {
	N     int           // at most 1,000,000
	Per   time.Duration // whole milliseconds
	Burst int           // 0 means 1; at most 1,000,000
}

// Bounds of limits: the jobs that run are counted by each claim, and for each job that other bindings claim.
const (
	maxAtOnce = 10_000
	maxRate   = 1_000_000
)

// row is what is stored.
func (l Limits) row() (row.QueueLimits, error) {
	row := row.QueueLimits{
		Running: int64(l.Running), PerKey: int64(l.PerKey), InOrder: l.InOrder, Rate: l.Rate.row(), KeyRate: l.KeyRate.row(),
	}
	return row, errors.Join(checkAtOnce("Running", l.Running), checkAtOnce("PerKey", l.PerKey),
		l.Rate.check("Rate"), l.KeyRate.check("KeyRate"))
}

func checkAtOnce(what string, n int) error {
	if n < 0 || n > maxAtOnce {
		return fmt.Errorf("%w: %s of %d jobs at a time", ErrInvalid, what, n)
	}
	return nil
}

func (r Rate) row() row.StartRate {
	if r == (Rate{}) {
		return row.StartRate{}
	}
	return row.StartRate{N: int64(r.N), PerMS: r.Per.Milliseconds(), Burst: int64(max(r.Burst, 1))}
}

func (r Rate) check(what string) error {
	switch {
	case r == (Rate{}):
		return nil
	case r.N < 1 || r.N > maxRate || r.Burst < 0 || r.Burst > maxRate:
		return fmt.Errorf("%w: %s of %d starts, %d at once", ErrInvalid, what, r.N, r.Burst)
	case r.Per < time.Millisecond || r.Per%time.Millisecond != 0:
		return fmt.Errorf("%w: %s per %v, which is not whole milliseconds", ErrInvalid, what, r.Per)
	}
	return nil
}

func limitsOf(row row.QueueLimits) Limits {
	return Limits{
		Running: int(row.Running), PerKey: int(row.PerKey), InOrder: row.InOrder, Rate: rateOf(row.Rate), KeyRate: rateOf(row.KeyRate),
	}
}

func rateOf(row row.StartRate) Rate {
	return Rate{N: int(row.N), Per: engine.Milliseconds(row.PerMS), Burst: int(row.Burst)}
}

// SetLimits replaces the limits of the queue, in the file: the zero Limits removes them. Those that are set
// already write nothing, so a program may set them at each start.
//
// They hold from the next claim on. What runs goes on: where that is more than a limit allows, no
// other starts. A rate that changes begins anew. Where there is more room than before, held jobs go.
//
// SetLimits returns when the jobs of the queue have been fitted to the new limits. That takes transactions of some
// milliseconds with pauses between them, in which other writers get the file; the limits hold from the first one on, and a
// job that was not fitted yet waits. When ctx ends before, SetLimits returns its error, and the limits stay: claims on the queue, the
// next SetLimits and [DB.Maintain] do the rest, also after the death of the process.
//
// The first limit of a kind in a file and the end of the last change its schema, after which every
// connection prepares its statements anew: limits are for operators and for the start of programs.
// While there are limits on keys in a file, each claim of any queue costs a little more.
//
// Each transaction waits for the writer until ctx ends or BusyTimeout has passed. Inside [DB.Tx] it is [ErrInTx]. A
// limit that is negative or too large is [ErrInvalid].
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

// changeLimits is what of SetLimits is one transaction.
func (q *queue) changeLimits(ctx context.Context, row row.QueueLimits) error {
	audit := engine.AuditActor(ctx, "set limits", "queue", q.name)
	err := q.db.engine.Write(ctx, "", engine.OpFunc(func(ctx context.Context, tx engine.Querier, now time.Time) error {
		changed, err := q.db.limits.Set(ctx, tx, q.name, row)
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

// fitting returns the queues with jobs that are to be fitted to limits that have changed.
func (db *DB) fitting(ctx context.Context) (queues []string, err error) {
	err = db.engine.Read(ctx, func(ctx context.Context, r engine.Querier) (err error) {
		queues, err = db.limits.Fitting(ctx, r)
		return err
	})
	return queues, err
}

// fitJobs fits the jobs of a queue to its limits, if they are not.
func (db *DB) fitJobs(ctx context.Context, queue string) error {
	if queues, err := db.fitting(ctx); err != nil || !slices.Contains(queues, queue) {
		return err
	}
	for p := db.engine.NewPace(); ; {
		more := false
		err := p.Write(ctx, func(ctx context.Context, tx engine.Querier, now time.Time) (err error) {
			more, err = db.limits.FitSome(ctx, tx, queue, p.Size, now.Unix())
			return err
		})
		if err != nil {
			return err
		}
		db.engine.Notifier.Wake(wake.Change{Kind: wake.QueueReady, Name: queue})
		if !more {
			return nil
		}
		if err := p.Rest(ctx); err != nil {
			return err
		}
	}
}

// fitAll does what processes have left undone that have died.
func (db *DB) fitAll(ctx context.Context) error {
	queues, err := db.fitting(ctx)
	for _, queue := range queues {
		err = errors.Join(err, db.fitJobs(ctx, queue))
	}
	return err
}

// Limits returns the limits of the queue, as they are in the file. It never waits for the writer.
func (q *Queue[T]) Limits(ctx context.Context) (Limits, error) {
	row, err := q.limits(ctx)
	return limitsOf(row), fail("limits", q.name, err)
}

func (q *queue) limits(ctx context.Context) (row row.QueueLimits, err error) {
	if q.err != nil {
		return row, q.err
	}
	err = q.db.engine.Read(ctx, func(ctx context.Context, r engine.Querier) (err error) {
		row, err = q.db.limits.Get(ctx, r, q.name)
		return err
	})
	return row, err
}

// KeyStats is what lies in a queue of one [Key].
type KeyStats struct {
	Key       string
	Running   int64     // claimed, also by a claim that has lapsed
	Cancelled int64     // cancelled while they ran, and their handlers may still: each takes a place as one that runs
	Held      int64     // held until the key has room
	Waiting   int64     // the others: ready, or waiting for their time
	Oldest    time.Time // when the oldest was enqueued that does not run; zero: all run
	Pause     *Pause    // with that [PauseOptions.Key], or of a [SlowDown]; nil: the key is not paused
}

// maxKeys bounds what Keys returns.
const maxKeys = 1000

// Keys returns the keys of the live jobs of the queue, and those that are paused, the ones with the most held
// jobs first, then those with the most that run; at most 1,000. It reads all jobs of the queue that have a key, and never waits
// for the writer.
func (q *Queue[T]) Keys(ctx context.Context) ([]KeyStats, error) {
	keys, err := q.keys(ctx)
	return keys, fail("keys", q.name, err)
}

func (q *queue) keys(ctx context.Context) (keys []KeyStats, err error) {
	if q.err != nil {
		return nil, q.err
	}
	err = q.db.engine.Read(ctx, func(ctx context.Context, r engine.Querier) error {
		rows, err := q.db.jobs.Keys(ctx, r, q.name, time.Now().Unix(), maxKeys)
		keys = make([]KeyStats, len(rows))
		for i, k := range rows {
			keys[i] = KeyStats{
				Key: k.Key, Running: k.Running, Cancelled: k.Cancelled, Held: k.Held, Waiting: k.Waiting, Oldest: engine.Instant(k.Oldest), Pause: pauseOf(k.Pause),
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return keys, nil
}

// SlowDown, returned by a handler, starts nothing more of the job's [Key] for d, or up to a second
// longer; of the queue, if the job has none. The job itself runs again after that, its attempt unspent. It is
// for an answer such as 429 with its Retry-After.
//
// It is a pause, see [Queue.Pause], with the reason "slow down: " and err. One that lasts
// longer stays as it is. [Queue.Resume] ends it early.
func SlowDown(d time.Duration, err error) error {
	return &worker.Directive{Outcome: worker.Snoozed, Delay: max(d, 0), Err: err, SlowDown: true}
}

// SetLimitsTx is like [Queue.SetLimits], within tx, and all of it: where keys get more room, or their
// rate another start, each job that waits for that is changed in tx. Of a queue with many such jobs that
// holds the writer for long, so use SetLimits unless the limits must change with something else in tx.
func (q *Queue[T]) SetLimitsTx(ctx context.Context, tx Tx, l Limits) error {
	return fail("set limits", q.name, q.setLimitsTx(ctx, tx, l))
}

func (q *queue) setLimitsTx(ctx context.Context, tx Tx, l Limits) error {
	row, err := l.row()
	if err := errors.Join(q.err, err); err != nil {
		return err
	}
	changed := false
	audit := engine.AuditActor(ctx, "set limits", "queue", q.name)
	return q.db.write(ctx, within(tx), func(ctx context.Context, tx engine.Querier, now time.Time) error {
		if changed, err = q.db.limits.Set(ctx, tx, q.name, row); err != nil || !changed {
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

// fitWithin is fitJobs in one transaction.
func (q *queue) fitWithin(ctx context.Context, tx engine.Querier, now time.Time) (err error) {
	for more := true; more && err == nil; {
		more, err = q.db.limits.FitSome(ctx, tx, q.name, math.MaxInt, now.Unix())
	}
	return err
}
