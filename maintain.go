package honker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/honker-go/honker/internal/sqlite"
	"github.com/honker-go/honker/internal/store"
)

// maintenanceLock is held by the process that maintains the file.
const maintenanceLock = "honker-maintenance"

// Maintain keeps the file small and its queues honest. It blocks until ctx ends, then
// returns nil. Each time every has passed, in one process at a time, it
//   - moves jobs to the dead letters that have expired, or whose last attempt never ended,
//   - compacts every topic with a [Retention],
//   - deletes results that have expired and windows of rate limits that are over,
//   - deletes notifications older than Options.NotificationTTL, if there is one,
//   - truncates the write-ahead log when it is larger than Options.WALLimit.
//
// Run it in any number of processes: those that do not have the lock
// "honker-maintenance" stand by. All is done in small transactions. What fails is logged
// and tried again the next time; Maintain itself fails only when the DB is closed
// ([ErrClosed]), the file was replaced, or every is not positive.
func (db *DB) Maintain(ctx context.Context, every time.Duration) error {
	if err := errors.Join(positive("interval", every), inTx(ctx, db, "")); err != nil {
		return fail("maintain", "", err)
	}
	run, leave, err := db.enter(ctx)
	if err != nil {
		return fail("maintain", "", err)
	}
	defer leave()
	for err == nil || errors.Is(err, ErrLeadershipLost) {
		err = db.whileLeading(run, maintenanceLock, func(ctx context.Context, _ *Lock) error {
			return db.maintain(ctx, every)
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
		if err := db.round(ctx); err != nil {
			return err
		}
		if err := pause(ctx, every); err != nil {
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
		{"expired jobs", db.buryExpired},
		{"retention", db.compactAll},
		{"results", db.sweep(store.SweepResults, 0)},
		{"rate limits", db.sweep(store.SweepWindows, windowAge)},
		{"notifications", db.sweepMessages},
		{"write-ahead log", db.truncateWAL},
	}
}

// windowAge keeps windows of limits that share their name with a shorter one.
const windowAge = 24 * time.Hour

// round does every chore. It fails only when no other round can succeed.
func (db *DB) round(ctx context.Context) error {
	if err := db.identity.CheckNow(); err != nil {
		return err
	}
	for _, c := range db.chores() {
		err := c.do(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrClosed), errors.Is(err, ErrDatabaseReplaced):
			return err
		case err != nil:
			db.opts.Logger.Warn("honker: maintenance will be tried again", "chore", c.what, "error", err)
		}
	}
	return nil
}

// eachQueue calls do for every queue with live jobs.
func (db *DB) eachQueue(ctx context.Context, do func(queue string) error) error {
	queues, err := store.Jobs{}.Queues(ctx, db.own)
	if err != nil {
		return db.because(err)
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

// settleOverdue is for queues that nobody claims from any more.
func (db *DB) settleOverdue(ctx context.Context) error {
	return db.eachQueue(ctx, func(queue string) error {
		for {
			some, err := store.Jobs{}.Overdue(ctx, db.own, queue, time.Now().Unix())
			if err != nil || !some {
				return db.because(err)
			}
			err = db.do(ctx, "", write(func(ctx context.Context, q store.Querier, now time.Time) error {
				return store.Jobs{}.SettleOverdue(ctx, q, queue, now.Unix())
			}))
			if err != nil {
				return err
			}
		}
	})
}

// sweepChunk is how many rows one transaction takes.
const sweepChunk = 500

func (db *DB) buryExpired(ctx context.Context) error {
	return db.eachQueue(ctx, func(queue string) error {
		find := func(now time.Time) ([]int64, error) {
			return store.Jobs{}.Expired(ctx, db.own, queue, now.Unix(), sweepChunk)
		}
		return db.inChunks(ctx, find, func(ctx context.Context, q store.Querier, ids []int64, now time.Time) (int, error) {
			return store.Jobs{}.DeadLetterExpired(ctx, q, ids, now.Unix())
		})
	})
}

// sweep is a chore that deletes what is older than age.
func (db *DB) sweep(s store.Sweep, age time.Duration) func(context.Context) error {
	before := func(now time.Time) int64 { return now.Unix() - seconds(age) }
	return func(ctx context.Context) error {
		find := func(now time.Time) ([]int64, error) { return s.Found(ctx, db.own, before(now), sweepChunk) }
		return db.inChunks(ctx, find, func(ctx context.Context, q store.Querier, ids []int64, now time.Time) (int, error) {
			return s.Drop(ctx, q, before(now), ids)
		})
	}
}

// inChunks finds rows without the write lock, and takes it for a few at a time, until no
// more are found.
func (db *DB) inChunks(ctx context.Context, find func(now time.Time) ([]int64, error), take func(ctx context.Context, q store.Querier, ids []int64, now time.Time) (int, error)) error {
	for {
		ids, err := find(time.Now())
		if err != nil || len(ids) == 0 {
			return db.because(err)
		}
		taken, began := 0, time.Now()
		err = db.do(ctx, "", write(func(ctx context.Context, q store.Querier, now time.Time) (err error) {
			taken, err = take(ctx, q, ids, now)
			return err
		}))
		if err != nil || taken == 0 {
			return err
		}
		if err := breathe(ctx, time.Since(began)); err != nil {
			return err
		}
	}
}

func (db *DB) sweepMessages(ctx context.Context) error {
	if db.opts.NotificationTTL == 0 {
		return nil
	}
	return db.sweep(store.SweepMessages, db.opts.NotificationTTL)(ctx)
}

func (db *DB) compactAll(ctx context.Context) error {
	topics, err := store.Retentions{}.Topics(ctx, db.own)
	if err != nil {
		return db.because(err)
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

// truncateWAL gives the space back that a burst of writes, or a reader who stayed for
// long, has cost. While somebody reads an old snapshot it does nothing.
func (db *DB) truncateWAL(ctx context.Context) error {
	info, err := os.Stat(db.path + "-wal")
	if db.opts.WALLimit < 0 || err != nil || info.Size() <= db.opts.WALLimit {
		return nil
	}
	return db.because(sqlite.TruncateWAL(ctx, db.own))
}
