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
	"github.com/honker-go/honker/observe"
)

// maintenanceLock is held by the process that runs the maintenance.
const maintenanceLock = row.MaintenanceLock

// MaintainOptions configures a call to [DB.Maintain]. Zero fields select the defaults.
type MaintainOptions struct {
	Every time.Duration // pause between rounds; default 1m
	Once  bool          // run a single round now and return; fails with ErrLockHeld if another process is running Maintain
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

// Maintain removes expired data and settles jobs that would otherwise remain unsettled. It blocks until ctx ends and
// then returns nil. It works in rounds, with a pause of Every after each, and in only a single process at a time.
// Each round
//   - dead-letters jobs that have expired, and jobs whose last attempt never ended,
//   - frees slots of [Limits] that cancelled jobs still occupy after their leases have expired, and adjusts jobs to
//     limits that have changed (see [Queue.SetLimits]),
//   - compacts every topic with a [Retention],
//   - deletes done and dead jobs that exceed their queue's [QueueRetention],
//   - deletes expired results, rate limit windows that are over, and unique keys whose job is gone and whose
//     [Uniqueness].For has passed,
//   - deletes per-minute counts that are more than seven days old (see Traffic in package admin),
//   - deletes the rows of workers whose processes are gone (see Workers in package admin),
//   - deletes package dispatch's records of jobs that ended more than an hour ago, replies that no caller has read for
//     an hour, and actors that have stopped reporting,
//   - deletes message IDs that package inbox has kept for their full retention period,
//   - deletes notifications older than Options.NotificationTTL, if it is set,
//   - truncates the write-ahead log if it is larger than Options.WALLimit.
//
// Maintain may run in any number of processes. Those that don't hold the lock "honker-maintenance" stand by. All work
// is done in small transactions. Failures are logged, and the work is retried in the next round. Maintain itself
// fails only if the DB is closed ([ErrClosed]), the file was replaced, or an option is invalid. A nil opts means
// defaults.
//
// With Once, Maintain returns after a single round. It then returns an error if ctx ends before the round is
// complete, or if another process holds the lock ([ErrLockHeld]). If ctx has an actor from [WithActor], the round is
// recorded in the audit log; see Audit in package admin.
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

// noteMaintain records the round in the audit log. It does so before the round, because even an interrupted
// round makes changes.
func (db *DB) noteMaintain(ctx context.Context) error {
	if engine.Actor(ctx) == "" {
		return nil
	}
	return db.engine.Write(ctx, "", engine.OpFunc(db.engine.NewAudit(ctx, "maintain", "").NoteOne))
}

// maintain runs a round, waits for the interval every, and repeats.
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

// chore is a named task in a round.
type chore struct {
	what string
	do   func(context.Context) (n int, err error) // n is the number of rows that were changed, as far as it is known
}

func (db *DB) chores() []chore {
	s := &db.engine.Stores.Sweeps
	return []chore{
		{"overdue jobs", db.sweep(s.Overdue, 0)}, // claims do this too, so the chore is needed only for queues without workers
		{"expired jobs", db.sweep(s.Expired, 0)},
		{"unique keys", db.sweep(s.Keys, 0)},
		{"pauses", db.sweep(s.Pauses, 0)},
		{"places of cancelled jobs", db.sweep(s.Places, 0)},
		{"limits", db.fitAll},
		{"deleted groups", db.sweep(s.Claims, 0)},
		{"retention", db.compactAll},
		{"queue retention", db.trimQueues},
		{"results", db.sweep(s.Results, 0)},
		{"batches", db.sweep(s.Batches, batchAge)},
		{"dispatch", db.sweepDispatch},
		{"flows", db.sweep(s.Runs, 0)},
		{"inbox", db.sweep(s.Received, 0)},
		{"workers", db.sweepWorkers},
		{"traffic", db.sweep(s.Minutes, traffic.Kept)},
		{"rate limits", db.sweep(s.Windows, windowAge)},
		{"notifications", db.sweepNotifications},
		{"write-ahead log", db.shrink},
	}
}

// batchAge is the time for which finished batches are kept.
const batchAge = 7 * 24 * time.Hour

// windowAge is long enough to keep the windows of a long rate limit that shares its name with a shorter limit.
const windowAge = 24 * time.Hour

// maintainOnce runs every chore. It returns an error only if later rounds can't succeed either.
func (db *DB) maintainOnce(ctx context.Context) error {
	if err := db.checkIdentity(); engine.Final(err) {
		return err
	}
	began := time.Now()
	var failed []string
	var did []observe.Chore
	for _, c := range db.chores() {
		n, err := c.do(ctx)
		err = db.engine.WrapCause(err)
		if n > 0 {
			did = append(did, observe.Chore{Name: c.what, N: int64(n)})
		}
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
	db.opts.Observer.Maintained(observe.Maintained{Took: time.Since(began), Failed: failed, Did: did})
	return nil
}

// sweepPart runs a sweep on a single part, for rows older than age, which is rounded up to seconds. It reports any
// jobs that became dead letters.
func (db *DB) sweepPart(ctx context.Context, s engine.Sweep, part row.Part, age time.Duration) (int, error) {
	d := deaths{db: db, queue: part.Name}
	defer d.end()
	return db.engine.InChunks(ctx, s, part, row.Span(engine.Seconds(age)), func(taken row.Swept) { d.report(taken.Dead) })
}

// eachPart calls do for every part of a sweep. It continues after an error.
func (db *DB) eachPart(ctx context.Context, s engine.Sweep, do func(row.Part) error) error {
	if s.Parts == nil {
		return do(row.Part{})
	}
	var parts []row.Part
	err := db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		parts, err = s.Parts(ctx, q, db.engine.Now())
		return err
	})
	if err != nil {
		return err
	}
	var errs []error
	for _, part := range parts {
		if err := do(part); err != nil {
			errs = append(errs, fmt.Errorf("%s %q: %w", s.Of, part.Name, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// sweep returns a chore that sweeps all parts.
func (db *DB) sweep(s engine.Sweep, age time.Duration) func(context.Context) (int, error) {
	return func(ctx context.Context) (total int, err error) {
		err = db.eachPart(ctx, s, func(part row.Part) error {
			n, err := db.sweepPart(ctx, s, part, age)
			total += n
			return err
		})
		return total, err
	}
}

// fitAll completes adjustments that other processes have left unfinished because they died.
func (db *DB) fitAll(ctx context.Context) (int, error) {
	return 0, db.eachPart(ctx, db.engine.Stores.Sweeps.Fits, func(part row.Part) error { return db.fitJobs(ctx, part.Name) })
}

// shrink truncates the write-ahead log of a database file.
func (db *DB) shrink(ctx context.Context) (int, error) {
	f, err := db.engine.File("maintain")
	if err != nil {
		return 0, nil // there is no log
	}
	_, err = f.Shrink(ctx, db.opts.WALLimit)
	return 0, err
}

// checkIdentity returns an error if the database file was replaced.
func (db *DB) checkIdentity() error {
	f, err := db.engine.File("maintain")
	if err != nil {
		return nil // there is no file
	}
	return f.CheckIdentity()
}

func (db *DB) sweepNotifications(ctx context.Context) (int, error) {
	if db.opts.NotificationTTL == 0 {
		return 0, nil
	}
	return db.sweep(db.engine.Stores.Sweeps.Messages, db.opts.NotificationTTL)(ctx)
}

// dispatchAge is how long package dispatch remembers that a job has ended. It matches the default lifetime of
// results.
const dispatchAge = time.Hour

// sweepDispatch cleans up package dispatch's tables, if the file has them.
func (db *DB) sweepDispatch(ctx context.Context) (total int, err error) {
	s := &db.engine.Stores.Sweeps
	if total, err = db.sweep(s.Sent, dispatchAge)(ctx); err != nil {
		return total, err
	}
	if err := db.eachPart(ctx, s.Replies, func(part row.Part) error {
		n, err := db.sweepPart(ctx, s.Replies, part, dispatchAge)
		if total += n; n > 0 {
			db.opts.Logger.Info("honker: deleted replies that no caller has read within an hour", "prefix", part.Name, "replies", n)
		}
		return err
	}); err != nil {
		return total, err
	}
	n, err := db.sweep(s.Actors, 0)(ctx)
	return total + n, err
}

// sweepWorkers deletes the rows of Work loops whose processes are gone. Starting a Work loop does the same.
func (db *DB) sweepWorkers(ctx context.Context) (int, error) {
	var all []row.Worker
	err := db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		all, err = db.engine.Stores.Workers.List(ctx, q, "")
		return err
	})
	gone := len(presence.Left(all, db.engine.Now()))
	if err != nil || gone == 0 {
		return 0, err
	}
	return gone, db.engine.Write(ctx, "", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) error {
		return presence.Sweep(ctx, q, db.engine.Stores.Workers, now)
	}))
}

func (db *DB) compactAll(ctx context.Context) (total int, err error) {
	var retained []row.Retention
	err = db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		retained, err = db.engine.Stores.Retentions.List(ctx, q, "")
		return err
	})
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, r := range retained {
		stats, err := (&stream{db: db, name: r.Topic}).compact(ctx)
		if total += int(stats.Deleted); err != nil {
			errs = append(errs, fmt.Errorf("topic %q: %w", r.Topic, err))
		}
	}
	return total, errors.Join(errs...)
}
