package honker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/traffic"
	"github.com/honker-go/honker/internal/wake"
	"github.com/honker-go/honker/observe"
)

// Scheduler manages the schedules of a file. When a schedule is due, [Scheduler.Run] enqueues a job to the
// schedule's queue. Schedules are stored in the file and shared with honker's bindings in other languages. A
// Scheduler is a cheap handle.
type Scheduler struct{ db *DB }

// Fire describes a job that was enqueued for a due schedule; see package observe.
type Fire = observe.Fire

// Scheduler returns a handle for the file's schedules.
func (db *DB) Scheduler() *Scheduler { return &Scheduler{db} }

// Register adds a schedule or changes the schedule with the same name. A paused schedule stays paused. The schedule
// first fires at the first due time after now. Registering the same Spec again does not postpone the next firing, so
// a service may register its schedules each time it starts. A changed Spec is logged, because two processes may
// disagree about it.
func (s *Scheduler) Register(ctx context.Context, sch Schedule) error {
	t, err := s.task(ctx, sch, s.db.engine.Now())
	if err != nil {
		return fail("register schedule", sch.Name, err)
	}
	var before string
	audit := s.auditRegister(ctx, t)
	err = s.db.engine.Write(ctx, "RegisterTx", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
		before, err = s.register(ctx, q, t, audit, now)
		return err
	}))
	if err == nil {
		s.db.engine.Notifier.Wake(wake.Schedules())
	}
	if err == nil && before != "" && before != t.Spec {
		s.db.opts.Logger.Warn("honker: the spec of a schedule has changed; processes that register different specs keep moving its next fire",
			"schedule", t.Name, "spec", t.Spec, "before", before)
	}
	return fail("register schedule", sch.Name, err)
}

// RegisterTx is like [Scheduler.Register] but runs within tx.
func (s *Scheduler) RegisterTx(ctx context.Context, tx Tx, sch Schedule) error {
	now := s.db.engine.Now()
	t, err := s.task(ctx, sch, now)
	if err != nil {
		return fail("register schedule", sch.Name, err)
	}
	on, err := s.db.join(ctx, tx, wake.Schedules())
	if err != nil {
		return fail("register schedule", sch.Name, err)
	}
	_, err = s.register(ctx, on, t, s.auditRegister(ctx, t), now)
	return fail("register schedule", sch.Name, err)
}

func (s *Scheduler) auditRegister(ctx context.Context, t row.Task) *engine.Audit {
	return s.db.engine.AuditActor(ctx, "register schedule", "schedule", t.Name)
}

// register returns the schedule's previous spec.
func (s *Scheduler) register(ctx context.Context, q engine.Querier, t row.Task, audit *engine.Audit, now time.Time) (before string, err error) {
	before, changed, err := s.db.engine.Stores.Schedules.Register(ctx, q, t)
	if err != nil || !changed {
		return before, err
	}
	return before, audit.NoteOne(ctx, q, now)
}

// Unregister removes a schedule and reports whether it existed. Jobs that it has already enqueued are kept.
func (s *Scheduler) Unregister(ctx context.Context, name string) (bool, error) {
	return s.unregister(ctx, alone("UnregisterTx"), name)
}

// UnregisterTx is like [Scheduler.Unregister] but runs within tx.
func (s *Scheduler) UnregisterTx(ctx context.Context, tx Tx, name string) (bool, error) {
	return s.unregister(ctx, within(tx), name)
}

func (s *Scheduler) unregister(ctx context.Context, c carrier, name string) (bool, error) {
	return s.change(ctx, c, "unregister schedule", name, func(ctx context.Context, q engine.Querier, _ time.Time) (bool, error) {
		return s.db.engine.Stores.Schedules.Unregister(ctx, q, name)
	}, noted)
}

// Pause stops a schedule from firing. It returns false if there is no such schedule or if it was already paused.
func (s *Scheduler) Pause(ctx context.Context, name string) (bool, error) {
	return s.enable(ctx, alone("PauseTx"), "pause schedule", name, false)
}

// PauseTx is like [Scheduler.Pause] but runs within tx.
func (s *Scheduler) PauseTx(ctx context.Context, tx Tx, name string) (bool, error) {
	return s.enable(ctx, within(tx), "pause schedule", name, false)
}

// Resume lets a paused schedule fire again. Times missed during the pause are treated according to its Missed
// field. Resume returns false if there is no such schedule or if it was not paused.
func (s *Scheduler) Resume(ctx context.Context, name string) (bool, error) {
	return s.enable(ctx, alone("ResumeTx"), "resume schedule", name, true)
}

// ResumeTx is like [Scheduler.Resume] but runs within tx.
func (s *Scheduler) ResumeTx(ctx context.Context, tx Tx, name string) (bool, error) {
	return s.enable(ctx, within(tx), "resume schedule", name, true)
}

func (s *Scheduler) enable(ctx context.Context, c carrier, verb, name string, enabled bool) (bool, error) {
	return s.change(ctx, c, verb, name, func(ctx context.Context, q engine.Querier, _ time.Time) (bool, error) {
		return s.db.engine.Stores.Schedules.Enable(ctx, q, name, enabled)
	}, noted, wake.Schedules())
}

// Update changes parts of a schedule. Jobs that it has already enqueued do not change. Update returns false if
// there is no such schedule or if ch is empty.
func (s *Scheduler) Update(ctx context.Context, name string, ch ScheduleChange) (bool, error) {
	if ch == (ScheduleChange{}) {
		err := errors.Join(s.db.engine.Writable(), engine.CheckName("schedule name", name))
		return false, fail("update schedule", name, err)
	}
	return s.update(ctx, alone("UpdateTx"), name, ch)
}

// UpdateTx is like [Scheduler.Update] but runs within tx.
func (s *Scheduler) UpdateTx(ctx context.Context, tx Tx, name string, ch ScheduleChange) (bool, error) {
	return s.update(ctx, within(tx), name, ch)
}

func (s *Scheduler) update(ctx context.Context, c carrier, name string, ch ScheduleChange) (bool, error) {
	to, err := ch.prepare(s.db.encode)
	if err = errors.Join(s.db.engine.Writable(), err); err != nil {
		return false, fail("update schedule", name, err)
	}
	return s.change(ctx, c, "update schedule", name, func(ctx context.Context, q engine.Querier, now time.Time) (bool, error) {
		found, err := s.db.engine.Stores.Schedules.List(ctx, q, name)
		if err != nil || len(found) == 0 || ch == (ScheduleChange{}) {
			return false, err
		}
		to := to
		if ch.Spec != nil {
			if to.Spec, to.NextFire, err = plan(*ch.Spec, now); err != nil {
				return false, err
			}
		}
		if ch.Payload != nil {
			text, err := s.db.engine.EncodeJob(ctx, found[0].Queue, *to.Payload)
			if err != nil {
				return false, err
			}
			to.Payload = &text
		}
		return true, s.db.engine.Stores.Schedules.Update(ctx, q, name, to)
	}, noted, wake.Schedules())
}

// change runs a verb that changes a schedule and reports whether the schedule changed.
func (s *Scheduler) change(ctx context.Context, c carrier, verb, name string,
	run func(context.Context, engine.Querier, time.Time) (bool, error), committed func(), changes ...wake.Change) (changed bool, err error) {
	if err := engine.CheckName("schedule name", name); err != nil {
		return false, fail(verb, name, err)
	}
	audit := s.db.engine.AuditActor(ctx, verb, "schedule", name)
	err = s.db.write(ctx, c, func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
		if changed, err = run(ctx, q, now); err != nil || !changed {
			return err
		}
		return audit.NoteOne(ctx, q, now)
	}, committed, changes...)
	return changed, fail(verb, name, err)
}

// List returns all schedules, ordered by name.
func (s *Scheduler) List(ctx context.Context) (infos []ScheduleInfo, err error) {
	err = s.db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) error {
		rows, err := s.db.engine.Stores.Schedules.List(ctx, q, "")
		infos = make([]ScheduleInfo, len(rows))
		for i, t := range rows {
			infos[i] = ScheduleInfo{
				Name: t.Name, Queue: t.Queue, Spec: t.Spec, Payload: json.RawMessage(t.Payload),
				Priority: int(t.Priority), MaxAttempts: int(t.MaxAttempts),
				Missed: Missed(t.Missed), Enabled: t.Enabled, NextFireAt: shown(t.NextFire),
				LastFireAt: t.LastFire, LastJob: t.LastJob, LastSkipAt: t.LastSkip, Skipped: t.Skipped,
			}
			if t.ExpiresIn != nil {
				infos[i].ExpiresIn = *t.ExpiresIn
			}
		}
		return err
	})
	return infos, fail("list schedules", "", err)
}

// shown limits a task's time to the years 1 to 9999. Second 0 stands for no time.
func shown(at time.Time) time.Time { return row.Instant(at.Unix()) }

// maxNext is the maximum number of times that Next computes.
const maxNext = 1000

// Next returns the next n times at which a schedule fires, in the local zone of this process; see [Schedule]. The
// first may be in the past if no scheduler has fired it yet; the others are in the future. For a paused schedule,
// Next returns the times at which it would fire if it were resumed. Next only reads, and never waits for the writer.
// It returns [ErrInvalid] if n is not between 1 and 1000 or if the Spec in the file is malformed, and [ErrNotFound]
// if there is no such schedule.
func (s *Scheduler) Next(ctx context.Context, name string, n int) ([]time.Time, error) {
	times, err := s.next(ctx, name, n)
	return times, fail("list next times of schedule", name, err)
}

func (s *Scheduler) next(ctx context.Context, name string, n int) ([]time.Time, error) {
	err := engine.CheckName("schedule name", name)
	if n < 1 || n > maxNext {
		err = errors.Join(err, fmt.Errorf("%w: the number of times must be between 1 and %d, got %d", ErrInvalid, maxNext, n))
	}
	if err != nil {
		return nil, err
	}
	var found []row.Task
	err = s.db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		found, err = s.db.engine.Stores.Schedules.List(ctx, q, name)
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, ErrNotFound
	}
	times, err := timesOf(found[0], s.db.engine.Now(), n)
	if err != nil { // only another program can have written such a spec
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return times, nil
}

// timesOf returns n times at which t fires. It skips the schedule's times between the stored next time and now.
func timesOf(t row.Task, now time.Time, n int) (times []time.Time, err error) {
	after := t.NextFire
	if after.Unix() < now.Unix() {
		if after, err = calendar.Last(t.Spec, after, now); err != nil {
			return nil, err
		}
	}
	times = append(times, shown(t.NextFire))
	for len(times) < n {
		if after, err = calendar.Next(t.Spec, after); err != nil {
			return nil, err
		}
		times = append(times, shown(after))
	}
	return times, nil
}

// Soonest returns the earliest time at which a schedule that is not paused is due. The time may be in the past.
// Soonest returns the zero time if there is no such schedule.
func (s *Scheduler) Soonest(ctx context.Context) (time.Time, error) {
	at, err := s.soonest(ctx)
	return at, fail("find soonest schedule", "", err)
}

func (s *Scheduler) soonest(ctx context.Context) (at time.Time, err error) {
	err = s.db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		at, err = s.db.engine.Stores.Schedules.Soonest(ctx, q)
		return err
	})
	return at, err
}

// Trigger enqueues a schedule's job now and returns the job's ID. The next firing is unaffected. A paused schedule
// may be triggered. Trigger returns [ErrNotFound] if there is no such schedule.
func (s *Scheduler) Trigger(ctx context.Context, name string) (id int64, err error) {
	return s.trigger(ctx, alone("TriggerTx"), name)
}

// TriggerTx is like [Scheduler.Trigger] but runs within tx. The job exists once tx commits; if tx rolls back, it
// never existed.
func (s *Scheduler) TriggerTx(ctx context.Context, tx Tx, name string) (id int64, err error) {
	return s.trigger(ctx, within(tx), name)
}

func (s *Scheduler) trigger(ctx context.Context, c carrier, name string) (id int64, err error) {
	headers, err := s.db.headersIn(ctx, nil)
	if err != nil {
		return 0, fail("trigger schedule", name, err)
	}
	var f row.Fire
	_, err = s.change(ctx, c, "trigger schedule", name, func(ctx context.Context, q engine.Querier, now time.Time) (found bool, err error) {
		f, found, err = s.db.engine.Stores.Schedules.Trigger(ctx, q, name, headers, now)
		if err == nil && !found {
			err = ErrNotFound
		}
		return found, err
	}, noted)
	if err == nil {
		err = s.db.wakeAfter(ctx, c, wake.Queue(f.Queue))
	}
	if err != nil {
		return 0, err
	}
	return f.Job, nil
}

// Tick enqueues a job for each time up to now at which a schedule was due but has not fired, subject to its
// Missed field. It returns the fires in order. A job's RunAt is the time at which the schedule was due, so the
// jobs can run immediately. Tick does not require leadership.
//
// If many times are due, Tick fires them in several transactions, with pauses in which other writers can proceed. A
// schedule advances in the transaction that fires it, so concurrent calls never fire the same time twice. If ctx
// ends, Tick returns ctx's error and the fires so far.
//
// The error names the schedules that could not be fired as specified. All other schedules have fired, and their
// fires are returned together with the error. A schedule with a malformed Spec, which only another program can
// have written, is paused. If an application's trigger drops a job, the error is [ErrNotInserted] and the
// schedule advances. If a trigger prevents a schedule from advancing, the schedule does not fire and is paused.
func (s *Scheduler) Tick(ctx context.Context, now time.Time) ([]Fire, error) {
	var fires []Fire
	err := s.tick(ctx, now, nil, func(chunk []Fire) { fires = append(fires, chunk...) })
	return fires, fail("tick", "", err)
}

// tick fires the schedules that are due at the time due. Each of its transactions checks that lock is still held and
// fires nothing if it is lost. A nil lock is not checked.
func (s *Scheduler) tick(ctx context.Context, due time.Time, lock *Lock, told func([]Fire)) error {
	headers, err := s.db.headersIn(ctx, nil)
	if err != nil {
		return err
	}
	var broken []error
	p := s.db.engine.NewPace()
	for {
		var did row.Ticked
		err := p.Write(ctx, func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
			if lock != nil {
				if err := lock.stillHeld(ctx, q, now); err != nil {
					return err
				}
			}
			did, err = s.db.engine.Stores.Schedules.Tick(ctx, q, row.Tick{Due: due, Calendar: calendar, Limit: p.Size, Headers: headers}, now)
			return err
		})
		if err != nil {
			return errors.Join(append(broken, err)...)
		}
		told(s.fired(did.Fires))
		for _, b := range did.Broken {
			if !slices.Contains(broken, b) { // a schedule that can neither advance nor be paused is found again every time
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

// fired wakes the workers waiting for the jobs and reports the fires to the observer.
func (s *Scheduler) fired(rows []row.Fire) []Fire {
	fires := make([]Fire, len(rows))
	for i, r := range rows {
		fires[i] = Fire{Name: r.Name, Queue: r.Queue, FireAt: shown(r.At), JobID: r.Job}
		s.db.engine.Notifier.Wake(wake.Queue(r.Queue))
		s.db.traffic.Add(s.db.engine.Now(), r.Queue, traffic.Counts{Enqueued: 1})
		s.db.opts.Observer.Fired(fires[i])
	}
	return fires
}

// schedulerLock is held by the process that fires schedules, in any language.
const schedulerLock = row.SchedulerLock

// Run fires schedules when they are due. It blocks until ctx ends and then returns nil. Run may be called in any
// number of processes: the process that holds the lock "honker-scheduler" is the leader and the others stand by.
// One of them takes over when the leader ends, or a minute after it has died. Run waits without polling and
// notices changes made by other processes.
//
// Run returns [ErrLeadershipLost] if another process has taken the lock because this process was suspended for longer
// than the lock lasts. It hasn't fired anything since then; call Run again to stand by. Run also returns an error if
// the DB is closed ([ErrClosed]) or its file was replaced. Other failures are logged and retried.
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

// lead fires schedules until ctx ends or the lock is lost.
func (s *Scheduler) lead(ctx context.Context, lock *Lock) error {
	failures := engine.Retry{Log: s.db.opts.Logger, Message: "scheduler: tick failed, retrying"}
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

// fireDue fires schedules until none are due, and asks the notifier for a wakeup at the next due time.
func (s *Scheduler) fireDue(ctx context.Context, lock *Lock) error {
	for {
		soonest, err := s.soonest(ctx)
		if err != nil {
			return err
		}
		if soonest.IsZero() || soonest.After(s.db.engine.Now()) {
			s.db.engine.Notifier.WakeAt(soonest)
			return nil
		}
		if err := s.tick(ctx, s.db.engine.Now(), lock, func([]Fire) {}); err != nil {
			return err
		}
	}
}
