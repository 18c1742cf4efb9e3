package backend

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Sweeps go on while a connection over the limit is in use, so that it closes some time after it has been returned. Then
// they stop.
func TestRester_ConnectionsInUse(t *testing.T) {
	b, err := Open(t.Context(), filepath.Join(t.TempDir(), "app.db"), Options{IdleConns: 1, Readers: 8, BusyTimeout: time.Second})
	require.NoError(t, err)
	defer func() { require.NoError(t, b.Close()) }()
	first, err := b.userPool().Query(`SELECT 1 UNION ALL SELECT 2`)
	require.NoError(t, err)
	second, err := b.userPool().Query(`SELECT 1 UNION ALL SELECT 2`)
	require.NoError(t, err)
	armed := func() bool {
		resters.mu.Lock()
		defer resters.mu.Unlock()
		return resters.armed
	}
	for range 3 {
		Sweep()
		require.True(t, armed())
	}
	require.NoError(t, first.Close())
	require.NoError(t, second.Close())
	Sweep()
	require.Equal(t, 1, b.connector.OpenConns())
	Sweep()
	require.False(t, armed())
}
