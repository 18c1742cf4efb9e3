package storetest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
)

func locks(t *testing.T, open func(t *testing.T) *Fixture) {
	t.Run("AcquireOfHeldLock", func(t *testing.T) { lockIsHeld(t, open(t)) })
	t.Run("RollbackLeavesNothing", func(t *testing.T) { lockRolledBack(t, open(t)) })
}

// A lock belongs to a single owner until it expires, and each acquisition has a larger token.
func lockIsHeld(t *testing.T, d *Fixture) {
	now := start.Unix()
	acquire := func(owner string, now int64) (token int64, ok bool) {
		d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
			token, ok, err = d.Stores.Locks.Acquire(ctx, q, "nightly", owner, now, now+10)
			return err
		})
		return token, ok
	}
	first, ok := acquire("a", now)
	require.True(t, ok)
	_, ok = acquire("b", now+9)
	require.False(t, ok, "a holds the lock")
	_, ok = acquire("a", now+9)
	require.False(t, ok, "a lock is not reentrant")
	second, ok := acquire("b", now+10)
	require.True(t, ok, "the lock has expired")
	require.Greater(t, second, first)
}

// An acquisition that is rolled back leaves the lock free.
func lockRolledBack(t *testing.T, d *Fixture) {
	now := start.Unix()
	d.rollBack(t, func(ctx context.Context, q engine.Querier) error {
		_, ok, err := d.Stores.Locks.Acquire(ctx, q, "nightly", "a", now, now+10)
		require.True(t, ok)
		return err
	})
	d.read(t, func(ctx context.Context, q engine.Querier) error {
		_, held, err := d.Stores.Locks.Held(ctx, q, "nightly", now)
		require.False(t, held)
		return err
	})
}
