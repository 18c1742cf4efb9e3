package honker_test

import (
	"context"
	"database/sql"
	"log/slog"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// allowed calls Allow n times and returns the number of permitted calls.
func allowed(t testing.TB, r *honker.RateLimit, n int) (yes int) {
	t.Helper()
	for range n {
		ok, err := r.Allow(context.Background())
		require.NoError(t, err)
		if ok {
			yes++
		}
	}
	return yes
}

// remaining returns the remaining number of calls and the time until the window ends.
func remaining(t testing.TB, r *honker.RateLimit) (int, time.Duration) {
	t.Helper()
	left, end, err := r.Remaining(context.Background())
	require.NoError(t, err)
	return left, time.Until(end)
}

// A rate limit permits its number of calls in each window.
func TestRateLimit_Allow_Limit(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute + 10*time.Second)))
		r := db.RateLimit("calls", 3, 59500*time.Millisecond) // rounded up to whole seconds
		for window := range 3 {
			left, ends := remaining(t, r)
			require.Equal(t, 3, left)
			require.Equal(t, 50*time.Second, ends)
			require.Equal(t, 3, allowed(t, r, 100))
			left, _ = remaining(t, r)
			require.Zero(t, left)
			require.EqualValues(t, 3*(window+1), testkit.QueryInt(t, db.SQL(), testkit.CountAllowed), "what is turned away is not counted")
			time.Sleep(ends - time.Nanosecond)
			require.Zero(t, allowed(t, r, 1), "the window has not ended")
			time.Sleep(time.Nanosecond)
			left, ends = remaining(t, r)
			require.Equal(t, 3, left)
			require.Equal(t, time.Minute, ends, "windows are multiples of their length since 1970")
			time.Sleep(10 * time.Second)
		}
	})
}

// All handles with the same name share a rate limit.
func TestRateLimit_Shared(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	other := honkertest.OpenFile(t, path, nil)
	a, b := db.RateLimit("calls", 5, 10000*time.Hour), other.RateLimit("calls", 5, 10000*time.Hour)
	require.Equal(t, 3, allowed(t, a, 3))
	left, _ := remaining(t, b)
	require.Equal(t, 2, left)
	require.Equal(t, 2, allowed(t, b, 3))
	require.Zero(t, allowed(t, a, 1))
	require.Equal(t, 5, allowed(t, db.RateLimit("other calls", 5, 10000*time.Hour), 6))
	lower, _ := remaining(t, db.RateLimit("calls", 1, 10000*time.Hour))
	require.Zero(t, lower, "never less than nothing")
}

// A rejected Allow writes nothing.
func TestRateLimit_Allow_Refused(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	r := db.RateLimit("calls", 1, 10000*time.Hour)
	require.Equal(t, 1, allowed(t, r, 1))
	unchanged := testkit.WatchFile(t, path)
	require.Zero(t, allowed(t, r, 10))
	unchanged("Allow")
}

// AllowTx counts a call when its transaction commits.
func TestRateLimit_AllowTx(t *testing.T) {
	t.Parallel()
	db := honkertest.Open(t, nil)
	r := db.RateLimit("calls", 2, 10000*time.Hour)
	inTx := func(fails error) error {
		return db.Tx(context.Background(), func(ctx context.Context, tx *sql.Tx) error {
			for want := 2; want >= 0; want-- {
				ok, err := r.AllowTx(ctx, tx)
				require.NoError(t, err)
				require.Equal(t, want > 0, ok)
			}
			_, err := r.Allow(ctx)
			require.ErrorIs(t, err, honker.ErrInTx)
			require.ErrorContains(t, err, "AllowTx")
			require.ErrorIs(t, r.Wait(ctx), honker.ErrInTx)
			return fails
		})
	}
	require.ErrorIs(t, inTx(testkit.ErrCause), testkit.ErrCause)
	require.Zero(t, testkit.QueryInt(t, db.SQL(), testkit.CountAllowed))
	require.NoError(t, inTx(nil))
	require.EqualValues(t, 2, testkit.QueryInt(t, db.SQL(), testkit.CountAllowed))
	require.Zero(t, allowed(t, r, 1))
}

// Wait returns when a window opens, in call order.
func TestRateLimit_Wait_InOrder(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour)))
		began := time.Now()
		type pass struct {
			who int
			at  time.Duration
		}
		passed := make(chan pass, 7)
		for i := range cap(passed) {
			go func() {
				require.NoError(t, db.RateLimit("calls", 3, 10*time.Minute).Wait(context.Background()))
				passed <- pass{i, time.Since(began)}
			}()
			synctest.Wait()
		}
		at := make(map[int]time.Duration) // callers within the same window may report in any order
		for range cap(passed) {
			p := <-passed
			at[p.who] = p.at
		}
		for i := range cap(passed) {
			require.Equal(t, time.Duration(i/3)*10*time.Minute, at[i], "who came as %d", i)
		}
		require.EqualValues(t, 7, testkit.QueryInt(t, db.SQL(), testkit.CountAllowed))
	})
}

// Wait ends with its context.
func TestRateLimit_Wait_Context(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		r := db.RateLimit("calls", 1, 10000*time.Hour)
		require.Equal(t, 1, allowed(t, r, 1))
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
		defer cancel()
		behind := make(chan error, 1)
		first := make(chan error, 1)
		go func() { first <- r.Wait(ctx) }()
		synctest.Wait()
		go func() { behind <- r.Wait(ctx) }()
		require.ErrorIs(t, <-first, context.DeadlineExceeded)
		require.ErrorIs(t, <-behind, context.DeadlineExceeded)
		require.Equal(t, 90*time.Second, time.Since(began))
		require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), testkit.CountAllowed))
	})
}

// A waiter that gives up lets the next waiter proceed.
func TestRateLimit_Wait_GivesUp(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		r := db.RateLimit("calls", 1, time.Hour)
		require.Equal(t, 1, allowed(t, r, 1))
		ctx, cancel := context.WithCancel(context.Background())
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- r.Wait(ctx) }()
		synctest.Wait()
		go func() { second <- r.Wait(context.Background()) }()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-first, context.Canceled)
		require.NoError(t, <-second)
		require.EqualValues(t, 2, testkit.QueryInt(t, db.SQL(), testkit.CountAllowed))
	})
}

// A sweep of rate limits deletes only old windows.
func TestRateLimit_Sweep(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		r := db.RateLimit("calls", 2, time.Minute)
		for range 5 {
			require.Equal(t, 1, allowed(t, r, 1))
			time.Sleep(time.Minute)
		}
		require.Equal(t, 1, allowed(t, r, 1))
		n, err := db.SweepRateLimits(context.Background(), 2*time.Minute+time.Second)
		require.NoError(t, err)
		require.GreaterOrEqual(t, n, 3)
		require.EqualValues(t, 6-n, testkit.QueryInt(t, db.SQL(), testkit.CountAllowed))
		require.Equal(t, 1, allowed(t, r, 2), "the window that runs was not swept")
	})
}

// Every verb rejects an invalid rate limit.
func TestRateLimit_BadInput(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	type c = context.Context
	calls := map[string]testkit.Refusal{}
	bad := func(what string, r *honker.RateLimit) {
		calls["Allow "+what] = func(c c) error { _, err := r.Allow(c); return err }
		calls["AllowTx "+what] = inOwnTx(db, func(c c, tx *sql.Tx) error { _, err := r.AllowTx(c, tx); return err })
		calls["Wait "+what] = func(c c) error { return r.Wait(c) }
		calls["Remaining "+what] = func(c c) error { _, _, err := r.Remaining(c); return err }
	}
	for kind, name := range badNames {
		bad("name "+kind, db.RateLimit(name, 1, time.Second))
	}
	bad("no limit", db.RateLimit("calls", 0, time.Second))
	bad("negative limit", db.RateLimit("calls", math.MinInt, time.Second))
	bad("no window", db.RateLimit("calls", 1, 0))
	bad("negative window", db.RateLimit("calls", 1, -time.Second))
	calls["sweep"] = func(c c) error { _, err := db.SweepRateLimits(c, -1); return err }
	testkit.RequireRefused(t, path, calls)
}

// The largest windows and limits do not overflow.
func TestRateLimit_Largest(t *testing.T) {
	t.Parallel()
	db := honkertest.Open(t, nil)
	r := db.RateLimit("calls", math.MaxInt, math.MaxInt64)
	require.Equal(t, 2, allowed(t, r, 2))
	left, ends := remaining(t, r)
	require.Equal(t, math.MaxInt-2, left)
	require.Greater(t, ends, 200*365*24*time.Hour)
	_, err := db.SweepRateLimits(context.Background(), math.MaxInt64)
	require.NoError(t, err)
	l := testkit.TakeLock(t, db, "report", &honker.LockOptions{TTL: math.MaxInt64})
	testkit.RequireHeld(t, db, "report")
	testkit.Unlock(t, l)
}

// If a handle has a smaller limit than another handle with the same name, it logs this once.
func TestRateLimit_Allow_OtherLimit(t *testing.T) {
	t.Parallel()
	log := new(testkit.Log)
	db := honkertest.Open(t, &honker.Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
	ctx := testkit.Context(t, testkit.Timeout)
	large, small := db.RateLimit("api", 3, 24*365*time.Hour), db.RateLimit("api", 2, 24*365*time.Hour)
	for range 3 {
		ok, err := large.Allow(ctx)
		require.True(t, ok && err == nil, err)
	}
	for range 3 {
		ok, err := small.Allow(ctx)
		require.True(t, !ok && err == nil, err)
		ok, err = large.Allow(ctx)
		require.True(t, !ok && err == nil, err)
	}
	require.Equal(t, 1, log.Times("another handle of this rate limit has a larger limit"))
	require.Equal(t, 1, log.Times("name=api limit=2 used=3"))
}
