package honker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/store"
	"github.com/honker-go/honker/internal/wake"
)

// rateLimitStore are the statements about rate limits.
type rateLimitStore interface {
	Take(ctx context.Context, q engine.Querier, name string, start int64, limit int) (bool, error)
	Count(ctx context.Context, q engine.Querier, name string, start int64) (int, error)
}

// RateLimit lets up to a number of calls through in each window of time, all processes on
// the file taken together, in any language. Windows are fixed: as in honker's format they
// start at whole multiples of their length since 1970, so up to twice the limit may
// pass around the end of one. What is turned away is not counted.
//
// It is a cheap handle: make it where you need it. All handles of a name should have the
// same limit and window; each counts in the windows of its own length. Where one finds that
// another has let more through, it is logged once.
type RateLimit struct {
	db    *DB
	name  string
	limit int
	per   int64 // seconds
	err   error // a bad name or number: returned by the first verb
}

// RateLimit returns a handle that lets limit calls through per window. per is rounded up
// to whole seconds. It touches nothing; a bad name, or a limit or window that is not
// positive, is [ErrInvalid] from its first verb.
func (db *DB) RateLimit(name string, limit int, per time.Duration) *RateLimit {
	err := errors.Join(engine.CheckName("rate limit name", name), engine.Positive("window", per))
	if limit <= 0 {
		err = errors.Join(err, fmt.Errorf("%w: limit %d is not positive", ErrInvalid, limit))
	}
	return &RateLimit{db: db, name: name, limit: limit, per: engine.Seconds(per), err: err}
}

// window is the second at which the window of now started.
func (r *RateLimit) window(now time.Time) int64 { return now.Unix() / r.per * r.per }

func (r *RateLimit) end(window int64) time.Time { return time.Unix(window+r.per, 0) }

// Allow counts one call in the current window and returns true, or returns false when the
// limit is reached. It waits for the writer until ctx ends or BusyTimeout has passed;
// concurrent calls share commits, and a call that is turned away writes nothing.
func (r *RateLimit) Allow(ctx context.Context) (bool, error) {
	ok, _, err := r.allow(ctx)
	return ok, fail("rate limit", r.name, err)
}

// allow also returns the window that it was asked for. It reads before it takes the write
// lock: a full window must not cost the writers anything.
func (r *RateLimit) allow(ctx context.Context) (ok bool, window int64, err error) {
	if r.err != nil {
		return false, 0, r.err
	}
	if err := r.db.engine.UsableToWrite(ctx, "AllowTx"); err != nil {
		return false, 0, err
	}
	window = r.window(time.Now())
	used, err := r.count(ctx, window)
	if err != nil || used >= r.limit {
		r.warn(used)
		return false, window, err
	}
	err = r.db.engine.Write(ctx, "AllowTx", engine.SingleOp(func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
		window = r.window(now)
		ok, err = r.db.rateLimits.Take(ctx, q, r.name, window, r.limit)
		return err
	}))
	return ok && err == nil, window, err
}

// warn tells, once for each name, that more calls were let through than this handle ever would:
// another one has a larger limit.
func (r *RateLimit) warn(used int) {
	if used <= r.limit {
		return
	}
	if _, told := r.db.otherLimits.LoadOrStore(r.name, true); !told {
		r.db.opts.Logger.Warn("honker: another handle of this rate limit has a larger limit", "name", r.name, "limit", r.limit, "used", used)
	}
}

func (r *RateLimit) count(ctx context.Context, window int64) (used int, err error) {
	err = r.db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		used, err = r.db.rateLimits.Count(ctx, q, r.name, window)
		return err
	})
	return used, err
}

// AllowTx is like [RateLimit.Allow], within tx: the call counts when tx commits, and
// never did when it rolls back.
func (r *RateLimit) AllowTx(ctx context.Context, tx Tx) (bool, error) {
	if r.err != nil {
		return false, fail("rate limit", r.name, r.err)
	}
	on, err := r.db.join(ctx, tx)
	if err != nil {
		return false, fail("rate limit", r.name, err)
	}
	ok, err := r.db.rateLimits.Take(ctx, on, r.name, r.window(time.Now()), r.limit)
	return ok && err == nil, fail("rate limit", r.name, err)
}

// Wait returns nil when it has counted a call: at once, or in a window to come, after it has
// slept until its start. It ends with ctx, and when the DB is closed. Goroutines of one
// process that wait for the same limit pass in the order in which they came; processes meet
// at the start of each window and none is preferred.
//
// Wait bounds nothing by itself: with a window of a day it may wait for a day, and as
// long as others take all of every window it does not return. Give it a ctx that ends.
func (r *RateLimit) Wait(ctx context.Context) error {
	if err := errors.Join(r.err, r.db.engine.RefuseInTx(ctx, "AllowTx")); err != nil {
		return fail("wait for the rate limit", r.name, err)
	}
	return fail("wait for the rate limit", r.name, r.wait(ctx))
}

// clockCheck bounds a sleep: the clock may be set, and the machine suspended.
const clockCheck = time.Minute

func (r *RateLimit) wait(ctx context.Context) error {
	ctx, leave, err := r.db.engine.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	next, err := r.db.waiting.Lock(ctx, fmt.Sprintf("rate %d/%d %s", r.limit, r.per, r.name))
	if err != nil {
		return err
	}
	defer next()
	// Mostly the window has room: a subscription would start the watcher for nothing.
	ok, full, err := r.allow(ctx)
	if ok || err != nil {
		return err
	}
	return r.db.engine.Notifier.Until(ctx, func() (time.Duration, error) {
		now := time.Now()
		if r.window(now) != full {
			if ok, full, err = r.allow(ctx); ok || err != nil {
				return wake.Done, err
			}
			now = time.Now()
		}
		return max(min(r.end(full).Sub(now), clockCheck), time.Millisecond), nil
	}, wake.Key{Kind: wake.Closing})
}

// Remaining reads how many calls the current window still lets through, and when it ends.
// Other callers may take them meanwhile.
func (r *RateLimit) Remaining(ctx context.Context) (int, time.Time, error) {
	if r.err != nil {
		return 0, time.Time{}, fail("remaining of rate limit", r.name, r.err)
	}
	window := r.window(time.Now())
	used, err := r.count(ctx, window)
	if err != nil {
		return 0, time.Time{}, fail("remaining of rate limit", r.name, err)
	}
	return max(0, r.limit-used), r.end(window), nil
}

// SweepRateLimits deletes the windows, of all names, that started more than olderThan,
// rounded up to seconds, before the current second, and returns how many. [DB.Maintain]
// deletes windows a day old. The file does not say how long a window is: one that is still
// running and is swept starts anew, so olderThan must be longer than the longest window in use.
//
// It blocks until that is done, in transactions of some milliseconds with pauses between them,
// in which other writers get the file. An error, also the end of ctx, comes with what was
// deleted until then.
func (db *DB) SweepRateLimits(ctx context.Context, olderThan time.Duration) (swept int, err error) {
	if err := engine.NotNegative("age", olderThan); err != nil {
		return 0, fail("sweep rate limits", "", err)
	}
	swept, err = db.sweepBefore(ctx, store.SweepOldWindows, olderThan)
	return swept, fail("sweep rate limits", "", err)
}
