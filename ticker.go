package honker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker/internal/store"
)

// Tick enqueues a job for every time at which a schedule was due until now and has not
// been fired, and returns them in order; of one schedule the oldest 64, the others are
// passed over. The jobs can run at once. The schedules move on in the same transaction:
// two ticks at once fire nothing twice. It does not ask who leads.
//
// A schedule whose Spec makes no sense, which only another hand can have written, is
// paused and named by the error; the others have fired.
func (s *Scheduler) Tick(ctx context.Context, now time.Time) ([]Fire, error) {
	fires, err := s.tick(ctx, now, nil)
	return fires, fail("tick", "", err)
}

// tick fires what is due until due, in this transaction or, where there is a lock, not at
// all.
func (s *Scheduler) tick(ctx context.Context, due time.Time, lock *Lock) ([]Fire, error) {
	var rows []store.Fire
	var broken []store.Broken
	err := s.db.do(ctx, "", write(func(ctx context.Context, q store.Querier, now time.Time) (err error) {
		if lock != nil {
			err = lock.stillHeld(ctx, q, now.Unix())
		}
		if err == nil {
			rows, broken, err = store.Schedules{}.Tick(ctx, q, due.Unix(), now.Unix(), nextFire)
		}
		return err
	}))
	if err != nil {
		return nil, err
	}
	return s.fired(rows), paused(broken)
}

// fired wakes who waits for the jobs, and tells the observer.
func (s *Scheduler) fired(rows []store.Fire) []Fire {
	fires := make([]Fire, len(rows))
	for i, r := range rows {
		fires[i] = Fire{Name: r.Name, Queue: r.Queue, FireAt: instant(r.At), JobID: r.Job}
		s.db.hub.hint(queueWork, r.Queue)
		s.db.opts.Observer.fired(Fired{Schedule: r.Name, Queue: r.Queue, FireAt: fires[i].FireAt, JobID: r.Job})
	}
	return fires
}

func paused(broken []store.Broken) error {
	var errs []error
	for _, b := range broken {
		errs = append(errs, fmt.Errorf("schedule %q was paused: %w", b.Name, b.Err))
	}
	return errors.Join(errs...)
}

// schedulerLock is held by whoever fires, in whatever language.
const schedulerLock = "honker-scheduler"

// Run fires schedules when they are due, until ctx ends; then it returns nil. Run it in
// any number of processes: the one that has the lock "honker-scheduler" leads, the others
// stand by and take over when the leader ends, or a minute after it has died. It waits
// without polling, and notices what other processes change.
//
// [ErrLeadershipLost]: somebody took the lock, because this process stood still for longer
// than it lasts. It has fired nothing since; call Run again to stand by. What fails
// otherwise is logged and tried again; Run itself fails only when the DB is closed
// ([ErrClosed]) or its file was replaced.
func (s *Scheduler) Run(ctx context.Context) error {
	if err := inTx(ctx, s.db, ""); err != nil {
		return fail("run scheduler", "", err)
	}
	run, leave, err := s.db.enter(ctx)
	if err != nil {
		return fail("run scheduler", "", err)
	}
	defer leave()
	if err = s.db.whileLeading(run, schedulerLock, s.lead); ctx.Err() != nil {
		return nil
	}
	return fail("run scheduler", "", err)
}

// lead fires until ctx ends.
func (s *Scheduler) lead(ctx context.Context, lock *Lock) error {
	sleep := s.db.hub.subscribe(topic{scheduleDue, ""})
	defer sleep.leave()
	for {
		err := s.step(ctx, sleep, lock)
		if ctx.Err() != nil || errors.Is(err, ErrLockLost) || errors.Is(err, ErrClosed) || errors.Is(err, ErrDatabaseReplaced) {
			return err
		}
		if err != nil {
			s.db.opts.Logger.Error("honker: a tick of the scheduler has failed", "error", err)
			_ = sleep.waitFor(ctx, tickPause)
		}
	}
}

// step fires what is due, or waits.
func (s *Scheduler) step(ctx context.Context, sleep *sleeper, lock *Lock) error {
	due, err := s.due(ctx) // after subscribing: a change between is not missed
	if err == nil && !due {
		return sleep.wait(ctx)
	}
	if err == nil {
		_, err = s.tick(ctx, time.Now(), lock)
	}
	return err
}

// due reads whether there is something to fire, and has the hub look when there will be.
func (s *Scheduler) due(ctx context.Context) (bool, error) {
	soonest, err := store.Schedules{}.Soonest(context.WithoutCancel(ctx), s.db.own)
	if err != nil {
		return false, s.db.because(err)
	}
	if soonest != 0 && soonest <= time.Now().Unix() {
		return true, nil
	}
	s.db.hub.expect(soonest)
	return false, nil
}

// tickPause is how long a scheduler whose tick has failed waits before it tries again.
const tickPause = time.Second
