package honker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// PauseOptions configures a call of [Queue.Pause]. Zero fields select the defaults.
type PauseOptions struct {
	Key    string    // pause only jobs with this [Key], until [Queue.ResumeKey]; default: the whole queue
	Until  time.Time // time at which the pause ends by itself, rounded up to a whole second; zero means it lasts until Resume
	Reason string    // stored with the pause; at most 1024 bytes
	By     string    // name of the operator, stored with the pause; at most 1024 bytes
}

// Pause describes the pause of a queue. While a queue is paused, none of its jobs starts.
type Pause struct {
	Since  time.Time
	Until  time.Time // time at which the pause ends by itself; zero means it lasts until Resume
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

// maxNote is the maximum length in bytes of texts that operators store in the file.
const maxNote = 1024

// row returns the pause to store at the time now. An Until that has passed is ErrInvalid.
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

// Pause keeps the jobs of the queue from starting, in all processes and in all bindings of honker, until
// [Queue.Resume] or opts.Until. The pause is stored in the file, so it outlives the process. Running jobs finish and
// are settled. Jobs can still be enqueued and cancelled, and schedules fire. Jobs that cannot run again are
// dead-lettered.
//
// Jobs that a [Queue.Work] has claimed ahead and not started are given back, attempt unspent. The loops of this DB
// do so immediately. The loops of other processes do so with their next claim, or when no handler has ended
// for 200 ms; until then such a job may still start.
//
// Pause returns false if the queue was already paused. It then replaces Until, Reason and By, and a zero Until
// removes the end. nil opts means defaults. An Until that has passed is [ErrInvalid], and so is a text that
// is too long or not valid UTF-8.
//
// With a Key, only the jobs of the queue that have this key are kept from starting. A claim that meets
// such a job moves it out of the way. Jobs of the key that are already claimed ahead may still start.
//
// Pause waits for the writer until ctx ends or BusyTimeout has passed. Inside [DB.Tx] it returns [ErrInTx]. The first
// pause of a file and the end of its last pause change the schema, after which every connection prepares its
// statements again. Pauses are meant for operators and not for pacing.
func (q *Queue[T]) Pause(ctx context.Context, opts *PauseOptions) (bool, error) {
	paused, err := q.pause(ctx, alone("PauseTx"), opts)
	return paused, fail("pause", q.name, err)
}

// PauseTx is like [Queue.Pause], within tx. No job starts after tx has committed.
func (q *Queue[T]) PauseTx(ctx context.Context, tx Tx, opts *PauseOptions) (bool, error) {
	paused, err := q.pause(ctx, within(tx), opts)
	return paused, fail("pause", q.name, err)
}

func (q *queue) pause(ctx context.Context, c carrier, opts *PauseOptions) (bool, error) {
	if q.err != nil {
		return false, q.err
	}
	row, err := opts.row(time.Now())
	if err != nil {
		return false, err
	}
	var was bool
	key := ""
	if opts != nil {
		key = opts.Key
	}
	audit := q.db.engine.AuditActor(ctx, "pause", q.auditTarget(key)...)
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
		q.db.engine.Notifier.Wake(q.ready()) // sleeping workers have to learn of Until
		q.db.opts.Observer.Paused(Paused{Queue: q.name, Key: key, Until: row.Until, Actor: engine.Actor(ctx)})
	})
	return err == nil && !was, err
}

// Resume ends the pause of the queue, so that its jobs can start again in all processes. It returns false
// if the queue was not paused or if Until has passed. It waits for the writer until ctx ends or
// BusyTimeout has passed. Inside [DB.Tx] it returns [ErrInTx].
func (q *Queue[T]) Resume(ctx context.Context) (bool, error) {
	was, err := q.resume(ctx, alone("ResumeTx"))
	return was, fail("resume", q.name, err)
}

// ResumeTx is like [Queue.Resume], within tx.
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

// ResumeKeyTx is like [Queue.ResumeKey], within tx.
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

// auditTarget returns the target of audit entries: the queue, or a key of it.
func (q *queue) auditTarget(key string) []string {
	if key == "" {
		return []string{"queue", q.name}
	}
	return []string{"queue", q.name, "key", key}
}

// endPause ends the pause of a key, or of the whole queue if key is empty.
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
		if !was {
			return
		}
		q.db.engine.Notifier.Wake(q.ready())
		q.db.opts.Observer.Paused(Paused{Queue: q.name, Key: key, Resumed: true, Actor: engine.Actor(ctx)})
	})
	if err != nil || !was {
		return false, err
	}
	if key != "" && c.isOwn() {
		err = q.db.fitJobs(ctx, q.name) // release the jobs that the pause of the key has moved aside
	}
	return true, err
}
