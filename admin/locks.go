package admin

import (
	"context"
	"errors"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
)

// LockInfo describes a held lock.
type LockInfo struct {
	Name      string
	Owner     string    // holder's name in the file
	ExpiresAt time.Time // when the lock expires unless renewed
	Leads     bool      // whether the lock is held by a call to Scheduler.Run or Maintain; see Leaders
}

// Locks returns the held locks by name, including the locks of leaders. It never waits for the writer. It
// returns [honker.ErrInvalid] if db is nil.
func Locks(ctx context.Context, db *honker.DB) ([]LockInfo, error) {
	var all []LockInfo
	err := read(ctx, db, func(ctx context.Context, q engine.Querier, s *engine.Stores) error {
		rows, err := s.Locks.Held(ctx, q, "", clock(db))
		all = make([]LockInfo, len(rows))
		for i, row := range rows {
			all[i] = lockOf(row)
		}
		return err
	})
	if err != nil {
		return nil, engine.Wrap("list locks", "", err)
	}
	return all, nil
}

func lockOf(r row.Lock) LockInfo {
	return LockInfo{
		Name:      r.Name,
		Owner:     r.Owner,
		ExpiresAt: r.Expires,
		Leads:     r.Name == row.SchedulerLock || r.Name == row.MaintenanceLock,
	}
}

// LeaderInfo describes the processes that run schedules and maintenance.
type LeaderInfo struct {
	// Scheduler is the lock held by the process that fires schedules, which runs honker.Scheduler.Run
	// or its equivalent in another language. Scheduler is nil if there is no such process.
	Scheduler *LockInfo
	// Overdue is when the earliest schedule that hasn't fired yet was due, or zero if no schedule is late.
	// Even with a healthy leader, Overdue may be up to a second in the past.
	Overdue time.Time
	// Maintenance is the lock held by the process that runs honker.DB.Maintain. It is nil if there
	// is no such process.
	Maintenance *LockInfo
}

// Leaders returns the processes that fire the file's schedules and run its maintenance. A missing scheduler
// is a problem only if the file has schedules. A missing maintainer is a problem only if there is work for
// [honker.DB.Maintain]. A process that has died remains the leader until its lock expires. Leaders never
// waits for the writer. It returns [honker.ErrInvalid] if db is nil.
func Leaders(ctx context.Context, db *honker.DB) (*LeaderInfo, error) {
	info := new(LeaderInfo)
	err := read(ctx, db, func(ctx context.Context, q engine.Querier, s *engine.Stores) error {
		now := clock(db)
		held, err := s.Locks.Held(ctx, q, "", now)
		if err != nil {
			return err
		}
		info.Scheduler, info.Maintenance = find(held, row.SchedulerLock), find(held, row.MaintenanceLock)
		soonest, err := s.Schedules.Soonest(ctx, q)
		if !soonest.After(now) {
			info.Overdue = soonest
		}
		return err
	})
	if err != nil {
		return nil, engine.Wrap("list leaders", "", err)
	}
	return info, nil
}

// find returns the held lock with the given name, or nil if there is none.
func find(held []row.Lock, name string) *LockInfo {
	for _, row := range held {
		if row.Name == name {
			lock := lockOf(row)
			return &lock
		}
	}
	return nil
}

// BreakLock releases a lock if owner, as returned by [Locks], still holds it, and reports whether it did.
// The holder doesn't notice until it tries to renew the lock, and it keeps working until then. Break a lock
// only if its holder has died or is hung.
//
// BreakLock waits for the writer until ctx ends. It returns [honker.ErrInvalid] if a name is invalid or db
// is nil.
func BreakLock(ctx context.Context, db *honker.DB, name, owner string) (broken bool, err error) {
	e, err := engineOf(db)
	if err := errors.Join(err, engine.CheckName("lock name", name), engine.CheckName("lock owner", owner)); err != nil {
		return false, engine.Wrap("break lock", name, err)
	}
	audit := e.NewAudit(ctx, "break lock", engine.AuditTarget("lock", name))
	err = e.Write(ctx, "", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
		if broken, err = e.Stores.Locks.Release(ctx, q, name, owner); err != nil || !broken {
			return err
		}
		return audit.NoteOne(ctx, q, now)
	}))
	if err != nil {
		return false, engine.Wrap("break lock", name, err)
	}
	if broken {
		e.Notifier.Wake(wake.Lock(name))
	}
	return broken, nil
}
