package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

func locks(t *testing.T, open func(t *testing.T) *Fixture) {
	t.Run("AcquireOfHeldLock", func(t *testing.T) { lockIsHeld(t, open(t)) })
	t.Run("RenewAndRelease", func(t *testing.T) { lockFences(t, open(t)) })
	t.Run("LastsItsTTL", func(t *testing.T) { lockLasts(t, open(t)) })
	t.Run("AsModel", func(t *testing.T) { locksAsModel(t, open(t)) })
	t.Run("States", func(t *testing.T) { lockStates(t, open(t)) })
	t.Run("RollbackLeavesNothing", func(t *testing.T) { lockRolledBack(t, open(t)) })
}

// acquire takes the lock "nightly", and returns it with its token.
func acquire(t *testing.T, d *Fixture, owner string, ttl time.Duration, now time.Time) (l row.Lock, token int64) {
	t.Helper()
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
		l, token, err = d.Stores.Locks.Acquire(ctx, q, "nightly", owner, ttl, now)
		return err
	})
	return l, token
}

func heldLocks(t *testing.T, d *Fixture, name string, now time.Time) (all []row.Lock) {
	t.Helper()
	d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
		all, err = d.Stores.Locks.Held(ctx, q, name, now)
		return err
	})
	return all
}

// A lock belongs to a single owner until it expires, and each acquisition has a larger token. An acquisition that
// fails returns the lock as it is held and changes nothing.
func lockIsHeld(t *testing.T, d *Fixture) {
	mine, first := acquire(t, d, "a", 10*time.Second, start)
	require.Positive(t, first)
	require.Equal(t, "a", mine.Owner)
	for _, owner := range []string{"b", "a"} { // locks aren't reentrant
		held, token := acquire(t, d, owner, time.Hour, mine.Expires.Add(-time.Second))
		require.Zero(t, token)
		require.Equal(t, mine, held)
	}
	require.Equal(t, []row.Lock{mine}, heldLocks(t, d, "nightly", mine.Expires.Add(-time.Second)))
	require.Empty(t, heldLocks(t, d, "nightly", mine.Expires))
	_, second := acquire(t, d, "b", 10*time.Second, mine.Expires)
	require.Greater(t, second, first)
}

// Only a lock's owner can renew it before it expires, and only the owner can release it.
func lockFences(t *testing.T, d *Fixture) {
	renew := func(owner string, now time.Time) (until time.Time, ok bool) {
		d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
			until, ok, err = d.Stores.Locks.Renew(ctx, q, "nightly", owner, 10*time.Second, now)
			return err
		})
		return until, ok
	}
	release := func(owner string) (ok bool) {
		d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
			ok, err = d.Stores.Locks.Release(ctx, q, "nightly", owner)
			return err
		})
		return ok
	}
	_, ok := renew("a", start)
	require.False(t, ok, "there is no lock")
	require.False(t, release("a"))
	l, _ := acquire(t, d, "a", 10*time.Second, start)
	_, ok = renew("b", start.Add(5*time.Second))
	require.False(t, ok, "the lock of another owner")
	require.False(t, release("b"))
	require.Equal(t, []row.Lock{l}, heldLocks(t, d, "nightly", start.Add(5*time.Second)))

	until, ok := renew("a", start.Add(5*time.Second))
	require.True(t, ok)
	require.True(t, until.After(l.Expires))
	require.Equal(t, until, heldLocks(t, d, "nightly", l.Expires)[0].Expires)
	_, ok = renew("a", until)
	require.False(t, ok, "the lock has expired")
	require.Empty(t, heldLocks(t, d, "nightly", until))

	acquire(t, d, "b", time.Minute, until)
	require.False(t, release("a"), "it belongs to b now")
	require.True(t, release("b"))
	require.Empty(t, heldLocks(t, d, "nightly", until))
	_, token := acquire(t, d, "c", time.Minute, until)
	require.Positive(t, token, "a released lock is free at once")
}

// A lock lasts for at least its TTL, which the database may round up by at most two seconds.
func lockLasts(t *testing.T, d *Fixture) {
	now := start.Add(300 * time.Millisecond)
	for _, ttl := range []time.Duration{time.Millisecond, time.Second, 1500 * time.Millisecond, time.Hour} {
		l, _ := acquire(t, d, "a", ttl, now)
		require.False(t, l.Expires.Before(now.Add(time.Second)), "%v: it is renewed after a third of a second at the earliest", ttl)
		require.False(t, l.Expires.Before(now.Add(ttl)), "%v", ttl)
		require.Less(t, l.Expires, now.Add(ttl+2*time.Second), "%v", ttl)
		now = l.Expires
	}
}

// A random sequence of verbs has the same results as a map from names to owners.
func locksAsModel(t *testing.T, d *Fixture) {
	r := random(t)
	held := map[string]row.Lock{}
	now, last := start, int64(0)
	for step := range 400 {
		now = now.Add(time.Duration(r.IntN(3)) * time.Second)
		name, owner := fmt.Sprint("lock", r.IntN(2)), fmt.Sprint("owner", r.IntN(3))
		is, taken := held[name]
		taken = taken && now.Before(is.Expires)
		d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
			switch r.IntN(3) {
			case 0:
				l, token, err := d.Stores.Locks.Acquire(ctx, q, name, owner, 5*time.Second, now)
				if taken {
					require.Zero(t, token, "step %d", step)
					require.Equal(t, is, l)
					return err
				}
				require.Greater(t, token, last, "step %d", step)
				held[name], last = l, token
				return err
			case 1:
				until, ok, err := d.Stores.Locks.Renew(ctx, q, name, owner, 5*time.Second, now)
				require.Equal(t, taken && is.Owner == owner, ok, "step %d", step)
				if ok {
					is.Expires = until
					held[name] = is
				}
				return err
			default:
				if taken && is.Owner != owner {
					ok, err := d.Stores.Locks.Release(ctx, q, name, owner)
					require.False(t, ok, "step %d", step)
					return err
				}
				if !taken { // it isn't specified whether an expired lock's row still exists
					return nil
				}
				ok, err := d.Stores.Locks.Release(ctx, q, name, owner)
				require.True(t, ok, "step %d", step)
				delete(held, name)
				return err
			}
		})
		var want []row.Lock
		for _, name := range []string{"lock0", "lock1"} {
			if l, ok := held[name]; ok && now.Before(l.Expires) {
				want = append(want, l)
			}
		}
		require.Equal(t, want, heldLocks(t, d, "", now), "step %d", step)
	}
}

// States returns the time at which each held lock expires.
func lockStates(t *testing.T, d *Fixture) {
	l, _ := acquire(t, d, "a", 10*time.Second, start)
	d.read(t, func(ctx context.Context, q engine.Querier) error {
		names := []string{"nightly", "free", `"`, "new\nline"}
		states, err := d.Stores.Wake.Locks(ctx, q, names, start)
		require.Equal(t, map[string]time.Time{"nightly": l.Expires, "free": {}, `"`: {}, "new\nline": {}}, states)
		require.NoError(t, err)
		states, err = d.Stores.Wake.Locks(ctx, q, names[:1], l.Expires)
		require.Equal(t, map[string]time.Time{"nightly": {}}, states)
		require.NoError(t, err)
		states, err = d.Stores.Wake.Locks(ctx, q, nil, start)
		require.Empty(t, states)
		return err
	})
}

// An acquisition that is rolled back leaves the lock free.
func lockRolledBack(t *testing.T, d *Fixture) {
	d.rollBack(t, func(ctx context.Context, q engine.Querier) error {
		_, token, err := d.Stores.Locks.Acquire(ctx, q, "nightly", "a", 10*time.Second, start)
		require.Positive(t, token)
		return err
	})
	require.Empty(t, heldLocks(t, d, "nightly", start))
	l, _ := acquire(t, d, "b", 10*time.Second, start)
	d.rollBack(t, func(ctx context.Context, q engine.Querier) error {
		_, ok, err := d.Stores.Locks.Renew(ctx, q, "nightly", "b", time.Hour, start)
		require.True(t, ok)
		return err
	})
	d.rollBack(t, func(ctx context.Context, q engine.Querier) error {
		ok, err := d.Stores.Locks.Release(ctx, q, "nightly", "b")
		require.True(t, ok)
		return err
	})
	require.Equal(t, []row.Lock{l}, heldLocks(t, d, "nightly", start))
}
