package honker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/store"
)

// maintenanceLock is held by the process that maintains the file.
const maintenanceLock = "honker-maintenance"

// MaintainOptions of one Maintain. The zero value of a field means its default.
type MaintainOptions struct {
	Every time.Duration // between two rounds; default 1m
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

// Maintain keeps the file small and its queues honest. It blocks until ctx ends, then
// returns nil. Each time Every has passed, in one process at a time, it
//   - moves jobs to the dead letters that have expired, or of which the last attempt never
//     ended,
//   - compacts every topic with a [Retention],
//   - deletes results that have expired and windows of rate limits that are over,
//   - deletes notifications older than Options.NotificationTTL, if there is one,
//   - truncates the write-ahead log when it is larger than Options.WALLimit.
//
// Run it in any number of processes: those that do not have the lock
// "honker-maintenance" stand by. All is done in small transactions. What fails is logged
// and tried again the next time; Maintain itself fails only when the DB is closed
// ([ErrClosed]), the file was replaced, or an option is invalid. nil opts means defaults.
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

// maintain does a round each time that every has passed.
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

// chore is one of the things that a round does.
type chore struct {
	what string
	do   func(context.Context) error
}

func (db *DB) chores() []chore {
	return []chore{
		{"overdue jobs", db.settleOverdue},
		{"expired jobs", db.deadLetterExpired},
		{"retention", db.compactAll},
		{"results", db.sweep(store.SweepResults, 0)},
		{"rate limits", db.sweep(store.SweepWindows, windowAge)},
		{"notifications", db.sweepNotifications},
		{"write-ahead log", func(ctx context.Context) error { return db.engine.Backend.Shrink(ctx, db.opts.WALLimit) }},
	}
}

// windowAge keeps windows of limits that share their name with a shorter one.
const windowAge = 24 * time.Hour

// maintainOnce does every chore. It fails only when no other round can succeed.
func (db *DB) maintainOnce(ctx context.Context) error {
	if err := db.engine.Backend.CheckIdentity(); engine.Final(err) {
		return err
	}
	for _, c := range db.chores() {
		err := db.engine.WrapCause(c.do(ctx))
		switch {
		case ctx.Err() != nil:
			return nil
		case engine.Final(err):
			return err
		case err != nil:
			db.opts.Logger.Warn("honker: maintenance failed, retrying in the next round", "chore", c.what, "error", err)
		}
	}
	return nil
}

// eachQueue calls do for every queue with live jobs.
func (db *DB) eachQueue(ctx context.Context, do func(queue string) error) error {
	var queues []string
	err := db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		queues, err = db.jobs.Queues(ctx, q)
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

// settleOverdue is for queues that no worker claims from any more.
func (db *DB) settleOverdue(ctx context.Context) error {
	return db.eachQueue(ctx, func(queue string) error {
		for {
			overdue := false
			err := db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
				overdue, err = db.jobs.Overdue(ctx, q, queue, time.Now().Unix())
				return err
			})
			if err != nil || !overdue {
				return err
			}
			var dead []store.Death
			err = db.engine.Write(ctx, "", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
				dead, err = db.jobs.SettleOverdue(ctx, q, queue, now.Unix())
				return err
			}))
			if err != nil {
				return err
			}
			db.reportDeaths(queue, dead)
		}
	})
}

// sweepChunk is how many rows one transaction takes.
const sweepChunk = 500

func (db *DB) deadLetterExpired(ctx context.Context) error {
	return db.eachQueue(ctx, func(queue string) error {
		find := func(ctx context.Context, q engine.Querier, now time.Time) ([]int64, error) {
			return db.jobs.Expired(ctx, q, queue, now.Unix(), sweepChunk)
		}
		var dead []store.Death
		take := func(ctx context.Context, q engine.Querier, ids []int64, now time.Time) (_ int, err error) {
			dead, err = db.jobs.DeadLetterExpired(ctx, q, ids, now.Unix())
			return len(dead), err
		}
		return db.inChunks(ctx, find, take, func() { db.reportDeaths(queue, dead) })
	})
}

// sweep is a chore that deletes what is older than age.
func (db *DB) sweep(s store.Sweep, age time.Duration) func(context.Context) error {
	before := func(now time.Time) int64 { return now.Unix() - engine.Seconds(age) }
	return func(ctx context.Context) error {
		find := func(ctx context.Context, q engine.Querier, now time.Time) ([]int64, error) {
			return s.Found(ctx, q, before(now), sweepChunk)
		}
		return db.inChunks(ctx, find, func(ctx context.Context, q engine.Querier, ids []int64, now time.Time) (int, error) {
			return s.Drop(ctx, q, before(now), ids)
		}, nil)
	}
}

// inChunks finds rows without the write lock, and takes it for a few at a time, until no
// more are found. committed is called after each commit; it may be nil.
func (db *DB) inChunks(ctx context.Context,
	find func(ctx context.Context, q engine.Querier, now time.Time) ([]int64, error),
	take func(ctx context.Context, q engine.Querier, ids []int64, now time.Time) (int, error), committed func()) error {
	for {
		var ids []int64
		err := db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
			ids, err = find(ctx, q, time.Now())
			return err
		})
		if err != nil || len(ids) == 0 {
			return err
		}
		taken, began := 0, time.Now()
		err = db.engine.Write(ctx, "", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
			taken, err = take(ctx, q, ids, now)
			return err
		}))
		if err != nil || taken == 0 {
			return err
		}
		if committed != nil {
			committed()
		}
		if err := pauseAfter(ctx, time.Since(began)); err != nil {
			return err
		}
	}
}

func (db *DB) sweepNotifications(ctx context.Context) error {
	if db.opts.NotificationTTL == 0 {
		return nil
	}
	return db.sweep(store.SweepMessages, db.opts.NotificationTTL)(ctx)
}

func (db *DB) compactAll(ctx context.Context) error {
	var topics []string
	err := db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		topics, err = db.retentions.Topics(ctx, q)
		return err
	})
	if err != nil {
		return err
	}
	var errs []error
	for _, t := range topics {
		s := &stream{db: db, name: t}
		if _, err := s.compact(ctx); err != nil {
			errs = append(errs, fmt.Errorf("topic %q: %w", t, err))
		}
	}
	return errors.Join(errs...)
}
