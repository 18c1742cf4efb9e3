package testkit

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
)

// TakeLock takes a lock that is free.
func TakeLock(t testing.TB, db *honker.DB, name string, opts *honker.LockOptions) *honker.Lock {
	t.Helper()
	l, err := db.TryLock(context.Background(), name, opts)
	require.NoError(t, err)
	return l
}

// RequireHeld asserts that the lock cannot be had.
func RequireHeld(t testing.TB, db *honker.DB, name string) {
	t.Helper()
	l, err := db.TryLock(context.Background(), name, nil)
	require.ErrorIs(t, err, honker.ErrLockHeld)
	require.Nil(t, l)
}

// Unlock releases a lock that is still held.
func Unlock(t testing.TB, l *honker.Lock) {
	t.Helper()
	require.NoError(t, l.Unlock(context.Background()))
}

// LockExpiry is when the lock ? ends, 0 when there is none.
const LockExpiry = `SELECT coalesce((SELECT expires_at FROM _honker_locks WHERE name = ?), 0)`

// CountAllowed adds up what all windows have let through.
const CountAllowed = `SELECT coalesce(sum(count), 0) FROM _honker_rate_limits`
