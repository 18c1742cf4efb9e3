package testkit

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
)

// Listen creates a listener and closes it when the test ends.
func Listen(t testing.TB, db *honker.DB, channels ...string) *honker.Listener {
	t.Helper()
	l, err := db.Listen(context.Background(), channels...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

// Notify sends a message and returns its ID.
func Notify(t testing.TB, db *honker.DB, channel string, payload any) int64 {
	t.Helper()
	id, err := db.Notify(context.Background(), channel, payload)
	require.NoError(t, err)
	return id
}

// Receive asserts that the next messages have the given IDs.
func Receive(t testing.TB, l *honker.Listener, ids ...int64) {
	t.Helper()
	ctx := Context(t, Timeout)
	got := make([]int64, len(ids))
	for i := range ids {
		n, err := l.Next(ctx)
		require.NoError(t, err)
		got[i] = n.ID
	}
	require.Equal(t, ids, got)
}
