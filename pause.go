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

// pauseStore are the statements about pauses.
type pauseStore interface {
	engine.PauseStore
	Set(ctx context.Context, q engine.Querier, queue string, p row.Pause, now int64) (before row.Pause, was bool, err error)
	End(ctx context.Context, q engine.Querier, queue string, now int64) (bool, error)

	SetKey(ctx context.Context, q engine.Querier, queue, key string, p row.Pause, now int64) (before row.Pause, was bool, err error)
	EndKey(ctx context.Context, q engine.Querier, queue, key string, now int64) (bool, error)

	// For Maintain.
	Over(ctx context.Context, q engine.Querier, now int64) (bool, error)
	EndOver(ctx context.Context, q engine.Querier, now int64) (int, error)
}

// PauseOptions of one Pause. The zero value of a field means its default.
type PauseOptions struct {
	Key    string    // only jobs with this [Key] are paused; [Queue.ResumeKey] ends it; default: all of the queue
	Until  time.Time // the pause ends by itself, at the first whole second that is not before; zero: it lasts until Resume
	Reason string    // kept with the pause; at most 1024 bytes
	By     string    // the operator's name, kept with it; at most 1024 bytes
}

// Pause is why no job of a queue starts.
type Pause struct {
	Since  time.Time
	Until  time.Time // when it ends by itself; zero: it lasts until Resume
	Reason string
	By     string
}

// pauseOf is what is stored; nil for none.
func pauseOf(p *row.Pause) *Pause {
	if p == nil {
		return nil
	}
	return &Pause{Since: engine.InstantMS(p.SinceMS), Until: engine.InstantMS(p.UntilMS), Reason: p.Reason, By: p.By}
}

// maxNote bounds texts of operators in the file.
const maxNote = 1024

// row is what is stored, at the time now. A time that has passed is ErrInvalid.
func (o *PauseOptions) row(now time.Time) (p row.Pause, err error) {
	if o == nil {
		o = new(PauseOptions)
	}
	p = row.Pause{SinceMS: now.UnixMilli(), Reason: o.Reason, By: o.By}
	switch {
	case o.Until.IsZero():
	case !o.Until.After(now):
		err = fmt.Errorf("%w: a pause until %v, which has passed", ErrInvalid, o.Until)
	case o.Until.UTC().Year() > 9999: // what SQLite's functions and JSON can show
		err = fmt.Errorf("%w: a pause until after the year 9999", ErrInvalid)
	default:
		p.UntilMS = engine.UnixUp(o.Until) * 1000
	}
	if o.Key != "" {
		err = errors.Join(err, engine.CheckName("key", o.Key))
	}
	return p, errors.Join(err, checkNote("Reason", o.Reason), checkNote("By", o.By))
}

func checkNote(what, text string) error {
	if len(text) > maxNote {
		return fmt.Errorf("%w: %s of %d bytes, at most %d", ErrInvalid, what, len(text), maxNote)
	}
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return fmt.Errorf("%w: %s is not plain text", ErrInvalid, what)
	}
	return nil
}

// Pause lets no job of the queue start, in any process and by any binding of honker, until
// [Queue.Resume] or opts.Until. It is kept in the file, so it outlives the process. Jobs that run
// go on to their end, and are settled. What a [Queue.Work] has claimed ahead and not begun is given
// back with its attempt unspent: by those of this DB at once; by those of other processes with
// their next claim, or when no handler has ended for 200 ms, so until then such a job may still
// begin. Jobs can be enqueued and cancelled meanwhile, and schedules fire; what may not run again
// goes to the dead letters.
//
// It returns false where the queue was paused already: then Until, Reason and By are replaced, and
// a zero Until leaves no end. nil opts means defaults. An Until that has passed is [ErrInvalid], and
// so is a text that is too long or not UTF-8.
//
// With a Key, only jobs of the queue that have it are kept from starting; each is moved out of the way by the
// claim that meets it. What is claimed ahead of those may still begin.
//
// Pause waits for the writer until ctx ends or BusyTimeout has passed. Inside [DB.Tx] it is
// [ErrInTx]. The first pause of a file and the end of the last one change its schema, after which
// every connection prepares its statements anew: a pause is for operators, not for pacing.
func (q *Queue[T]) Pause(ctx context.Context, opts *PauseOptions) (bool, error) {
	paused, err := q.pause(ctx, alone("PauseTx"), opts)
	return paused, fail("pause", q.name, err)
}

// PauseTx is like [Queue.Pause], within tx: no job starts once tx is committed.
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
	audit := engine.AuditActor(ctx, "pause", q.auditTarget(key)...)
	write := func(ctx context.Context, tx engine.Querier, now time.Time) (err error) {
		if key == "" {
			_, was, err = q.db.pauses.Set(ctx, tx, q.name, row, now.Unix())
		} else {
			_, was, err = q.db.pauses.SetKey(ctx, tx, q.name, key, row, now.Unix())
		}
		if err != nil {
			return err
		}
		return audit.NoteOne(ctx, tx, now)
	}
	err = q.db.write(ctx, c, write, func() {
		if key == "" {
			q.db.running.Release(q.name)
		}
		q.db.engine.Notifier.Wake(q.ready()) // sleepers have to learn of Until
		q.db.opts.Observer.Paused(Paused{Queue: q.name, Key: key, Until: engine.InstantMS(row.UntilMS), Actor: engine.Actor(ctx)})
	})
	return err == nil && !was, err
}

// Resume ends the pause of the queue: its jobs can start again, in all processes. It returns
// false where the queue was not paused, or Until has passed. It waits for the writer until ctx
// ends or BusyTimeout has passed. Inside [DB.Tx] it is [ErrInTx].
func (q *Queue[T]) Resume(ctx context.Context) (bool, error) {
	was, err := q.resume(ctx, alone("ResumeTx"))
	return was, fail("resume", q.name, err)
}

// ResumeTx is like [Queue.Resume], within tx.
func (q *Queue[T]) ResumeTx(ctx context.Context, tx Tx) (bool, error) {
	was, err := q.resume(ctx, within(tx))
	return was, fail("resume", q.name, err)
}

// ResumeKey is Resume of a pause with that [PauseOptions.Key]: jobs that have it can start again, unless the
// queue is paused too.
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
	return q.endPause(ctx, c, "", func(ctx context.Context, tx engine.Querier, now int64) (bool, error) {
		return q.db.pauses.End(ctx, tx, q.name, now)
	})
}

func (q *queue) resumeKey(ctx context.Context, c carrier, key string) (bool, error) {
	if err := errors.Join(q.err, engine.CheckName("key", key)); err != nil {
		return false, err
	}
	return q.endPause(ctx, c, key, func(ctx context.Context, tx engine.Querier, now int64) (bool, error) {
		return q.db.pauses.EndKey(ctx, tx, q.name, key, now)
	})
}

// auditTarget is the queue, or a key of it.
func (q *queue) auditTarget(key string) []string {
	if key == "" {
		return []string{"queue", q.name}
	}
	return []string{"queue", q.name, "key", key}
}

// endPause ends a pause by end, of a key unless that is "".
func (q *queue) endPause(ctx context.Context, c carrier, key string, end func(ctx context.Context, tx engine.Querier, now int64) (bool, error)) (was bool, err error) {
	audit := engine.AuditActor(ctx, "resume", q.auditTarget(key)...)
	write := func(ctx context.Context, tx engine.Querier, now time.Time) (err error) {
		if was, err = end(ctx, tx, now.Unix()); err != nil || !was {
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
		err = q.db.fitJobs(ctx, q.name) // what pauses of keys have left, after the last one
	}
	return true, err
}

// endPauses removes what pauses have left that ended by themselves.
func (db *DB) endPauses(ctx context.Context) error {
	over := false
	err := db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		over, err = db.pauses.Over(ctx, q, time.Now().Unix())
		return err
	})
	if err != nil || !over {
		return err
	}
	return db.engine.Write(ctx, "", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) error {
		_, err := db.pauses.EndOver(ctx, q, now.Unix())
		return err
	}))
}
