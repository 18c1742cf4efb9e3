package honker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker/internal/store"
)

// RateLimit lets up to a number of calls through in each window of time, all processes on
// the file taken together, in any language. Windows are fixed: as in honker's format they
// start at whole multiples of their length since 1970, so up to twice the limit may
// pass around the end of one. What is turned away is not counted.
//
// It is a cheap handle: make it where you need it. All that share a name should have the
// same limit and window; each counts in the windows of its own length.
type RateLimit struct {
	db    *DB
	name  string
	limit int
	per   int64 // seconds
	err   error // a bad name or number: said by the first verb
}

// RateLimit returns a handle that lets limit calls through per window. per is rounded up
// to whole seconds. It touches nothing; a bad name, or a limit or window that is not
// positive, is [ErrInvalid] from its first verb.
func (db *DB) RateLimit(name string, limit int, per time.Duration) *RateLimit {
	err := errors.Join(checkName("rate limit name", name), positive("window", per))
	if limit <= 0 {
		err = errors.Join(err, fmt.Errorf("%w: limit %d is not positive", ErrInvalid, limit))
	}
	return &RateLimit{db: db, name: name, limit: limit, per: seconds(per), err: err}
}

// window is the second at which the window of now started.
func (r *RateLimit) window(now time.Time) int64 { return now.Unix() / r.per * r.per }

func (r *RateLimit) end(window int64) time.Time { return time.Unix(window+r.per, 0) }

// Allow counts one call in the current window and returns true, or returns false when the
// limit is reached. It waits for its turn to write until ctx ends or BusyTimeout has
// passed; concurrent calls share commits, and a call that is turned away writes nothing.
func (r *RateLimit) Allow(ctx context.Context) (bool, error) {
	ok, _, err := r.allow(ctx)
	return ok, fail("rate limit", r.name, err)
}

// allow also returns the window that it was asked for.
func (r *RateLimit) allow(ctx context.Context) (ok bool, window int64, err error) {
	if r.err != nil {
		return false, 0, r.err
	}
	if err := r.db.mayLook(ctx, "AllowTx"); err != nil {
		return false, 0, err
	}
	window = r.window(time.Now())
	used, err := store.RateLimits{}.Count(context.WithoutCancel(ctx), r.db.own, r.name, window)
	if err != nil || used >= r.limit {
		return false, window, r.db.because(err)
	}
	err = r.db.do(ctx, "AllowTx", writeOne(func(ctx context.Context, q store.Querier, now time.Time) (err error) {
		window = r.window(now)
		ok, err = store.RateLimits{}.Take(ctx, q, r.name, window, r.limit)
		return err
	}))
	return ok && err == nil, window, err
}

// AllowTx is like [RateLimit.Allow], within tx: the call counts when tx commits, and
// never did when it rolls back.
func (r *RateLimit) AllowTx(ctx context.Context, tx Tx) (bool, error) {
	err := r.err
	if err == nil {
		tx, err = r.db.in(ctx, tx)
	}
	if err != nil {
		return false, fail("rate limit", r.name, err)
	}
	ok, err := store.RateLimits{}.Take(ctx, tx, r.name, r.window(time.Now()), r.limit)
	return ok && err == nil, fail("rate limit", r.name, err)
}

// Wait returns nil when it has counted a call: at once, or in a window to come, to whose
// start it sleeps. It ends with ctx, and when the DB is closed. Those of one process who
// wait for the same limit pass in the order in which they came; processes meet at the
// start of each window and none is preferred.
//
// Wait bounds nothing by itself: with a window of a day it may wait for a day, and as
// long as others take all of every window it does not return. Give it a ctx that ends.
func (r *RateLimit) Wait(ctx context.Context) error {
	err := r.err
	if err == nil {
		err = inTx(ctx, r.db, "AllowTx")
	}
	if err == nil {
		err = r.wait(ctx)
	}
	return fail("wait for the rate limit", r.name, err)
}

func (r *RateLimit) wait(ctx context.Context) error {
	ctx, leave, err := r.db.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	next, err := r.db.lines.join(ctx, fmt.Sprintf("rate %d/%d %s", r.limit, r.per, r.name))
	if err != nil {
		return err
	}
	defer next()
	for {
		ok, window, err := r.allow(ctx)
		if ok || err != nil {
			return err
		}
		if err := r.sleep(ctx, window); err != nil {
			return err
		}
	}
}

// clockCheck bounds a sleep: the clock may be set, and the machine suspended.
const clockCheck = time.Minute

// sleep returns when window is over. The hub only tells it that the file is gone.
func (r *RateLimit) sleep(ctx context.Context, window int64) error {
	s := r.db.hub.subscribe(topic{rateWindow, r.name})
	defer s.leave()
	for now := time.Now(); r.window(now) == window; now = time.Now() {
		err := s.waitFor(ctx, min(r.end(window).Sub(now), clockCheck))
		if ctx.Err() != nil {
			return ended(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Remaining reads how many calls the current window still lets through, and when it ends.
// Others may take them meanwhile.
func (r *RateLimit) Remaining(ctx context.Context) (int, time.Time, error) {
	err := r.err
	if err == nil && r.db.isClosed() {
		err = ErrClosed
	}
	if err != nil {
		return 0, time.Time{}, fail("remaining of rate limit", r.name, err)
	}
	window := r.window(time.Now())
	used, err := store.RateLimits{}.Count(ctx, r.db.own, r.name, window)
	if err != nil {
		return 0, time.Time{}, fail("remaining of rate limit", r.name, r.db.because(err))
	}
	return max(0, r.limit-used), r.end(window), nil
}

// SweepRateLimits deletes the windows, of all names, that started more than olderThan,
// rounded up to seconds, before the current second, and returns how many. Nothing else
// deletes them. The file does not say how long a window is: one that is still running
// and is swept starts anew, so olderThan must be longer than the longest window in use.
func (db *DB) SweepRateLimits(ctx context.Context, olderThan time.Duration) (int, error) {
	if err := notNegative("age", olderThan); err != nil {
		return 0, fail("sweep rate limits", "", err)
	}
	swept := 0
	err := db.do(ctx, "", writeOne(func(ctx context.Context, q store.Querier, now time.Time) (err error) {
		swept, err = store.RateLimits{}.Sweep(ctx, q, now.Unix()-seconds(olderThan))
		return err
	}))
	return swept, fail("sweep rate limits", "", err)
}
