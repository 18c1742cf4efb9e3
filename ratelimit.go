package honker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
)

// RateLimit limits the number of calls per time window, across all processes that use the file and in all
// languages. Windows are fixed: as honker's format requires, they start at whole multiples of their length since
// 1970. Up to twice the limit may therefore pass around the end of a window. Rejected calls are not counted.
//
// Handles are cheap and may be created where they are needed. All handles with the same name should have the same
// limit and window, because each handle counts in windows of its own length. If a handle sees that more calls were
// counted than its limit allows, it logs this once.
type RateLimit struct {
	db    *DB
	name  string
	limit int
	per   int64 // seconds
	err   error // invalid name or number, returned by the first verb
}

// RateLimit returns a handle that allows limit calls per window of length per, which is rounded up to whole
// seconds. It does not access the file. The first verb returns [ErrInvalid] for an invalid name and for a limit
// or window that is not positive.
func (db *DB) RateLimit(name string, limit int, per time.Duration) *RateLimit {
	err := errors.Join(engine.CheckName("rate limit name", name), engine.Positive("window", per))
	if limit <= 0 {
		err = errors.Join(err, fmt.Errorf("%w: limit %d is not positive", ErrInvalid, limit))
	}
	return &RateLimit{db: db, name: name, limit: limit, per: engine.Seconds(per), err: err}
}

// window returns the time at which the window that contains now started.
func (r *RateLimit) window(now time.Time) time.Time { return time.Unix(now.Unix()/r.per*r.per, 0) }

func (r *RateLimit) end(window time.Time) time.Time { return time.Unix(window.Unix()+r.per, 0) }

// Allow counts a call in the current window and returns true, or returns false if the limit is reached. It
// waits for the writer until ctx ends or BusyTimeout has passed. Concurrent calls share commits, and a
// rejected call writes nothing.
func (r *RateLimit) Allow(ctx context.Context) (bool, error) {
	ok, _, err := r.allow(ctx)
	return ok, fail("rate limit", r.name, err)
}

// allow also returns the call's window. It reads before it takes the write lock, so that calls in a full window
// do not block other writers.
func (r *RateLimit) allow(ctx context.Context) (ok bool, window time.Time, err error) {
	if r.err != nil {
		return false, time.Time{}, r.err
	}
	if err := r.db.engine.UsableToWrite(ctx, "AllowTx"); err != nil {
		return false, time.Time{}, err
	}
	window = r.window(r.db.engine.Now())
	used, err := r.count(ctx, window)
	if err != nil || used >= r.limit {
		r.warn(used)
		return false, window, err
	}
	err = r.db.engine.Write(ctx, "AllowTx", engine.SingleOp(func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
		window = r.window(now)
		ok, err = r.db.engine.Stores.RateLimits.Take(ctx, q, r.name, window, r.limit)
		return err
	}))
	return ok && err == nil, window, err
}

// warn logs, once for each name, that more calls were allowed than this handle's limit. Another handle must have
// a larger limit.
func (r *RateLimit) warn(used int) {
	if used <= r.limit {
		return
	}
	if _, told := r.db.otherLimits.LoadOrStore(r.name, true); !told {
		r.db.opts.Logger.Warn("honker: another handle of this rate limit has a larger limit", "name", r.name, "limit", r.limit, "used", used)
	}
}

func (r *RateLimit) count(ctx context.Context, window time.Time) (used int, err error) {
	err = r.db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		used, err = r.db.engine.Stores.RateLimits.Count(ctx, q, r.name, window)
		return err
	})
	return used, err
}

// AllowTx is like [RateLimit.Allow] but runs within tx. The call counts when tx commits, and not at all if tx rolls
// back.
func (r *RateLimit) AllowTx(ctx context.Context, tx Tx) (bool, error) {
	if r.err != nil {
		return false, fail("rate limit", r.name, r.err)
	}
	on, err := r.db.join(ctx, tx)
	if err != nil {
		return false, fail("rate limit", r.name, err)
	}
	ok, err := r.db.engine.Stores.RateLimits.Take(ctx, on, r.name, r.window(r.db.engine.Now()), r.limit)
	return ok && err == nil, fail("rate limit", r.name, err)
}

// Wait blocks until a call is counted, in the current window or a later window, and then returns nil. It returns an
// error when ctx ends or the DB is closed. Goroutines in this process that wait for the same limit proceed in the
// order in which they called Wait. Processes compete at the start of each window, and none has priority over the
// others.
//
// Wait has no time limit of its own. With a window of a day it may wait for a day, or longer if other callers
// use up every window, so ctx should have a deadline.
func (r *RateLimit) Wait(ctx context.Context) error {
	if err := errors.Join(r.err, r.db.engine.RefuseInTx(ctx, "AllowTx")); err != nil {
		return fail("wait for the rate limit", r.name, err)
	}
	return fail("wait for the rate limit", r.name, r.wait(ctx))
}

// clockCheck limits the length of each sleep, because the clock may be set and the machine may be suspended.
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
	// Try first: the window usually has room, and subscribing would start the watcher unnecessarily.
	ok, full, err := r.allow(ctx)
	if ok || err != nil {
		return err
	}
	return r.db.engine.Notifier.Until(ctx, func() (time.Duration, error) {
		now := r.db.engine.Now()
		if !r.window(now).Equal(full) {
			if ok, full, err = r.allow(ctx); ok || err != nil {
				return wake.Done, err
			}
			now = r.db.engine.Now()
		}
		return max(min(r.end(full).Sub(now), clockCheck), time.Millisecond), nil
	}, wake.Key{Kind: wake.Closing})
}

// Remaining returns the number of calls still allowed in the current window, and the end of the window. Other callers
// may use up these calls at any time.
func (r *RateLimit) Remaining(ctx context.Context) (int, time.Time, error) {
	if r.err != nil {
		return 0, time.Time{}, fail("read remaining calls of rate limit", r.name, r.err)
	}
	window := r.window(r.db.engine.Now())
	used, err := r.count(ctx, window)
	if err != nil {
		return 0, time.Time{}, fail("read remaining calls of rate limit", r.name, err)
	}
	return max(0, r.limit-used), r.end(window), nil
}

// SweepRateLimits deletes, for all names, the windows that started more than olderThan before the current second, and
// returns their number. olderThan is rounded up to seconds. [DB.Maintain] deletes windows that are a day old. The
// file does not store window lengths, and a window that is deleted while it is still current starts again from zero,
// so olderThan must exceed the longest window in use.
//
// It blocks until all are deleted. It works in transactions of a few milliseconds, with pauses in which other
// writers can proceed. On an error, or if ctx ends, it returns the number of windows deleted so far together
// with the error.
func (db *DB) SweepRateLimits(ctx context.Context, olderThan time.Duration) (swept int, err error) {
	if err := engine.NotNegative("age", olderThan); err != nil {
		return 0, fail("sweep rate limits", "", err)
	}
	swept, err = db.sweepPart(ctx, db.engine.Stores.Sweeps.OldWindows, row.Part{}, olderThan)
	return swept, fail("sweep rate limits", "", err)
}
