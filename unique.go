package honker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/store"
)

// UniqueUntil is how long a job has its unique key.
type UniqueUntil int

// How long a job has its key.
const (
	UntilFinished UniqueUntil = iota // until it is acked, cancelled or dead, by any binding
	UntilStarted                     // until its first claim, by any binding, however that ends
)

// Conflict is what an enqueue does when another job has its key. None of it is an error.
type Conflict int

// What an enqueue does when another job has its key.
const (
	KeepExisting   Conflict = iota // nothing: the job stays as it is
	ReplaceWaiting                 // if the job waits, it gets these arguments, priority, time, expiry and as many attempts; if it runs, as KeepExisting
	RunAgain                       // if the job waits, as ReplaceWaiting; if it runs, one more runs when that has ended, with the newest arguments
)

// Uniqueness says when a job has its unique key to itself, and what an enqueue does that finds
// it taken. The zero value of a field means its default. Until and For are those of the enqueue
// that has added the job, Conflict that of the enqueue that finds it.
type Uniqueness struct {
	Until    UniqueUntil   // default UntilFinished
	For      time.Duration // and for at least so long after the enqueue, even if the job is gone by then; default 0
	Conflict Conflict      // default KeepExisting
}

// Unique makes the enqueue find the job that has key in this queue instead of adding a second
// one: it returns that job's id and no error, since an error would have the caller's transaction
// rolled back. [Placed] tells which it was. nil u means defaults.
//
// The key is a row of the file, written in the transaction of the enqueue, and SQLite has one
// writer: of two enqueues of a key, in whatever processes, one adds the job and the other finds
// it. A trigger in the file frees the key, so an ack or cancel by another binding does it too. A
// dead job has no key. A job that can never run any more, since it has expired or spent its
// attempts, has let go of it before it is swept.
//
// With [RunAgain] a job that runs has at most one successor, which is held until it has ended and
// can be claimed by then at the earliest; between its attempts, too, the newest arguments are
// the successor's. Replacing a job cuts the delay before its next attempt short.
//
// With [After], a job that is replaced waits for those jobs too; which batch it is [In], and the key that it shares
// limits by, stay as they are.
//
// Unique is about enqueueing, and bounds the jobs that wait and run of one key. It does not
// bind jobs that are enqueued without a key, as other bindings do.
//
// A key has 1 to 1,024 bytes of UTF-8. It is [ErrInvalid] for more than one job, for which there
// is [UniqueArgs], and together with another of Unique, UniqueArgs, [Debounce] and [Throttle].
func Unique(key string, u *Uniqueness) EnqueueOption {
	return func(o *enqueueOptions) {
		o.setUnique(newUniqueOptions(key, u))
		o.err = errors.Join(o.err, engine.CheckName("unique key", key))
	}
}

// UniqueArgs is [Unique] with a key made of the arguments, of each job by itself: of these
// fields of their JSON object, or of all arguments if there are none. A field that is missing is
// [ErrInvalid], null is not. Numbers are compared as they are written, so 1 and 1.0 differ; the
// order of the fields does not matter.
//
// The key is "h:" and 128 bits of a SHA-256 in hexadecimal digits.
func UniqueArgs(u *Uniqueness, fields ...string) EnqueueOption {
	return func(o *enqueueOptions) {
		unique := newUniqueOptions("", u)
		unique.ofArgs, unique.fields = true, fields
		o.setUnique(unique)
	}
}

// Debounce lets the job run when no enqueue with key has come for wait, and at the latest max
// after the first, with the arguments of the newest. Once it is claimed, the next enqueue begins
// anew. It is [Unique] with UntilStarted and ReplaceWaiting, and moves the job's time.
//
// That time is rounded up to a whole second, as with [Delay]: honker's file keeps no others. So a
// wait of 100ms ends within 1.1s, and max may be exceeded by less than a second.
//
// Both have to be positive, and wait no longer than max, which keeps a key that never rests from
// waiting for ever; else it is [ErrInvalid], as it is together with Delay or RunAt.
func Debounce(key string, wait, max time.Duration) EnqueueOption {
	return func(o *enqueueOptions) {
		unique := newUniqueOptions(key, &Uniqueness{Until: UntilStarted, Conflict: ReplaceWaiting})
		unique.wait, unique.MaxMS = wait, engine.DeadlineMS(time.UnixMilli(0), max)
		o.setUnique(unique)
		o.err = errors.Join(o.err, engine.CheckName("unique key", key),
			engine.Positive("wait", wait), engine.Positive("max", max))
		if wait > max && max > 0 {
			o.err = errors.Join(o.err, fmt.Errorf("%w: Debounce waits for %v, longer than its max of %v", ErrInvalid, wait, max))
		}
	}
}

// Throttle adds at most one job per d: it is [Unique] with For. A job that takes longer keeps its
// key until it has ended. The arguments of the enqueues in between are dropped. d must be positive.
func Throttle(key string, d time.Duration) EnqueueOption {
	return func(o *enqueueOptions) {
		o.setUnique(newUniqueOptions(key, &Uniqueness{For: d}))
		o.err = errors.Join(o.err, engine.CheckName("unique key", key), engine.Positive("throttle", d))
	}
}

// PlaceResult is what became of an enqueue.
type PlaceResult string

// What became of an enqueue.
const (
	PlacedNew      = PlaceResult(row.PlacedNew)      // "new": a job was added
	PlacedExisting = PlaceResult(row.PlacedExisting) // "existing": a job has the key, and stays as it is
	PlacedReplaced = PlaceResult(row.PlacedReplaced) // "replaced": the job that has the key waits, and was changed
	PlacedAgain    = PlaceResult(row.PlacedAgain)    // "again": a job was added that runs when the one that has the key has ended
)

// Placement is what became of an enqueue.
type Placement struct {
	ID     int64 // what Enqueue returns: the job that was added, changed or found
	Result PlaceResult
	Of     JobInfo // the job that had the key, as it was; only ID and Queue if it is gone; the zero value with PlacedNew
}

// Placed tells what became of the enqueue of one job: p is set when the verb returns without an
// error. A Tx form sets it for a transaction that may still be rolled back. A nil p, and more
// than one job, are [ErrInvalid].
func Placed(p *Placement) EnqueueOption {
	return func(o *enqueueOptions) {
		o.placed = p
		if p == nil {
			o.err = errors.Join(o.err, fmt.Errorf("%w: nil Placement", ErrInvalid))
		}
	}
}

// ReleaseUnique forgets a unique key by hand: the job that has it stays, without a key, and one
// that was to run after it can run at once. It reports whether the key was taken. It waits for the
// writer until ctx ends or BusyTimeout has passed.
func (q *Queue[T]) ReleaseUnique(ctx context.Context, key string) (taken bool, err error) {
	taken, err = q.releaseUnique(ctx, alone("ReleaseUniqueTx"), key)
	return taken, fail("release unique key", q.name, err)
}

// ReleaseUniqueTx is like [Queue.ReleaseUnique], within tx: an EnqueueTx behind it in tx finds the key
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
		taken, err = q.db.jobs.ReleaseUnique(ctx, tx, q.name, key, now.Unix(), now.UnixMilli())
		return err
	}, func() {
		if taken {
			q.db.engine.Notifier.Wake(q.ready())
		}
	})
	return taken, err
}

// uniqueOptions are those of an enqueue with a unique key.
type uniqueOptions struct {
	row.Unique
	span   time.Duration // For
	wait   time.Duration // of Debounce
	ofArgs bool          // the key is made of the arguments
	fields []string      // of these
	keys   []string      // of each payload
	err    error
}

func newUniqueOptions(key string, u *Uniqueness) *uniqueOptions {
	o := &uniqueOptions{Unique: row.Unique{Key: key}}
	if u == nil {
		return o
	}
	o.Started, o.Conflict, o.span = u.Until == UntilStarted, row.Conflict(u.Conflict), u.For
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
		o.err = errors.Join(o.err, fmt.Errorf("%w: two of Unique, UniqueArgs, Debounce and Throttle", ErrInvalid))
	}
	o.unique = u
	o.err = errors.Join(o.err, u.err)
}

// checkUnique refuses what does not go together, for an enqueue of so many jobs.
func (o *enqueueOptions) checkUnique(jobs int) error {
	switch {
	case o.placed != nil && jobs > 1:
		return fmt.Errorf("%w: one Placement for %d jobs", ErrInvalid, jobs)
	case o.unique == nil:
		return nil
	case jobs > 1 && !o.unique.ofArgs:
		return fmt.Errorf("%w: one unique key for %d jobs: use UniqueArgs", ErrInvalid, jobs)
	case o.unique.wait <= 0:
		return nil
	case o.delayed || o.timed:
		return fmt.Errorf("%w: Debounce together with Delay or RunAt", ErrInvalid)
	}
	o.delay = o.unique.wait
	o.delayed = true
	return nil
}

// keysOf are the keys of jobs with these payloads.
func (u *uniqueOptions) keysOf(payloads []string) (keys []string, err error) {
	keys = make([]string, len(payloads))
	for i, payload := range payloads {
		if keys[i] = u.Key; !u.ofArgs {
			continue
		}
		if keys[i], err = store.ArgsKey(payload, u.fields); err != nil {
			return nil, fmt.Errorf("%w: unique key of job %d of %d: %w", ErrInvalid, i+1, len(payloads), err)
		}
	}
	return keys, nil
}

// at is what the store is told of a key at the time now.
func (u *uniqueOptions) at(key string, now time.Time) row.Unique {
	unique := u.Unique
	unique.Key, unique.NowMS = key, now.UnixMilli()
	if u.span > 0 {
		unique.UntilMS = engine.DeadlineMS(now, u.span)
	}
	return unique
}

// insertUnique adds those of the jobs of which the key is free, and does with the others what the
// options say.
func (op *enqueueOp) insertUnique(ctx context.Context, tx engine.Querier, job row.NewJob, now time.Time) error {
	op.ids, op.places = make([]int64, 0, len(op.payloads)), make([]row.Placed, 0, len(op.payloads))
	for i, payload := range op.payloads {
		unique := op.unique.at(op.unique.keys[i], now)
		unique.Links = op.links
		p, err := op.q.db.jobs.InsertUnique(ctx, tx, job, payload, unique)
		if err != nil {
			return err
		}
		op.ids, op.places = append(op.ids, p.ID), append(op.places, p)
		if err := op.complete(ctx, tx, p); err != nil {
			return err
		}
	}
	return nil
}

// complete gives a job that was added what it has beside its row. One that was changed keeps its key, gets the
// headers with the arguments, and waits for what else it is to wait for.
func (op *enqueueOp) complete(ctx context.Context, tx engine.Querier, p row.Placed) (err error) {
	jobs := op.q.db.jobs
	switch p.Result {
	case row.PlacedNew, row.PlacedAgain:
		err = jobs.SetSide(ctx, tx, op.q.name, op.side, p.ID)
		if err == nil && op.links != nil {
			err = jobs.AddLinks(ctx, tx, op.links, []int64{p.ID})
		}
	case row.PlacedReplaced:
		err = jobs.ReplaceSide(ctx, tx, p.Of, op.side.Headers)
		if err == nil && op.links != nil {
			err = jobs.AddWaits(ctx, tx, op.links, p.ID)
		}
	}
	return err
}

// tellPlaces fills the caller's Placement, and tells the observer of the jobs that were not added.
// It returns those that were.
func (op *enqueueOp) tellPlaces(inTx bool) (added []int64) {
	if op.placed != nil {
		*op.placed = op.placement()
	}
	if op.unique == nil {
		return op.ids
	}
	found := Deduplicated{Queue: op.q.name, Tx: inTx}
	for _, p := range op.places {
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

// placement is what became of the only job.
func (op *enqueueOp) placement() Placement {
	if op.unique == nil {
		return Placement{ID: op.ids[0], Result: PlacedNew}
	}
	p := op.places[0]
	return Placement{ID: p.ID, Result: PlaceResult(p.Result), Of: infoOf(&p.Of, time.Now(), op.q.db.opts.Codec)}
}
