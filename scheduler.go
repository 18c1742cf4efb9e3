package honker

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/honker-go/honker/internal/cron"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/store"
	"github.com/honker-go/honker/internal/wake"
)

// scheduleStore are the statements about schedules.
type scheduleStore interface {
	Register(ctx context.Context, q engine.Querier, t store.Task) error
	Spec(ctx context.Context, q engine.Querier, name string) (string, error)
	SetMissed(ctx context.Context, q engine.Querier, name string, m store.Missed) error
	Unregister(ctx context.Context, q engine.Querier, name string) (bool, error)
	Enable(ctx context.Context, q engine.Querier, name string, enabled bool) (bool, error)
	Update(ctx context.Context, q engine.Querier, t store.Task) error
	Get(ctx context.Context, q engine.Querier, name string) (t store.Task, found bool, err error)
	List(ctx context.Context, q engine.Querier) ([]store.Task, error)
	Soonest(ctx context.Context, q engine.Querier) (int64, error)
	Tick(ctx context.Context, q engine.Querier, due, now int64, in store.Calendar, limit int) (store.Ticked, error)
	Trigger(ctx context.Context, q engine.Querier, t store.Task, now int64) (int64, error)
}

// Scheduler turns times into jobs: when a schedule is due, [Scheduler.Run] enqueues a job
// to its queue. Schedules are kept in the file, shared with honker's bindings in other
// languages. It is a cheap handle.
type Scheduler struct{ db *DB }

// Scheduler returns the file's scheduler.
func (db *DB) Scheduler() *Scheduler { return &Scheduler{db} }

// Schedule says when which job is enqueued. Name is unique in the file.
//
// Spec is 5 fields, minute, hour, day of month, month, day of week, or 6 with the second
// before them. A field is a list of values and ranges, or *, with steps: "0 9-17/2 * * MON-FRI".
// Months and days may be named; Sunday is 0 or 7. "@hourly", "@daily", "@weekly", "@monthly"
// and "@yearly" are short for the first moment of each. "@every 90s" counts from the
// registration, then from each fire: a number with the unit s, m, h or d, or a duration of
// whole seconds such as 1h30m.
//
// Two rules come from honker, since its schedulers in other languages read the same rows, and
// differ from other crons. Both day fields have to match: "0 2 1 * 1" fires on the first of a
// month only if that is a Monday. And a step needs a range or *: "5/15" is the value 5.
//
// Times are those of the local zone of the process that fires, time.Local: a time that a zone
// skips fires when the clocks have moved on, one that it has twice fires the second time.
// Where the machine has no zones, Go takes UTC for local: import time/tzdata. A schedule has
// no zone of its own, because no other binding would know of it; "?" and CRON_TZ= are
// [ErrInvalid].
type Schedule struct {
	Name        string
	Queue       string
	Spec        string
	Payload     any           // of each job, as JSON; nil is null, which decodes into a zero value
	Priority    int           // larger first
	MaxAttempts int           // default 25
	ExpiresIn   time.Duration // not started so long after it was enqueued: never started; 0: none
	Missed      Missed        // default FireAll
}

// Missed is what a schedule does with times that have passed while no scheduler ran, or while
// it was paused. It is kept in the file for schedulers of this package; honker's in other
// languages always fire all.
type Missed int

const (
	FireAll  Missed = iota // each of them, the oldest 64 at most, and passes over the others
	FireLast               // only the last of them
	Skip                   // none; a time that is up to 90 seconds over counts as now, so that nothing is lost when another process takes over from one that died
)

func (m Missed) check() error {
	if m < FireAll || m > Skip {
		return fmt.Errorf("%w: Missed %d", ErrInvalid, m)
	}
	return nil
}

// ScheduleInfo is a schedule as it is in the file. Spec is in honker's dialect, "0 0 * * *" for
// "@daily".
type ScheduleInfo struct {
	Name        string
	Queue       string
	Spec        string
	Payload     json.RawMessage
	Priority    int
	MaxAttempts int
	ExpiresIn   time.Duration // 0: none
	Missed      Missed
	Enabled     bool      // false: paused
	NextFireAt  time.Time // may be over: the next Tick fires it
}

// ScheduleChange is what [Scheduler.Update] changes; nil leaves a field as it is.
type ScheduleChange struct {
	Spec        *string // the next fire is computed from now
	Payload     *any
	Priority    *int
	MaxAttempts *int           // 0: the default, 25
	ExpiresIn   *time.Duration // 0: none
	Missed      *Missed
}

// Fire is a schedule that was due and became a job.
type Fire struct {
	Name   string
	Queue  string
	FireAt time.Time // when it was due; the job's RunAt
	JobID  int64
}

// calendar has the dialect of the file and the local zone.
var calendar cron.Local

// NextAfter returns the first second after from at which spec is due, see [Schedule]. It
// reads no file. A spec that makes no sense, or is never due, is [ErrInvalid].
func NextAfter(spec string, from time.Time) (time.Time, error) {
	_, at, err := plan(spec, from)
	return at, fail("schedule", spec, err)
}

// plan returns spec in the dialect of the file, and when it is due first after from.
func plan(spec string, from time.Time) (plain string, next time.Time, err error) {
	plain, next, err = calendar.Plan(spec, from)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return plain, next, nil
}

// task checks sch and turns it into a row that is due next after now.
func (s *Scheduler) task(sch Schedule, now time.Time) (t store.Task, err error) {
	err = errors.Join(engine.CheckName("schedule name", sch.Name), engine.CheckName("queue name", sch.Queue),
		engine.NotNegative("ExpiresIn", sch.ExpiresIn), checkMaxAttempts(sch.MaxAttempts), sch.Missed.check())
	if err != nil {
		return t, err
	}
	spec, next, err := plan(sch.Spec, now)
	if err != nil {
		return t, err
	}
	text, err := s.db.encode(sch.Payload)
	return store.Task{
		Name: sch.Name, Queue: sch.Queue, Spec: spec, Payload: text, Missed: store.Missed(sch.Missed),
		Priority: int64(sch.Priority), ExpiresIn: expiresIn(sch.ExpiresIn),
		MaxAttempts: attemptsOr(sch.MaxAttempts, defaultAttempts), NextFire: next.Unix(),
	}, err
}

func attemptsOr(n, otherwise int) int64 {
	if n == 0 {
		n = otherwise
	}
	return int64(n)
}

// expiresIn is what is stored for d. A 0 in the file is no NULL: honker's SQL functions store it
// as it is given, and the jobs expire with the second in which they are enqueued.
func expiresIn(d time.Duration) sql.NullInt64 {
	return sql.NullInt64{Int64: engine.Seconds(d), Valid: d > 0}
}

// Register adds a schedule, or changes the one of that name, which stays paused if it is.
// Its first fire is the first time after now; registering it again with the same Spec
// does not push the next fire away, so that a service may register at every start. Another
// Spec than before is logged, since two processes may be of different minds.
func (s *Scheduler) Register(ctx context.Context, sch Schedule) error {
	t, err := s.task(sch, time.Now())
	if err != nil {
		return fail("register schedule", sch.Name, err)
	}
	var before string
	err = s.db.engine.Write(ctx, "RegisterTx", engine.OpFunc(func(ctx context.Context, q engine.Querier, _ time.Time) (err error) {
		if before, err = s.db.schedules.Spec(ctx, q, t.Name); err != nil {
			return err
		}
		return s.register(ctx, q, t)
	}))
	if err == nil && before != "" && before != t.Spec {
		s.db.opts.Logger.Warn("honker: schedule registered with another spec than before: where processes differ, each moves its next fire",
			"schedule", t.Name, "spec", t.Spec, "before", before)
	}
	return fail("register schedule", sch.Name, err)
}

// RegisterTx is like [Scheduler.Register], within tx.
func (s *Scheduler) RegisterTx(ctx context.Context, tx Tx, sch Schedule) error {
	t, err := s.task(sch, time.Now())
	if err != nil {
		return fail("register schedule", sch.Name, err)
	}
	on, err := s.db.join(ctx, tx)
	if err != nil {
		return fail("register schedule", sch.Name, err)
	}
	return fail("register schedule", sch.Name, s.register(ctx, on, t))
}

func (s *Scheduler) register(ctx context.Context, q engine.Querier, t store.Task) error {
	if err := s.db.schedules.Register(ctx, q, t); err != nil {
		return err
	}
	return s.db.schedules.SetMissed(ctx, q, t.Name, t.Missed)
}

// Unregister removes a schedule; jobs that it has enqueued stay. false: there is none.
func (s *Scheduler) Unregister(ctx context.Context, name string) (bool, error) {
	return s.change(ctx, "unregister schedule", name, func(ctx context.Context, q engine.Querier, _ time.Time) (bool, error) {
		return s.db.schedules.Unregister(ctx, q, name)
	})
}

// Pause stops a schedule from firing. false: there is none, or it is paused.
func (s *Scheduler) Pause(ctx context.Context, name string) (bool, error) {
	return s.change(ctx, "pause schedule", name, func(ctx context.Context, q engine.Querier, _ time.Time) (bool, error) {
		return s.db.schedules.Enable(ctx, q, name, false)
	})
}

// Resume lets a paused schedule fire again. What it has missed is caught up as its Missed
// says. false: there is none, or it is not paused.
func (s *Scheduler) Resume(ctx context.Context, name string) (bool, error) {
	return s.change(ctx, "resume schedule", name, func(ctx context.Context, q engine.Querier, _ time.Time) (bool, error) {
		return s.db.schedules.Enable(ctx, q, name, true)
	})
}

// Update changes parts of a schedule; jobs that it has enqueued stay as they are. false:
// there is none, or nothing to change.
func (s *Scheduler) Update(ctx context.Context, name string, ch ScheduleChange) (bool, error) {
	if ch == (ScheduleChange{}) {
		return false, fail("update schedule", name, engine.CheckName("schedule name", name))
	}
	apply, err := ch.prepare(s.db.encode)
	if err != nil {
		return false, fail("update schedule", name, err)
	}
	return s.change(ctx, "update schedule", name, func(ctx context.Context, q engine.Querier, now time.Time) (bool, error) {
		t, found, err := s.db.schedules.Get(ctx, q, name)
		if err != nil || !found {
			return false, err
		}
		if err := apply(&t, now); err != nil {
			return false, err
		}
		if err := s.db.schedules.Update(ctx, q, t); err != nil {
			return false, err
		}
		return true, s.db.schedules.SetMissed(ctx, q, name, t.Missed)
	})
}

// prepare checks what can be checked without the schedule.
func (ch ScheduleChange) prepare(encode func(any) (string, error)) (apply func(*store.Task, time.Time) error, err error) {
	var text string
	if ch.Payload != nil {
		text, err = encode(*ch.Payload)
	}
	if ch.ExpiresIn != nil {
		err = errors.Join(err, engine.NotNegative("ExpiresIn", *ch.ExpiresIn))
	}
	if ch.MaxAttempts != nil {
		err = errors.Join(err, checkMaxAttempts(*ch.MaxAttempts))
	}
	if ch.Missed != nil {
		err = errors.Join(err, ch.Missed.check())
	}
	return func(t *store.Task, now time.Time) error { return ch.apply(t, text, now) }, err
}

func (ch ScheduleChange) apply(t *store.Task, text string, now time.Time) error {
	if ch.Payload != nil {
		t.Payload = text
	}
	if ch.Priority != nil {
		t.Priority = int64(*ch.Priority)
	}
	if ch.MaxAttempts != nil {
		t.MaxAttempts = attemptsOr(*ch.MaxAttempts, defaultAttempts)
	}
	if ch.ExpiresIn != nil {
		t.ExpiresIn = expiresIn(*ch.ExpiresIn)
	}
	if ch.Missed != nil {
		t.Missed = store.Missed(*ch.Missed)
	}
	if ch.Spec == nil {
		return nil
	}
	spec, next, err := plan(*ch.Spec, now)
	t.Spec, t.NextFire = spec, next.Unix()
	return err
}

// change runs a verb that reports whether it changed something.
func (s *Scheduler) change(ctx context.Context, verb, name string, run func(context.Context, engine.Querier, time.Time) (bool, error)) (changed bool, err error) {
	if err := engine.CheckName("schedule name", name); err != nil {
		return false, fail(verb, name, err)
	}
	err = s.db.engine.Write(ctx, "", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
		changed, err = run(ctx, q, now)
		return err
	}))
	return changed, fail(verb, name, err)
}

// List returns all schedules by name.
func (s *Scheduler) List(ctx context.Context) (infos []ScheduleInfo, err error) {
	err = s.db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) error {
		rows, err := s.db.schedules.List(ctx, q)
		infos = make([]ScheduleInfo, len(rows))
		for i, t := range rows {
			infos[i] = ScheduleInfo{
				Name: t.Name, Queue: t.Queue, Spec: t.Spec, Payload: json.RawMessage(t.Payload),
				Priority: int(t.Priority), MaxAttempts: int(t.MaxAttempts),
				ExpiresIn: engine.Span(t.ExpiresIn.Int64), Missed: Missed(t.Missed), Enabled: t.Enabled, NextFireAt: engine.Instant(t.NextFire),
			}
		}
		return err
	})
	return infos, fail("list schedules", "", err)
}

// Soonest returns when a schedule is due next that is not paused; it may be over. The
// zero time: there is none.
func (s *Scheduler) Soonest(ctx context.Context) (time.Time, error) {
	unix, err := s.soonest(ctx)
	return engine.Instant(unix), fail("soonest schedule", "", err)
}

func (s *Scheduler) soonest(ctx context.Context) (unix int64, err error) {
	err = s.db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		unix, err = s.db.schedules.Soonest(ctx, q)
		return err
	})
	return unix, err
}

// Trigger enqueues the schedule's job now and returns its id; the next fire is untouched,
// and a paused schedule may be triggered. [ErrNotFound]: there is none.
func (s *Scheduler) Trigger(ctx context.Context, name string) (id int64, err error) {
	var t store.Task
	_, err = s.change(ctx, "trigger schedule", name, func(ctx context.Context, q engine.Querier, now time.Time) (found bool, err error) {
		if t, found, err = s.db.schedules.Get(ctx, q, name); err != nil {
			return false, err
		}
		if !found {
			return false, ErrNotFound
		}
		id, err = s.db.schedules.Trigger(ctx, q, t, now.Unix())
		return true, err
	})
	if err != nil {
		return 0, err
	}
	s.db.engine.Notifier.Wake(wake.Change{Kind: wake.QueueReady, Name: t.Queue})
	return id, nil
}

// Tick enqueues a job for every time at which a schedule was due until now and has not
// been fired, as far as its Missed says, and returns them in order. A job's RunAt is the time
// at which it was due: the jobs can run at once. It does not ask which process leads.
//
// Much that is due is fired in several transactions with pauses between them, in which other
// writers get the file. A schedule moves on in the transaction that fires it: two ticks at
// once fire nothing twice. When ctx ends Tick returns its error, and what was fired until then.
//
// The error names the schedules that could not be fired as they say; the others have fired,
// and are returned beside it. One with a Spec that makes no sense, which only another program
// can have written, is paused. A trigger of the application's may drop a job, which is
// [ErrNotInserted], and the schedule goes on; where a trigger keeps a schedule from moving on,
// it does not fire, and is paused.
func (s *Scheduler) Tick(ctx context.Context, now time.Time) ([]Fire, error) {
	var fires []Fire
	err := s.tick(ctx, now, nil, func(chunk []Fire) { fires = append(fires, chunk...) })
	return fires, fail("tick", "", err)
}

// tick fires what is due until due, in transactions that each check lock; without the lock
// they fire nothing. A nil lock is not checked.
func (s *Scheduler) tick(ctx context.Context, due time.Time, lock *Lock, told func([]Fire)) error {
	var broken []error
	p := s.db.engine.NewPace()
	for {
		var did store.Ticked
		err := p.Write(ctx, func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
			if lock != nil {
				if err := lock.stillHeld(ctx, q, now.Unix()); err != nil {
					return err
				}
			}
			did, err = s.db.schedules.Tick(ctx, q, due.Unix(), now.Unix(), calendar, p.Size)
			return err
		})
		if err != nil {
			return errors.Join(append(broken, err)...)
		}
		told(s.fired(did.Fires))
		for _, b := range did.Broken {
			if !slices.Contains(broken, b) { // one that can be neither moved nor paused is met again
				broken = append(broken, b)
			}
		}
		if !did.More {
			return errors.Join(broken...)
		}
		if err := p.Rest(ctx); err != nil {
			return errors.Join(append(broken, err)...)
		}
	}
}

// fired wakes the workers that wait for the jobs, and tells the observer.
func (s *Scheduler) fired(rows []store.Fire) []Fire {
	fires := make([]Fire, len(rows))
	for i, r := range rows {
		fires[i] = Fire{Name: r.Name, Queue: r.Queue, FireAt: engine.Instant(r.At), JobID: r.Job}
		s.db.engine.Notifier.Wake(wake.Change{Kind: wake.QueueReady, Name: r.Queue})
		s.db.opts.Observer.Fired(fires[i])
	}
	return fires
}

// schedulerLock is held by the process that fires, in whatever language.
const schedulerLock = "honker-scheduler"

// Run fires schedules when they are due, until ctx ends; then it returns nil. Run it in
// any number of processes: the one that has the lock "honker-scheduler" leads, the others
// stand by and take over when the leader ends, or a minute after it has died. It waits
// without polling, and notices what other processes change.
//
// [ErrLeadershipLost]: another process took the lock, because this one stood still for longer
// than it lasts. It has fired nothing since; call Run again to stand by. What fails
// otherwise is logged and tried again; Run itself fails only when the DB is closed
// ([ErrClosed]) or its file was replaced.
func (s *Scheduler) Run(ctx context.Context) error {
	if err := s.db.engine.RefuseInTx(ctx, ""); err != nil {
		return fail("run scheduler", "", err)
	}
	run, leave, err := s.db.engine.Enter(ctx)
	if err != nil {
		return fail("run scheduler", "", err)
	}
	defer leave()
	err = s.db.withLeadership(run, schedulerLock, s.lead)
	if ctx.Err() != nil {
		return nil
	}
	return fail("run scheduler", "", err)
}

// lead fires until ctx ends, or the lock is lost.
func (s *Scheduler) lead(ctx context.Context, lock *Lock) error {
	failures := engine.Retry{Log: s.db.opts.Logger, What: "scheduler: tick failed, retrying"}
	for {
		err := s.db.engine.Notifier.Until(ctx, func() (time.Duration, error) {
			if err := s.fireDue(ctx, lock); err != nil {
				return 0, err
			}
			failures.Reset()
			return wake.Forever, nil
		}, wake.Key{Kind: wake.ScheduleDue})
		if errors.Is(err, ErrLockLost) {
			return err
		}
		if err := failures.After(ctx, err); err != nil {
			return err
		}
	}
}

// fireDue fires until nothing is due, and has the notifier look again when something will be.
func (s *Scheduler) fireDue(ctx context.Context, lock *Lock) error {
	for {
		soonest, err := s.soonest(ctx)
		if err != nil {
			return err
		}
		if now := time.Now(); soonest == 0 || soonest > now.Unix() {
			s.db.engine.Notifier.WakeAt(engine.Instant(soonest))
			return nil
		}
		if err := s.tick(ctx, time.Now(), lock, func([]Fire) {}); err != nil {
			return err
		}
	}
}
