package admin

import (
	"context"
	"errors"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/store"
	"github.com/honker-go/honker/internal/wake"
)

// LockInfo is a lock that is held.
type LockInfo struct {
	Name      string
	Owner     string    // the holder's name in the file
	ExpiresAt time.Time // unless it is renewed
	Leads     bool      // it is that of a Scheduler.Run or a Maintain, see Leaders
}

// lockStore are the statements about locks.
type lockStore interface {
	All(ctx context.Context, q engine.Querier, now int64) ([]row.NamedLock, error)
	Release(ctx context.Context, q engine.Querier, name, owner string) (bool, error)
}

// scheduleStore are the statements about schedules.
type scheduleStore interface {
	Soonest(ctx context.Context, q engine.Querier) (int64, error)
}

var (
	locks     lockStore     = store.Locks{}
	schedules scheduleStore = store.Schedules{}
)

// Locks returns the locks that are held, by name, those of leaders included. It never waits for the
// writer. nil as the DB is [honker.ErrInvalid].
func Locks(ctx context.Context, db *honker.DB) ([]LockInfo, error) {
	var all []LockInfo
	err := read(ctx, db, func(ctx context.Context, q engine.Querier) error {
		rows, err := locks.All(ctx, q, time.Now().Unix())
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

func lockOf(row row.NamedLock) LockInfo {
	return LockInfo{
		Name:      row.Name,
		Owner:     row.Owner,
		ExpiresAt: engine.Instant(row.ExpiresAt),
		Leads:     row.Name == store.SchedulerLock || row.Name == store.MaintenanceLock,
	}
}

// LeaderInfo says which processes lead.
type LeaderInfo struct {
	// Scheduler is the lock of the process that fires schedules, by honker.Scheduler.Run or in
	// another language; nil: none does.
	Scheduler *LockInfo
	// Overdue is since when a schedule has been due and was not fired; the zero time: none is. It
	// is up to a second ago while a process leads.
	Overdue time.Time
	// Maintenance is the lock of the process that runs honker.DB.Maintain; nil: none does.
	Maintenance *LockInfo
}

// Leaders returns which processes fire the schedules of the file and maintain it. That none does is
// a problem where there are schedules, or anything that [honker.DB.Maintain] cares for. One that has
// died leads until its lock expires. It never waits for the writer. nil as the DB is
// [honker.ErrInvalid].
func Leaders(ctx context.Context, db *honker.DB) (*LeaderInfo, error) {
	info := new(LeaderInfo)
	err := read(ctx, db, func(ctx context.Context, q engine.Querier) error {
		now := time.Now()
		held, err := locks.All(ctx, q, now.Unix())
		if err != nil {
			return err
		}
		info.Scheduler, info.Maintenance = find(held, store.SchedulerLock), find(held, store.MaintenanceLock)
		soonest, err := schedules.Soonest(ctx, q)
		if soonest <= now.Unix() {
			info.Overdue = engine.Instant(soonest)
		}
		return err
	})
	if err != nil {
		return nil, engine.Wrap("list leaders", "", err)
	}
	return info, nil
}

// find is nil for a lock that is free.
func find(held []row.NamedLock, name string) *LockInfo {
	for _, row := range held {
		if row.Name == name {
			lock := lockOf(row)
			return &lock
		}
	}
	return nil
}

// BreakLock frees a lock if owner, as [Locks] has shown it, still has it, and reports whether that
// was so. The holder finds out when it renews the lock, and works on until then: break the lock of
// one that is gone or hangs. It waits for the writer, until ctx ends. A bad name, or nil as the
// DB, is [honker.ErrInvalid].
func BreakLock(ctx context.Context, db *honker.DB, name, owner string) (broken bool, err error) {
	e, err := engineOf(db)
	if err := errors.Join(err, engine.CheckName("lock name", name), engine.CheckName("lock owner", owner)); err != nil {
		return false, engine.Wrap("break lock", name, err)
	}
	audit := engine.NewAudit(ctx, "break lock", engine.AuditTarget("lock", name))
	err = e.Write(ctx, "", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
		if broken, err = locks.Release(ctx, q, name, owner); err != nil || !broken {
			return err
		}
		return audit.NoteOne(ctx, q, now)
	}))
	if err != nil {
		return false, engine.Wrap("break lock", name, err)
	}
	if broken {
		e.Notifier.Wake(wake.Change{Kind: wake.LockFree, Name: name})
	}
	return broken, nil
}
