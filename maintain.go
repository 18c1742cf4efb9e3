package honker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/presence"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/traffic"
)

// maintenanceLock is held by the process that runs the maintenance.
const maintenanceLock = row.MaintenanceLock

// MaintainOptions configures a call of [DB.Maintain]. Zero fields select the defaults.
type MaintainOptions struct {
	Every time.Duration // pause between two rounds; default 1m
	Once  bool          // run a single round now and return; ErrLockHeld if another process is running Maintain
}

func (o *MaintainOptions) withDefaults() (MaintainOptions, error) {
	var out MaintainOptions
	if o != nil {
		out = *o
	}
	err := engine.NotNegative("Every", out.Every)
	if out.Every == 0 {
		out.Every = time.Minute
	}
	return out, err
}

// Maintain removes expired data and settles jobs that nothing else settles. It blocks until ctx ends and then
// returns nil. It works in rounds that are Every apart, in a single process at a time. Each round
//   - dead-letters jobs that have expired, and jobs whose last attempt never ended,
//   - frees the places of [Limits] that cancelled jobs have kept beyond their leases, and fits jobs to limits that have
//     changed, see [Queue.SetLimits],
//   - compacts every topic with a [Retention],
//   - deletes done and dead jobs beyond the [QueueRetention] of their queue,
//   - deletes expired results, past windows of rate limits, and unique keys whose [Uniqueness] For has passed and
//     whose job is gone,
//   - deletes the per-minute counts for Traffic of package admin that are older than seven days,
//   - deletes the workers of processes that are gone, as listed by Workers of package admin,
//   - deletes the records of package dispatch about jobs that ended an hour ago, replies that no caller has read for an
//     hour, and actors that have stopped reporting,
//   - deletes the message ids that package inbox has kept for their retention,
//   - deletes notifications older than Options.NotificationTTL, if it is set,
//   - truncates the write-ahead log if it is larger than Options.WALLimit.
//
// Maintain may run in any number of processes. Processes that do not hold the lock "honker-maintenance" stand by.
// All work is done in small transactions. Failures are logged, and the work is retried in the next round. Maintain
// itself fails only if the DB is closed ([ErrClosed]), the file was replaced, or an option is invalid.
// nil opts means defaults.
//
// With Once, Maintain returns after a single round. In this case the end of ctx is an error, since the round is
// incomplete, and so is a lock held by another process ([ErrLockHeld]). If [WithActor] names an actor, the round is
// recorded in the audit; see Audit of package admin.
func (db *DB) Maintain(ctx context.Context, opts *MaintainOptions) error {
	o, err := opts.withDefaults()
	if err := errors.Join(err, db.engine.RefuseInTx(ctx, "")); err != nil {
		return fail("maintain", "", err)
	}
	run, leave, err := db.engine.Enter(ctx)
	if err != nil {
		return fail("maintain", "", err)
	}
	defer leave()
	if o.Once {
		return fail("maintain", "", db.maintainAlone(run))
	}
	for err == nil || errors.Is(err, ErrLeadershipLost) {
		err = db.withLeadership(run, maintenanceLock, func(ctx context.Context, _ *Lock) error {
			return db.maintain(ctx, o.Every)
		})
	}
	if ctx.Err() != nil {
		return nil
	}
	return fail("maintain", "", err)
}

// maintainAlone runs a single round unless another process holds the lock.
func (db *DB) maintainAlone(ctx context.Context) error {
	lock, err := db.TryLock(ctx, maintenanceLock, nil)
	if err != nil {
		return err
	}
	err = db.noteMaintain(ctx)
	if err == nil {
		err = db.maintainOnce(lock.Context())
	}
	if err == nil && lock.Context().Err() != nil {
		err = context.Cause(lock.Context())
	}
	return errors.Join(err, lock.Unlock(context.WithoutCancel(ctx)))
}

// noteMaintain records the round in the audit. It does so before the round, because an interrupted round
// has made changes too.
func (db *DB) noteMaintain(ctx context.Context) error {
	if engine.Actor(ctx) == "" {
		return nil
	}
	return db.engine.Write(ctx, "", engine.OpFunc(db.engine.NewAudit(ctx, "maintain", "").NoteOne))
}

// maintain runs a round, waits for every, and starts over.
func (db *DB) maintain(ctx context.Context, every time.Duration) error {
	for {
		if err := db.maintainOnce(ctx); err != nil {
			return err
		}
		if err := engine.Sleep(ctx, every); err != nil {
			return err
		}
	}
}

// chore is a named task of a round.
type chore struct {
	what string
	do   func(context.Context) error
}

func (db *DB) chores() []chore {
	return []chore{
		{"overdue jobs", db.settleOverdue},
		{"expired jobs", db.deadLetterExpired},
		{"unique keys", db.dropKeysOver},
		{"pauses", db.endPauses},
		{"places of cancelled jobs", db.sweep(db.engine.Stores.Sweeps.Places, 0)},
		{"limits", db.fitAll},
		{"deleted groups", db.dropLeftClaims},
		{"retention", db.compactAll},
		{"queue retention", db.trimQueues},
		{"results", db.sweep(db.engine.Stores.Sweeps.Results, 0)},
		{"batches", db.sweep(db.engine.Stores.Sweeps.Batches, batchAge)},
		{"dispatch", db.sweepDispatch},
		{"inbox", db.sweepInbox},
		{"workers", db.sweepWorkers},
		{"traffic", db.trimTraffic},
		{"rate limits", db.sweep(db.engine.Stores.Sweeps.Windows, windowAge)},
		{"notifications", db.sweepNotifications},
		{"write-ahead log", db.shrink},
	}
}

// batchAge is the time for which finished batches are kept.
const batchAge = 7 * 24 * time.Hour

// windowAge is long enough to keep the windows of long limits that share their name with a shorter limit.
const windowAge = 24 * time.Hour

// maintainOnce runs every chore. It returns an error only if no later round can succeed.
func (db *DB) maintainOnce(ctx context.Context) error {
	if err := db.checkIdentity(); engine.Final(err) {
		return err
	}
	began := time.Now()
	var failed []string
	for _, c := range db.chores() {
		err := db.engine.WrapCause(c.do(ctx))
		switch {
		case ctx.Err() != nil:
			return nil
		case engine.Final(err):
			return err
		case err != nil:
			failed = append(failed, c.what)
			db.opts.Logger.Warn("honker: maintenance failed, retrying in the next round", "chore", c.what, "error", err)
		}
	}
	db.opts.Observer.Maintained(Maintained{Took: time.Since(began), Failed: failed})
	return nil
}

// eachQueue calls do for every queue with live jobs.
func (db *DB) eachQueue(ctx context.Context, do func(queue string) error) error {
	var queues []string
	err := db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		queues, err = db.engine.Stores.Operators.Queues(ctx, q)
		return err
	})
	if err != nil {
		return err
	}
	var errs []error
	for _, queue := range queues {
		if err := do(queue); err != nil {
			errs = append(errs, fmt.Errorf("queue %q: %w", queue, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// settleOverdue dead-letters jobs whose last claim has lapsed. Claims do the same, so this matters for
// queues without workers.
func (db *DB) settleOverdue(ctx context.Context) error {
	return db.eachQueue(ctx, func(queue string) error {
		d := deaths{db: db, queue: queue}
		defer d.end()
		for {
			overdue := false
			err := db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
				overdue, err = db.engine.Stores.Jobs.Overdue(ctx, q, queue, time.Now().Unix())
				return err
			})
			if err != nil || !overdue {
				return err
			}
			var dead []row.Death
			err = db.engine.Write(ctx, "", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
				dead, err = db.engine.Stores.Jobs.SettleOverdue(ctx, q, queue, now.Unix())
				return err
			}))
			if err != nil {
				return err
			}
			d.report(dead)
		}
	})
}

func (db *DB) deadLetterExpired(ctx context.Context) error {
	return db.eachQueue(ctx, func(queue string) error {
		_, err := db.sweepExpired(ctx, queue)
		return err
	})
}

// sweepExpired dead-letters the expired jobs of a queue.
func (db *DB) sweepExpired(ctx context.Context, queue string) (int, error) {
	find := func(ctx context.Context, q engine.Querier, now time.Time, limit int) ([]int64, error) {
		return db.engine.Stores.Jobs.Expired(ctx, q, queue, now.Unix(), limit)
	}
	var dead []row.Death
	take := func(ctx context.Context, q engine.Querier, ids []int64, now time.Time) (_ int, err error) {
		dead, err = db.engine.Stores.Jobs.DeadLetterExpired(ctx, q, ids, now.Unix())
		return len(dead), err
	}
	d := deaths{db: db, queue: queue}
	defer d.end()
	return db.engine.InChunks(ctx, find, take, func() { d.report(dead) })
}

// dropKeysOver deletes the unique keys that have outlived their jobs and whose For has passed.
func (db *DB) dropKeysOver(ctx context.Context) error {
	find := func(ctx context.Context, q engine.Querier, now time.Time, limit int) ([]int64, error) {
		return db.engine.Stores.Jobs.KeysOver(ctx, q, now.UnixMilli(), limit)
	}
	_, err := db.engine.InChunks(ctx, find, func(ctx context.Context, q engine.Querier, ids []int64, now time.Time) (int, error) {
		return db.engine.Stores.Jobs.DropKeysOver(ctx, q, ids, now.UnixMilli())
	}, nil)
	return err
}

// sweepBefore deletes the rows of s that are older than age.
func (db *DB) sweepBefore(ctx context.Context, s engine.SweepStore, age time.Duration) (int, error) {
	before := func(now time.Time) int64 { return now.Unix() - engine.Seconds(age) }
	find := func(ctx context.Context, q engine.Querier, now time.Time, limit int) ([]int64, error) {
		return s.Found(ctx, q, before(now), limit)
	}
	return db.engine.InChunks(ctx, find, func(ctx context.Context, q engine.Querier, ids []int64, now time.Time) (int, error) {
		return s.Drop(ctx, q, before(now), ids)
	}, nil)
}

// dropLeftClaims finishes deletions of groups (Group.Delete) that were interrupted by the death of a process.
func (db *DB) dropLeftClaims(ctx context.Context) error {
	var left []int64
	err := db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		left, err = db.engine.Stores.Groups.Left(ctx, q)
		return err
	})
	for _, id := range left {
		p := db.engine.NewPace()
		err = errors.Join(err, db.dropClaims(ctx, p, id))
	}
	return err
}

// sweep returns a chore that deletes the rows of s that are older than age.
func (db *DB) sweep(s engine.SweepStore, age time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := db.sweepBefore(ctx, s, age)
		return err
	}
}

// shrink truncates the write-ahead log of a database file.
func (db *DB) shrink(ctx context.Context) error {
	f, err := db.engine.File("maintain")
	if err != nil {
		return nil // there is no log
	}
	return f.Shrink(ctx, db.opts.WALLimit)
}

// checkIdentity returns an error if the database file was replaced.
func (db *DB) checkIdentity() error {
	f, err := db.engine.File("maintain")
	if err != nil {
		return nil // there is no file
	}
	return f.CheckIdentity()
}

func (db *DB) sweepNotifications(ctx context.Context) error {
	if db.opts.NotificationTTL == 0 {
		return nil
	}
	return db.sweep(db.engine.Stores.Sweeps.Messages, db.opts.NotificationTTL)(ctx)
}

// dispatchAge is the time for which the end of a job of package dispatch is remembered. Results have the
// same lifetime by default.
const dispatchAge = time.Hour

// sweepDispatch cleans the tables of package dispatch, if the file has them.
func (db *DB) sweepDispatch(ctx context.Context) error {
	s := db.engine.Stores.Dispatches
	there, stale, unneeded := false, false, false
	look := func(ctx context.Context, q engine.Querier) (err error) {
		if there, err = s.Exists(ctx, q); err != nil || !there {
			return err
		}
		if stale, err = s.Stale(ctx, q, time.Now().UnixMilli()); err != nil {
			return err
		}
		parts, err := s.Unneeded(ctx, q)
		unneeded = len(parts) > 0
		return err
	}
	if err := db.engine.Read(ctx, look); err != nil || !there {
		return err
	}
	before := func(now time.Time) int64 { return now.Add(-dispatchAge).UnixMilli() }
	find := func(ctx context.Context, q engine.Querier, now time.Time, limit int) ([]int64, error) {
		return s.Over(ctx, q, before(now), limit)
	}
	_, err := db.engine.InChunks(ctx, find, func(ctx context.Context, q engine.Querier, ids []int64, now time.Time) (int, error) {
		return s.Drop(ctx, q, before(now), ids)
	}, nil)
	if err == nil {
		err = db.sweepReplies(ctx)
	}
	if err != nil || !stale && !unneeded {
		return err
	}
	return db.engine.Write(ctx, "", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) error {
		if _, err := s.DropPresences(ctx, q, now.UnixMilli()); err != nil {
			return err
		}
		return s.DropUnneeded(ctx, q)
	}))
}

// sweepReplies deletes unread replies of package dispatch whose jobs it has already forgotten.
func (db *DB) sweepReplies(ctx context.Context) error {
	s := db.engine.Stores.Dispatches
	var prefixes []string
	err := db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		prefixes, err = s.Prefixes(ctx, q)
		return err
	})
	for _, prefix := range prefixes {
		find := func(ctx context.Context, q engine.Querier, now time.Time, limit int) ([]int64, error) {
			return s.OldReplies(ctx, q, prefix, now.Add(-dispatchAge).Unix(), limit)
		}
		n, failed := db.engine.InChunks(ctx, find, func(ctx context.Context, q engine.Querier, ids []int64, _ time.Time) (int, error) {
			return s.DropReplies(ctx, q, ids)
		}, nil)
		if n > 0 {
			db.opts.Logger.Info("honker: deleted replies that no caller has read within an hour", "prefix", prefix, "replies", n)
		}
		err = errors.Join(err, failed)
	}
	return err
}

// sweepInbox deletes the ids that package inbox has kept for their retention, if the file has its tables.
func (db *DB) sweepInbox(ctx context.Context) error {
	s := db.engine.Stores.Inboxes
	some := false
	err := db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) error {
		there, err := s.Exists(ctx, q)
		if err == nil && there {
			some, err = s.Over(ctx, q, time.Now().UnixMilli())
		}
		return err
	})
	if err != nil || !some {
		return err
	}
	for p := db.engine.NewPace(); ; {
		limit, n := p.Size, 0
		err := p.Write(ctx, func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
			n, err = s.Drop(ctx, q, now.UnixMilli(), limit)
			return err
		})
		if err != nil || n < limit {
			return err
		}
		if err := p.Rest(ctx); err != nil {
			return err
		}
	}
}

// sweepWorkers deletes the rows of Work loops whose processes are gone. Each process that starts a Work
// does the same.
func (db *DB) sweepWorkers(ctx context.Context) error {
	var all []row.Worker
	err := db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		all, err = db.engine.Stores.Workers.List(ctx, q, "")
		return err
	})
	if err != nil || len(presence.Left(all, time.Now())) == 0 {
		return err
	}
	return db.engine.Write(ctx, "", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) error {
		return presence.Sweep(ctx, q, db.engine.Stores.Workers, now)
	}))
}

// trimTraffic deletes the counts of old minutes. Writers of new counts do the same.
func (db *DB) trimTraffic(ctx context.Context) error {
	s := db.engine.Stores.Minutes
	old := false
	err := db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		old, err = s.Old(ctx, q, traffic.Before(time.Now()))
		return err
	})
	if err != nil || !old {
		return err
	}
	for p := db.engine.NewPace(); ; {
		n := 0
		err := p.Write(ctx, func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
			n, err = s.Trim(ctx, q, traffic.Before(now), trimmedMinutes)
			return err
		})
		if err != nil || n == 0 {
			return err
		}
		if err := p.Rest(ctx); err != nil {
			return err
		}
	}
}

// trimmedMinutes is the number of minutes deleted in a transaction. A minute has up to a hundred rows.
const trimmedMinutes = 30

func (db *DB) compactAll(ctx context.Context) error {
	var retained []row.Retention
	err := db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		retained, err = db.engine.Stores.Retentions.List(ctx, q, "")
		return err
	})
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range retained {
		s := &stream{db: db, name: r.Topic}
		if _, err := s.compact(ctx); err != nil {
			errs = append(errs, fmt.Errorf("topic %q: %w", r.Topic, err))
		}
	}
	return errors.Join(errs...)
}
