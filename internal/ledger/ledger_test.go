package ledger_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/honker-go/honker/internal/ledger"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLedgerKeepsTheNotesOfAllItsWritersInOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	for i := range int64(2) {
		l, err := ledger.Open(path)
		require.NoError(t, err)
		require.NoError(t, l.Note("ran", i, 7))
		require.NoError(t, l.Close())
	}
	got, err := ledger.Read(path)
	require.NoError(t, err)
	require.Equal(t, []ledger.Entry{{"ran", 0}, {"ran", 7}, {"ran", 1}, {"ran", 7}}, got)
}

func TestHalfALineIsNoNoteAndNonsenseAnError(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	require.NoError(t, os.WriteFile(path, []byte("ran 1\nran 2"), 0o600))
	got, err := ledger.ReadAll(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Equal(t, map[string][]ledger.Entry{path: {{"ran", 1}}}, got)

	require.NoError(t, os.WriteFile(path, []byte("ran\n"), 0o600))
	_, err = ledger.ReadAll(filepath.Join(dir, "*"))
	require.ErrorContains(t, err, "ran")
}
