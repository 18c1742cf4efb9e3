package honker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
	"github.com/honker-go/honker/observe"
)

// Limits are a queue's limits. They are stored in the file and apply across all processes, handles and bindings of
// honker. A zero field means no limit.
//
// A claim skips jobs that aren't allowed to start. Each claim counts and claims jobs in a single statement under the
// write lock, so a limit is never exceeded, and a crash leaves no semaphore behind. A job whose key has reached its
// limit is held ([PhaseHeld]) and does not slow down claims. Committing the settle of a job releases the next job
// with the same key, even if another binding commits it. A job whose claim has lapsed counts as running until it is
// claimed again or dead-lettered.
//
// A job that is cancelled while running keeps its slot until its handler returns. If that cannot be observed,
// because the worker died or belongs to another binding, the job keeps its slot until its lease ends. A job
// cancelled by another binding frees its slot immediately, because other bindings use the same delete for cancel
// and ack.
type Limits struct {
	// Running is the number of the queue's jobs that can run at once; at most 10,000. Jobs that were claimed ahead or
	// with Claim count as running.
	Running int
	// PerKey is the number of jobs with the same Key that can run at once; at most 10,000.
	PerKey int
	// InOrder runs jobs with the same Key one at a time, ordered by ID. A job that is delayed or waiting for its next
	// attempt blocks later jobs with its key.
	InOrder bool
	// Rate limits how often jobs in the queue start. Each attempt counts.
	Rate Rate
	// KeyRate limits how often jobs with the same Key start.
	KeyRate Rate
}

// Rate allows N evenly spaced starts in each Per, after a burst of up to Burst accumulated starts. The zero Rate
// means no limit.
//
// For example, five per second with a burst of 1 allows a start every 200 ms. A job that exceeds a KeyRate gets
// its start time as RunAt, which the file stores in whole seconds. Rates below one start per second are
// therefore accurate to the second; at higher rates, all starts due in a second happen together. A job that
// could not start at its RunAt may get a new time, for example because there was no worker or because its key
// was full or paused.
type Rate struct {
	N     int           // at most 1,000,000
	Per   time.Duration // whole milliseconds
	Burst int           // 0 means 1; at most 1,000,000
}

// Upper bounds. The running jobs are counted by each claim and, for other bindings, for each job claimed.
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

// SetLimits replaces the queue's limits in the file. The zero Limits removes them. Setting the current limits again
// writes nothing, so a program may call SetLimits each time it starts.
//
// New limits take effect with the next claim. Running jobs continue; if they exceed a limit, no other job
// subject to that limit starts until there is room. Changing a Rate resets it. If the new limits leave more
// room, held jobs are released.
//
// SetLimits returns after all jobs of the queue have been adjusted to the new limits. It works in transactions
// of a few milliseconds with pauses in which other writers can proceed. The limits are in effect from the first
// transaction, and a job waits until it has been adjusted. If ctx ends earlier, SetLimits returns ctx's error
// and the limits remain set. The remaining jobs are then adjusted by claims on the queue, by the next SetLimits
// or by [DB.Maintain], even if this process dies.
//
// Setting the first limit of a kind in a file, or removing the last, changes the schema. Every connection must then
// prepare its statements again, so set limits when a program starts or as an operator, not for each job. While a file
// has limits on keys, every claim on any queue is slightly slower.
//
// Each transaction waits for the writer until ctx ends or BusyTimeout has passed. Inside [DB.Tx], SetLimits returns
// [ErrInTx]. It returns [ErrInvalid] for a limit that is negative or too large.
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

// changeLimits stores the limits. It is the first transaction of SetLimits.
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
		q.db.engine.Notifier.Wake(wake.Queue(q.name))
	}
	return err
}

// fitJobs adjusts a queue's jobs to its limits, unless they are already adjusted.
func (db *DB) fitJobs(ctx context.Context, queue string) error {
	_, err := db.engine.InChunks(ctx, db.engine.Stores.Sweeps.Fits, row.Part{Name: queue}, 0, func(row.Swept) {
		db.engine.Notifier.Wake(wake.Queue(queue))
	})
	return err
}

// Limits returns the queue's limits as stored in the file. It never waits for the writer.
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

// SetLimitsTx is like [Queue.SetLimits], but does everything within tx. If the new limits give keys more room or let
// their jobs start earlier, tx updates every job that was waiting for this. In a queue with many such jobs it holds
// the writer for a long time, so use SetLimits unless the limits must change together with other data in tx.
func (q *Queue[T]) SetLimitsTx(ctx context.Context, tx Tx, l Limits) error {
	return fail("set limits", q.name, q.setLimitsTx(ctx, tx, l))
}

func (q *queue) setLimitsTx(ctx context.Context, tx Tx, l Limits) error {
	row, err := l.row()
	if err := errors.Join(q.err, err); err != nil {
		return err
	}
	audit := q.db.engine.AuditActor(ctx, "set limits", "queue", q.name)
	return q.db.write(ctx, within(tx), func(ctx context.Context, tx engine.Querier, now time.Time) error {
		changed, err := q.db.engine.Stores.Limits.Set(ctx, tx, q.name, row)
		if err != nil || !changed {
			return err
		}
		if err := q.fitWithin(ctx, tx, now); err != nil {
			return err
		}
		return audit.NoteOne(ctx, tx, now)
	}, noted, wake.Queue(q.name))
}

// fitWithin is like fitJobs, but does everything in the transaction tx.
func (q *queue) fitWithin(ctx context.Context, tx engine.Querier, now time.Time) (err error) {
	for left := (row.Swept{More: true}); left.More && err == nil; {
		left, err = q.db.engine.Stores.Sweeps.Fits.Take(ctx, tx, row.Part{Name: q.name}, nil, now, math.MaxInt)
	}
	return err
}

// PauseOptions configures a call to [Queue.Pause]. Zero fields select the defaults.
type PauseOptions struct {
	Key    string    // pause only jobs with this [Key], until [Queue.ResumeKey]; default: the whole queue
	Until  time.Time // time at which the pause ends automatically, rounded up to a whole second; zero means it lasts until Resume
	Reason string    // stored with the pause; at most 1024 bytes
	By     string    // name of the operator, stored with the pause; at most 1024 bytes
}

// Pause describes a pause of a queue. While a queue is paused, none of its jobs start.
type Pause struct {
	Since  time.Time
	Until  time.Time // time at which the pause ends automatically; zero means it lasts until Resume
	Reason string
	By     string
}

// pauseOf converts a stored pause. It returns nil for nil.
func pauseOf(p *row.Pause) *Pause {
	if p == nil {
		return nil
	}
	return &Pause{Since: p.Since, Until: p.Until, Reason: p.Reason, By: p.By}
}

// maxNote is the maximum length, in bytes, of notes that operators store in the file.
const maxNote = 1024

// row returns the pause to store at time now. An Until in the past is ErrInvalid.
func (o *PauseOptions) row(now time.Time) (p row.Pause, err error) {
	if o == nil {
		o = new(PauseOptions)
	}
	p = row.Pause{Since: now, Reason: o.Reason, By: o.By}
	switch {
	case o.Until.IsZero():
	case !o.Until.After(now):
		err = fmt.Errorf("%w: Until %v has already passed", ErrInvalid, o.Until)
	case o.Until.UTC().Year() > 9999: // limit of SQLite's date functions and of times in JSON
		err = fmt.Errorf("%w: Until is after the year 9999", ErrInvalid)
	default:
		p.Until = time.Unix(engine.UnixUp(o.Until), 0)
	}
	if o.Key != "" {
		err = errors.Join(err, engine.CheckName("key", o.Key))
	}
	return p, errors.Join(err, checkNote("Reason", o.Reason), checkNote("By", o.By))
}

func checkNote(what, text string) error {
	if len(text) > maxNote {
		return fmt.Errorf("%w: %s has %d bytes; the maximum is %d", ErrInvalid, what, len(text), maxNote)
	}
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return fmt.Errorf("%w: %s is not UTF-8 or contains NUL", ErrInvalid, what)
	}
	return nil
}

// Pause prevents the queue's jobs from starting, in all processes and all bindings of honker, until
// [Queue.Resume] or opts.Until. The pause is stored in the file, so it outlives the process. Running jobs finish
// and are settled. Jobs can still be enqueued and cancelled, and schedules still fire. Jobs that can no longer
// run are dead-lettered.
//
// Jobs that a [Queue.Work] has claimed ahead but not started are given back without using up an attempt. The loops of
// this DB do so immediately. Loops in other processes do so on their next claim, or after 200 ms in which no handler
// has returned; until then, such a job may still start.
//
// Pause returns false if the queue was already paused. In that case it replaces Until, Reason and By; a zero Until
// means that the pause no longer ends automatically. A nil opts means defaults. Pause returns [ErrInvalid] if Until
// is in the past, or if a string is too long or not valid UTF-8.
//
// With a Key, Pause applies only to the queue's jobs with this key. A claim that encounters such a job moves it
// aside. Jobs with the key that were already claimed ahead may still start.
//
// Pause waits for the writer until ctx ends or BusyTimeout has passed. Inside [DB.Tx] it returns [ErrInTx].
// Starting the first pause in a file and ending the last change the schema, and every connection must then
// prepare its statements again. Pauses are intended for operators, not for pacing.
func (q *Queue[T]) Pause(ctx context.Context, opts *PauseOptions) (bool, error) {
	paused, err := q.pause(ctx, alone("PauseTx"), opts)
	return paused, fail("pause", q.name, err)
}

// PauseTx is like [Queue.Pause] but runs within tx. No job starts after tx has committed.
func (q *Queue[T]) PauseTx(ctx context.Context, tx Tx, opts *PauseOptions) (bool, error) {
	paused, err := q.pause(ctx, within(tx), opts)
	return paused, fail("pause", q.name, err)
}

func (q *queue) pause(ctx context.Context, c carrier, opts *PauseOptions) (bool, error) {
	if q.err != nil {
		return false, q.err
	}
	row, err := opts.row(q.db.engine.Now())
	if err != nil {
		return false, err
	}
	var was bool
	key := ""
	if opts != nil {
		key = opts.Key
	}
	target := q.auditTarget(key)
	if row.Reason != "" {
		target = append(target, "reason", row.Reason)
	}
	if !row.Until.IsZero() {
		target = append(target, "until", row.Until.UTC().Format(time.RFC3339))
	}
	audit := q.db.engine.AuditActor(ctx, "pause", target...)
	write := func(ctx context.Context, tx engine.Querier, now time.Time) (err error) {
		if was, err = q.db.engine.Stores.Pauses.Set(ctx, tx, q.name, key, row, now); err != nil {
			return err
		}
		return audit.NoteOne(ctx, tx, now)
	}
	err = q.db.write(ctx, c, write, func() {
		if key == "" {
			q.db.running.Release(q.name)
		}
		q.db.opts.Observer.Paused(observe.Paused{Queue: q.name, Key: key, Until: row.Until, Actor: engine.Actor(ctx)})
	}, wake.Queue(q.name)) // sleeping workers must learn about Until
	return err == nil && !was, err
}

// Resume ends the pause of the queue, so that its jobs can start again in all processes. It returns false
// if the queue was not paused or if Until has passed. It waits for the writer until ctx ends or
// BusyTimeout has passed. Inside [DB.Tx] it returns [ErrInTx].
func (q *Queue[T]) Resume(ctx context.Context) (bool, error) {
	was, err := q.resume(ctx, alone("ResumeTx"))
	return was, fail("resume", q.name, err)
}

// ResumeTx is like [Queue.Resume] but runs within tx.
func (q *Queue[T]) ResumeTx(ctx context.Context, tx Tx) (bool, error) {
	was, err := q.resume(ctx, within(tx))
	return was, fail("resume", q.name, err)
}

// ResumeKey ends a pause with the given [PauseOptions.Key]. Jobs with this key can start again unless the whole queue
// is paused too. Otherwise ResumeKey is like [Queue.Resume].
func (q *Queue[T]) ResumeKey(ctx context.Context, key string) (bool, error) {
	was, err := q.resumeKey(ctx, alone("ResumeKeyTx"), key)
	return was, fail("resume", q.name, err)
}

// ResumeKeyTx is like [Queue.ResumeKey] but runs within tx.
func (q *Queue[T]) ResumeKeyTx(ctx context.Context, tx Tx, key string) (bool, error) {
	was, err := q.resumeKey(ctx, within(tx), key)
	return was, fail("resume", q.name, err)
}

func (q *queue) resume(ctx context.Context, c carrier) (bool, error) {
	if q.err != nil {
		return false, q.err
	}
	return q.endPause(ctx, c, "")
}

func (q *queue) resumeKey(ctx context.Context, c carrier, key string) (bool, error) {
	if err := errors.Join(q.err, engine.CheckName("key", key)); err != nil {
		return false, err
	}
	return q.endPause(ctx, c, key)
}

// auditTarget returns the target of audit entries: the queue, or a key in it.
func (q *queue) auditTarget(key string) []string {
	if key == "" {
		return []string{"queue", q.name}
	}
	return []string{"queue", q.name, "key", key}
}

// endPause ends the pause of a key, or of the whole queue if key is "".
func (q *queue) endPause(ctx context.Context, c carrier, key string) (was bool, err error) {
	audit := q.db.engine.AuditActor(ctx, "resume", q.auditTarget(key)...)
	write := func(ctx context.Context, tx engine.Querier, now time.Time) (err error) {
		if was, err = q.db.engine.Stores.Pauses.End(ctx, tx, q.name, key, now); err != nil || !was {
			return err
		}
		if key != "" && !c.isOwn() {
			if err := q.fitWithin(ctx, tx, now); err != nil {
				return err
			}
		}
		return audit.NoteOne(ctx, tx, now)
	}
	err = q.db.write(ctx, c, write, func() {
		if was {
			q.db.opts.Observer.Paused(observe.Paused{Queue: q.name, Key: key, Resumed: true, Actor: engine.Actor(ctx)})
		}
	}, wake.Queue(q.name))
	if err != nil || !was {
		return false, err
	}
	if key != "" && c.isOwn() {
		err = q.db.fitJobs(ctx, q.name) // release the jobs that the key's pause has moved aside
	}
	return true, err
}
