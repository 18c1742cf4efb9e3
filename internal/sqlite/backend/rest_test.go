package backend

import (
	"fmt"
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
	require.Zero(t, b.connector.OpenConns())
	Sweep()
	require.False(t, armed())
}

// A process that opens many files does not have all of their connections at once. A file in regular use keeps its own.
func TestRester_ManyFilesAtOnce(t *testing.T) {
	dir := t.TempDir()
	open := func(name string) *File {
		b, err := Open(t.Context(), filepath.Join(dir, name), Options{IdleConns: 1, Readers: 8, BusyTimeout: time.Second})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, b.Close()) })
		return b
	}
	busy := open("busy.db")
	for range 2 * littleUsed {
		require.NoError(t, busy.own.Ping())
	}
	files := make([]*File, 4*crowd)
	for i := range files {
		files[i] = open(fmt.Sprintf("%d.db", i))
	}
	total := 0
	for _, b := range files {
		total += b.connector.OpenConns()
	}
	require.LessOrEqual(t, total, 2*crowd)
	require.Positive(t, busy.connector.OpenConns())
}
