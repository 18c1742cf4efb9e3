package honker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker/internal/cron"
	"github.com/honker-go/honker/internal/store"
)

// Scheduler turns times into jobs: when a schedule is due, [Scheduler.Run] enqueues a job
// to its queue. Schedules are kept in the file, shared with honker's bindings in other
// languages. It is a cheap handle.
type Scheduler struct{ db *DB }

// Scheduler returns the file's scheduler.
func (db *DB) Scheduler() *Scheduler { return &Scheduler{db} }

// Schedule says when which job is enqueued. Name is unique in the file.
//
// Spec is honker's dialect. "@every 90s" counts from the registration, then from each
// fire; units are s, m, h and d. Otherwise 5 fields, minute, hour, day of month, month,
// day of week (0 to 6, Sunday is 0), or 6 with the second before them; each a list of
// numbers, ranges and *, with steps: "0 9-17/2 * * 1-5". Unlike in other crons both day
// fields have to match. Times are those of this process's local zone: a time that a zone
// skips fires when the clocks have moved on, one that it has twice fires the second time.
type Schedule struct {
	Name        string
	Queue       string
	Spec        string
	Payload     any           // of the job, as JSON; nil is null
	Priority    int           //
	MaxAttempts int           // default 3
	ExpiresIn   time.Duration // not started so long after it was enqueued: never started; 0: none
}

// ScheduleInfo is a schedule as it is in the file.
type ScheduleInfo struct {
	Name        string
	Queue       string
	Spec        string
	Payload     json.RawMessage
	Priority    int
	MaxAttempts int
	ExpiresIn   time.Duration // 0: none
	Enabled     bool          // false: paused
	NextFireAt  time.Time     // may be over: the next Tick fires it
}

// ScheduleChange is what [Scheduler.Update] changes; nil leaves a field as it is.
type ScheduleChange struct {
	Spec        *string // the next fire is computed from now
	Payload     *any
	Priority    *int
	MaxAttempts *int           // 0: the default, 3
	ExpiresIn   *time.Duration // 0: none
}

// Fire is a schedule that was due and became a job.
type Fire struct {
	Name   string
	Queue  string
	FireAt time.Time // when it was due
	JobID  int64
}

const scheduleAttempts = 3

// nextFire is store.NextFunc for this process's zone.
func nextFire(spec string, after int64) (int64, error) {
	at, err := nextAfter(spec, time.Unix(after, 0))
	return at.Unix(), err
}

// NextAfter returns the first second after from at which spec is due, see [Schedule]. It
// reads no file. A spec that makes no sense, or is never due, is [ErrInvalid]: the texts
// are honker's.
func NextAfter(spec string, from time.Time) (time.Time, error) {
	at, err := nextAfter(spec, from)
	return at, fail("schedule", spec, err)
}

func nextAfter(spec string, from time.Time) (time.Time, error) {
	s, err := cron.Parse(spec)
	var at time.Time
	if err == nil {
		at, err = s.Next(from, time.Local)
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return at, nil
}

// task checks sch and turns it into a row that is due next after now.
func (s *Scheduler) task(sch Schedule, now time.Time) (t store.Task, err error) {
	err = errors.Join(checkName("schedule name", sch.Name), checkName("queue name", sch.Queue),
		notNegative("ExpiresIn", sch.ExpiresIn), checkAttempts(sch.MaxAttempts))
	if err != nil {
		return t, err
	}
	next, err := nextFire(sch.Spec, now.Unix())
	if err != nil {
		return t, err
	}
	text, err := encode(sch.Payload, s.db.opts.MaxPayload)
	return store.Task{
		Name: sch.Name, Queue: sch.Queue, Spec: sch.Spec, Payload: text,
		Priority: int64(sch.Priority), ExpiresIn: seconds(sch.ExpiresIn),
		MaxAttempts: attemptsOr(sch.MaxAttempts, scheduleAttempts), NextFire: next,
	}, err
}

func checkAttempts(n int) error {
	if n < 0 {
		return fmt.Errorf("%w: MaxAttempts %d", ErrInvalid, n)
	}
	return nil
}

func attemptsOr(n, otherwise int) int64 {
	if n == 0 {
		n = otherwise
	}
	return int64(n)
}

// Register adds a schedule, or changes the one of that name, which stays paused if it is.
// Its first fire is the first time after now; registering it again with the same Spec
// does not push the next fire away, so that a service may register at every start.
func (s *Scheduler) Register(ctx context.Context, sch Schedule) error {
	t, err := s.task(sch, time.Now())
	if err == nil {
		err = s.db.do(ctx, "RegisterTx", writeOne(func(ctx context.Context, q store.Querier, _ time.Time) error {
			return store.Schedules{}.Register(ctx, q, t)
		}))
	}
	return fail("register schedule", sch.Name, err)
}

// RegisterTx is like [Scheduler.Register], within tx.
func (s *Scheduler) RegisterTx(ctx context.Context, tx Tx, sch Schedule) error {
	t, err := s.task(sch, time.Now())
	if err == nil {
		tx, err = s.db.in(ctx, tx)
	}
	if err == nil {
		err = store.Schedules{}.Register(ctx, tx, t)
	}
	return fail("register schedule", sch.Name, err)
}

// Unregister removes a schedule; jobs that it has enqueued stay. false: there is none.
func (s *Scheduler) Unregister(ctx context.Context, name string) (bool, error) {
	return s.change(ctx, "unregister schedule", name, func(ctx context.Context, q store.Querier, _ time.Time) (bool, error) {
		return store.Schedules{}.Unregister(ctx, q, name)
	})
}

// Pause stops a schedule from firing. false: there is none, or it is paused.
func (s *Scheduler) Pause(ctx context.Context, name string) (bool, error) {
	return s.change(ctx, "pause schedule", name, func(ctx context.Context, q store.Querier, _ time.Time) (bool, error) {
		return store.Schedules{}.Enable(ctx, q, name, false)
	})
}

// Resume lets a paused schedule fire again. As in honker, what it has missed is caught
// up with, the oldest 64 times at most. false: there is none, or it is not paused.
func (s *Scheduler) Resume(ctx context.Context, name string) (bool, error) {
	return s.change(ctx, "resume schedule", name, func(ctx context.Context, q store.Querier, _ time.Time) (bool, error) {
		return store.Schedules{}.Enable(ctx, q, name, true)
	})
}

// Update changes parts of a schedule; jobs that it has enqueued stay as they are. false:
// there is none, or nothing to change.
func (s *Scheduler) Update(ctx context.Context, name string, ch ScheduleChange) (bool, error) {
	if ch == (ScheduleChange{}) {
		return false, fail("update schedule", name, checkName("schedule name", name))
	}
	apply, err := ch.prepare(s.db.opts.MaxPayload)
	if err != nil {
		return false, fail("update schedule", name, err)
	}
	return s.change(ctx, "update schedule", name, func(ctx context.Context, q store.Querier, now time.Time) (bool, error) {
		t, found, err := store.Schedules{}.Get(ctx, q, name)
		if err != nil || !found {
			return false, err
		}
		if err := apply(&t, now); err != nil {
			return false, err
		}
		return true, store.Schedules{}.Update(ctx, q, t)
	})
}

// prepare checks what can be checked without the schedule.
func (ch ScheduleChange) prepare(maxPayload int) (apply func(*store.Task, time.Time) error, err error) {
	var text string
	if ch.Payload != nil {
		text, err = encode(*ch.Payload, maxPayload)
	}
	if ch.ExpiresIn != nil {
		err = errors.Join(err, notNegative("ExpiresIn", *ch.ExpiresIn))
	}
	if ch.MaxAttempts != nil {
		err = errors.Join(err, checkAttempts(*ch.MaxAttempts))
	}
	return func(t *store.Task, now time.Time) error { return ch.apply(t, text, now) }, err
}

func (ch ScheduleChange) apply(t *store.Task, text string, now time.Time) (err error) {
	if ch.Payload != nil {
		t.Payload = text
	}
	if ch.Priority != nil {
		t.Priority = int64(*ch.Priority)
	}
	if ch.MaxAttempts != nil {
		t.MaxAttempts = attemptsOr(*ch.MaxAttempts, scheduleAttempts)
	}
	if ch.ExpiresIn != nil {
		t.ExpiresIn = seconds(*ch.ExpiresIn)
	}
	if ch.Spec != nil {
		t.Spec = *ch.Spec
		t.NextFire, err = nextFire(t.Spec, now.Unix())
	}
	return err
}

// change runs a verb that reports whether it changed something.
func (s *Scheduler) change(ctx context.Context, verb, name string, run func(context.Context, store.Querier, time.Time) (bool, error)) (changed bool, err error) {
	if err = checkName("schedule name", name); err == nil {
		err = s.db.do(ctx, "", write(func(ctx context.Context, q store.Querier, now time.Time) (err error) {
			changed, err = run(ctx, q, now)
			return err
		}))
	}
	return changed, fail(verb, name, err)
}

// List returns all schedules by name.
func (s *Scheduler) List(ctx context.Context) ([]ScheduleInfo, error) {
	if s.db.isClosed() {
		return nil, fail("list schedules", "", ErrClosed)
	}
	rows, err := store.Schedules{}.List(ctx, s.db.own)
	infos := make([]ScheduleInfo, len(rows))
	for i, t := range rows {
		infos[i] = ScheduleInfo{
			Name: t.Name, Queue: t.Queue, Spec: t.Spec, Payload: json.RawMessage(t.Payload),
			Priority: int(t.Priority), MaxAttempts: int(t.MaxAttempts),
			ExpiresIn: time.Duration(t.ExpiresIn) * time.Second, Enabled: t.Enabled, NextFireAt: instant(t.NextFire),
		}
	}
	return infos, fail("list schedules", "", s.db.because(err))
}

// Soonest returns when a schedule is due next that is not paused; it may be over. The
// zero time: there is none.
func (s *Scheduler) Soonest(ctx context.Context) (time.Time, error) {
	if s.db.isClosed() {
		return time.Time{}, fail("soonest schedule", "", ErrClosed)
	}
	unix, err := store.Schedules{}.Soonest(ctx, s.db.own)
	return instant(unix), fail("soonest schedule", "", s.db.because(err))
}

// Trigger enqueues the schedule's job now and returns its id; the next fire is untouched,
// and a paused schedule may be triggered. [ErrNotFound]: there is none.
func (s *Scheduler) Trigger(ctx context.Context, name string) (id int64, err error) {
	var t store.Task
	_, err = s.change(ctx, "trigger schedule", name, func(ctx context.Context, q store.Querier, now time.Time) (found bool, err error) {
		if t, found, err = (store.Schedules{}).Get(ctx, q, name); err == nil && !found {
			err = ErrNotFound
		}
		if err == nil {
			id, err = store.Schedules{}.Trigger(ctx, q, t, now.Unix())
		}
		return found, err
	})
	if err == nil {
		s.db.hub.hint(queueWork, t.Queue)
	}
	return id, err
}
