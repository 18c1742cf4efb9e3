package testkit

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
)

// watchSchema replaces WatchFile on another database. Bubbles use the file.
var watchSchema func(t testing.TB, path string) func(what string)

// Refusal is a call that must be rejected.
type Refusal = func(context.Context) error

// RequireRefused asserts that each call returns ErrInvalid, with an error text that begins with
// "honker: ", and does not change the file.
func RequireRefused(t *testing.T, path string, calls map[string]Refusal) {
	t.Helper()
	unchanged := WatchFile(t, path)
	for what, call := range calls {
		err := call(Context(t, Timeout))
		require.ErrorIs(t, err, honker.ErrInvalid, what)
		require.ErrorContains(t, err, "honker: ", what)
		unchanged(what)
	}
}

// WatchFile returns a function that asserts that nothing has been committed to the file since
// WatchFile was called. It uses a separate connection.
func WatchFile(t testing.TB, path string) func(what string) {
	t.Helper()
	if watchSchema != nil && !onFile() {
		return watchSchema(t, path)
	}
	conn, err := OpenPool(t, path).Conn(context.Background())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	version := func() (v int64) {
		require.NoError(t, conn.QueryRowContext(context.Background(), `PRAGMA data_version`).Scan(&v))
		return v
	}
	before := version()
	return func(what string) {
		t.Helper()
		require.Equal(t, before, version(), "%s has written", what)
	}
}
