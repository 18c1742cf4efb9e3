package testkit

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
)

// TakeLock takes a lock. It fails the test if the lock is not free.
func TakeLock(t testing.TB, db *honker.DB, name string, opts *honker.LockOptions) *honker.Lock {
	t.Helper()
	l, err := db.TryLock(context.Background(), name, opts)
	require.NoError(t, err)
	return l
}

// RequireHeld asserts that the lock is held.
func RequireHeld(t testing.TB, db *honker.DB, name string) {
	t.Helper()
	l, err := db.TryLock(context.Background(), name, nil)
	require.ErrorIs(t, err, honker.ErrLockHeld)
	require.Nil(t, l)
}

// Unlock releases a lock. It fails the test if the lock was lost.
func Unlock(t testing.TB, l *honker.Lock) {
	t.Helper()
	require.NoError(t, l.Unlock(context.Background()))
}
