package testkit_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/testkit"
)

// A ledger keeps the notes of successive writers in order.
func TestLedger_InOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	for i := range int64(2) {
		l, err := testkit.OpenLedger(path)
		require.NoError(t, err)
		require.NoError(t, l.Note("ran", i, 7))
		require.NoError(t, l.Close())
	}
	got, err := testkit.ReadLedger(path)
	require.NoError(t, err)
	require.Equal(t, []testkit.Entry{{"ran", 0}, {"ran", 7}, {"ran", 1}, {"ran", 7}}, got)
}

// An incomplete last line is ignored, but a malformed line is an error.
func TestLedger_HalfLine(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	require.NoError(t, os.WriteFile(path, []byte("ran 1\nran 2"), 0o600))
	got, err := testkit.ReadLedgers(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Equal(t, map[string][]testkit.Entry{path: {{"ran", 1}}}, got)

	require.NoError(t, os.WriteFile(path, []byte("ran\n"), 0o600))
	_, err = testkit.ReadLedgers(filepath.Join(dir, "*"))
	require.ErrorContains(t, err, "ran")
}
