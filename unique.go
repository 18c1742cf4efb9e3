package honker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
	"github.com/honker-go/honker/observe"
)

// UniqueUntil specifies how long a job holds its unique key.
type UniqueUntil int

// Values of [Uniqueness].Until.
const (
	UntilFinished UniqueUntil = iota // until the job is acked, cancelled or dead, in any binding
	UntilStarted                     // until its first claim, in any binding, no matter how the claim ends
)

// Conflict specifies what an enqueue does if another job holds its key. None of the choices causes an error.
type Conflict int

// Values of [Uniqueness].Conflict.
const (
	KeepExisting Conflict = iota // leave the job as it is
	// ReplaceWaiting gives a waiting job the new arguments, priority, time and expiry, and a full number of
	// attempts. It leaves a running job as it is.
	ReplaceWaiting
	RunAgain // treat a waiting job like ReplaceWaiting does; after a running job, run another with the newest arguments
)

// Uniqueness specifies how long a job holds its unique key, and what an enqueue does if the key is taken. Zero fields
// select the defaults. Until and For are taken from the enqueue that added the job, and Conflict from the enqueue
// that finds it.
type Uniqueness struct {
	Until    UniqueUntil   // default UntilFinished
	For      time.Duration // minimum time after the enqueue to hold the key, even if the job is gone by then; default 0
	Conflict Conflict      // default KeepExisting
}

// Unique makes an enqueue look in this queue for a job that holds key before it adds a job. If there is such a job,
// the enqueue returns its ID without an error, because an error would make the caller roll back. Use [Placed] to find
// out whether a job was added. A nil u means defaults.
//
// The key is a row in the file that is written in the enqueue's transaction. SQLite has a single writer, so if two
// enqueues in any processes use the same key, the first adds the job and the second finds it. A trigger in the file
// frees the key, so an ack or cancel by another binding frees it too. A dead job holds no key. A job that can never
// run again, because it has expired or has no attempts left, loses its key even before it is swept.
//
// With [RunAgain], a running job has at most one successor. The successor is held until the running job has ended,
// and can be claimed only then. While the running job waits between attempts, the newest arguments still go to the
// successor. Replacing a job cuts short the delay before its next attempt.
//
// With [After], a replaced job also waits for those jobs. It keeps its batch (see [InBatch]) and its limits key
// (see [Key]).
//
// Unique acts on enqueues, and bounds the number of waiting or running jobs with a key. It does not affect jobs
// enqueued without a key, such as those of other bindings.
//
// A key has 1 to 1,024 bytes of UTF-8. An enqueue of more than one job with Unique returns [ErrInvalid]; use
// [UniqueArgs] instead. So does an enqueue that combines Unique with another Unique, UniqueArgs, [Debounce] or
// [Throttle].
func Unique(key string, u *Uniqueness) EnqueueOption {
	return func(o *enqueueOptions) {
		o.setUnique(newUniqueOptions(key, u))
		o.err = errors.Join(o.err, engine.CheckName("unique key", key))
	}
}

// UniqueArgs is like [Unique], but derives each job's key from its arguments: from the given fields of their JSON
// object, or from all arguments if no fields are given. If a field is missing, the enqueue returns [ErrInvalid], but
// null is allowed. Numbers are compared as written, so 1 and 1.0 differ. The order of the fields does not matter.
//
// The key is "h:" followed by 128 bits of a SHA-256 in hexadecimal.
func UniqueArgs(u *Uniqueness, fields ...string) EnqueueOption {
	return func(o *enqueueOptions) {
		unique := newUniqueOptions("", u)
		unique.ofArgs, unique.fields = true, fields
		o.setUnique(unique)
	}
}

// Debounce delays a job until wait has passed without an enqueue with key, but no longer than max after the first
// enqueue. The job runs with the latest enqueue's arguments. After the job is claimed, the next enqueue starts over.
// Debounce is [Unique] with UntilStarted and ReplaceWaiting, and also moves the job's time.
//
// The time is rounded up to a whole second, as with [Delay], because honker's file stores only whole seconds.
// A wait of 100ms therefore ends within 1.1s, and max may be exceeded by less than a second.
//
// Both durations must be positive, and wait must not exceed max; otherwise the enqueue returns [ErrInvalid], as it
// does for Debounce together with Delay or RunAt. The maximum keeps a steady stream of enqueues from postponing a job
// forever.
func Debounce(key string, wait, max time.Duration) EnqueueOption {
	return func(o *enqueueOptions) {
		unique := newUniqueOptions(key, &Uniqueness{Until: UntilStarted, Conflict: ReplaceWaiting})
		unique.wait, unique.MaxDelay = wait, max
		o.setUnique(unique)
		o.err = errors.Join(o.err, engine.CheckName("unique key", key),
			engine.Positive("wait", wait), engine.Positive("max", max))
		if wait > max && max > 0 {
			o.err = errors.Join(o.err, fmt.Errorf("%w: the wait %v of Debounce is longer than its max %v", ErrInvalid, wait, max))
		}
	}
}

// Throttle adds at most one job per d. It is [Unique] with For. A job that takes longer than d keeps its key until
// it ends. The arguments of enqueues in between are dropped. d must be positive.
func Throttle(key string, d time.Duration) EnqueueOption {
	return func(o *enqueueOptions) {
		o.setUnique(newUniqueOptions(key, &Uniqueness{For: d}))
		o.err = errors.Join(o.err, engine.CheckName("unique key", key), engine.Positive("throttle", d))
	}
}

// PlaceResult is the result of an enqueue with a unique key.
type PlaceResult string

// The results of an enqueue.
const (
	PlacedNew      = PlaceResult(row.PlacedNew)      // "new": a job was added
	PlacedExisting = PlaceResult(row.PlacedExisting) // "existing": another job holds the key and was left as it is
	PlacedReplaced = PlaceResult(row.PlacedReplaced) // "replaced": the waiting job that holds the key was changed
	PlacedAgain    = PlaceResult(row.PlacedAgain)    // "again": a job was added that runs after the key's current job has ended
)

// Placement describes the result of an enqueue.
type Placement struct {
	ID     int64 // ID returned by Enqueue, of the job that was added, changed or found
	Result PlaceResult
	Of     JobInfo // the job that held the key, before any change; only ID and Queue if it is gone; zero for PlacedNew
}

// Placed stores the result of an enqueue of a single job in p when the verb returns without an error. A Tx form sets
// p even though its transaction may still be rolled back. The enqueue returns [ErrInvalid] if p is nil or if it adds
// more than one job.
func Placed(p *Placement) EnqueueOption {
	return func(o *enqueueOptions) {
		o.placed = p
		if p == nil {
			o.err = errors.Join(o.err, fmt.Errorf("%w: nil Placement", ErrInvalid))
		}
	}
}

// ReleaseUnique frees a unique key and reports whether the key was taken. The job that held it stays, without a
// key. If a successor was waiting for that job to end, it can now run immediately. ReleaseUnique waits for the
// writer until ctx ends or BusyTimeout has passed.
func (q *Queue[T]) ReleaseUnique(ctx context.Context, key string) (taken bool, err error) {
	taken, err = q.releaseUnique(ctx, alone("ReleaseUniqueTx"), key)
	return taken, fail("release unique key", q.name, err)
}

// ReleaseUniqueTx is like [Queue.ReleaseUnique] but runs within tx. A later EnqueueTx in the same tx finds the key
// free.
func (q *Queue[T]) ReleaseUniqueTx(ctx context.Context, tx Tx, key string) (taken bool, err error) {
	taken, err = q.releaseUnique(ctx, within(tx), key)
	return taken, fail("release unique key", q.name, err)
}

func (q *queue) releaseUnique(ctx context.Context, c carrier, key string) (taken bool, err error) {
	if err := errors.Join(q.err, engine.CheckName("unique key", key)); err != nil {
		return false, err
	}
	err = q.db.write(ctx, c, func(ctx context.Context, tx engine.Querier, now time.Time) (err error) {
		taken, err = q.db.engine.Stores.Jobs.ReleaseUnique(ctx, tx, q.name, key, now)
		return err
	}, noted, wake.Queue(q.name))
	return taken, err
}

// uniqueOptions holds the options of an enqueue with a unique key.
type uniqueOptions struct {
	row.Unique
	key    string        // unless the key is derived from the arguments
	wait   time.Duration // the wait of Debounce
	ofArgs bool          // the key is derived from the arguments
	fields []string      // fields of the arguments that form the key; empty means all
	err    error
}

func newUniqueOptions(key string, u *Uniqueness) *uniqueOptions {
	o := &uniqueOptions{key: key}
	if u == nil {
		return o
	}
	o.Started, o.Conflict, o.Keep = u.Until == UntilStarted, row.Conflict(u.Conflict), u.For
	o.err = engine.NotNegative("For", u.For)
	if u.Until != UntilFinished && u.Until != UntilStarted {
		o.err = errors.Join(o.err, fmt.Errorf("%w: unknown UniqueUntil %d", ErrInvalid, u.Until))
	}
	if u.Conflict < KeepExisting || u.Conflict > RunAgain {
		o.err = errors.Join(o.err, fmt.Errorf("%w: unknown Conflict %d", ErrInvalid, u.Conflict))
	}
	return o
}

func (o *enqueueOptions) setUnique(u *uniqueOptions) {
	if o.unique != nil {
		o.err = errors.Join(o.err, fmt.Errorf("%w: Unique, UniqueArgs, Debounce and Throttle cannot be combined", ErrInvalid))
	}
	o.unique = u
	o.err = errors.Join(o.err, u.err)
}

// checkUnique rejects options that cannot be combined in an enqueue of the given number of jobs.
func (o *enqueueOptions) checkUnique(jobs int) error {
	switch {
	case o.placed != nil && jobs > 1:
		return fmt.Errorf("%w: Placed takes a single job, got %d", ErrInvalid, jobs)
	case o.unique == nil:
		return nil
	case jobs > 1 && !o.unique.ofArgs:
		return fmt.Errorf("%w: %d jobs cannot have the same unique key: use UniqueArgs", ErrInvalid, jobs)
	case o.unique.wait <= 0:
		return nil
	case o.delayed || o.timed:
		return fmt.Errorf("%w: Debounce cannot be combined with Delay or RunAt", ErrInvalid)
	}
	o.delay = o.unique.wait
	o.delayed = true
	return nil
}

// keysOf returns the keys of the jobs with the given payloads.
func (u *uniqueOptions) keysOf(payloads []string) (keys []string, err error) {
	keys = make([]string, len(payloads))
	for i, payload := range payloads {
		if keys[i] = u.key; !u.ofArgs {
			continue
		}
		if keys[i], err = engine.ArgsKey(payload, u.fields); err != nil {
			return nil, fmt.Errorf("%w: unique key of job %d of %d: %w", ErrInvalid, i+1, len(payloads), err)
		}
	}
	return keys, nil
}

// tellPlaces sets the caller's Placement, reports jobs that were found to the observer, and returns the IDs of the
// added jobs.
func (op *enqueueOp) tellPlaces(inTx bool) (added []int64) {
	if op.placed != nil {
		*op.placed = op.placement()
	}
	if op.unique == nil {
		return op.Inserted.IDs
	}
	found := observe.Deduplicated{Queue: op.q.name, Tx: inTx}
	for _, p := range op.Inserted.Places {
		switch p.Result {
		case row.PlacedExisting:
			found.Existing++
		case row.PlacedReplaced:
			found.Replaced++
		default:
			added = append(added, p.ID)
		}
	}
	if found.Existing+found.Replaced > 0 {
		op.q.db.opts.Observer.Deduplicated(found)
	}
	return added
}

// placement returns the Placement of an enqueue of a single job.
func (op *enqueueOp) placement() Placement {
	if op.unique == nil {
		return Placement{ID: op.Inserted.IDs[0], Result: PlacedNew}
	}
	p := op.Inserted.Places[0]
	return Placement{ID: p.ID, Result: PlaceResult(p.Result), Of: infoOf(&p.Of, op.q.db.engine.Now(), op.q.db.opts.Codec)}
}
