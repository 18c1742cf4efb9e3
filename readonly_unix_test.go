//go:build unix

package honker_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/testkit"
)

func init() { children["looker"] = lookAsNobody }

// lookAsNobody drops root privileges, because nothing is read-only to root, and reads the given files.
func lookAsNobody() {
	if os.Getuid() == 0 {
		testkit.Must(errors.Join(syscall.Setgroups(nil), syscall.Setgid(65534), syscall.Setuid(65534)))
	}
	for path, ok := testkit.ReadLine(); ok; path, ok = testkit.ReadLine() {
		testkit.Say(lookAt(path))
	}
}

// A file on a read-only medium can be read if its log was checkpointed. Otherwise Open returns the reason.
func TestReadOnly_Medium(t *testing.T) {
	root, err := os.MkdirTemp("", "honker") // t.TempDir is in a directory closed to other users
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(root)) })
	require.NoError(t, os.Chmod(root, 0o755))
	nobody := testkit.StartChild(t, "looker", nil)
	place := func(name string, files map[string]string) string {
		dir := filepath.Join(root, name)
		require.NoError(t, os.Mkdir(dir, 0o755))
		for to, from := range files {
			b, err := os.ReadFile(from)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, to), b, 0o444))
		}
		require.NoError(t, os.Chmod(dir, 0o555))
		t.Cleanup(func() { require.NoError(t, os.Chmod(dir, 0o755)) })
		return filepath.Join(dir, "app.db")
	}
	checkpointed := stockedFile(t)
	nobody.Tell(place("whole", map[string]string{"app.db": checkpointed}))
	require.Equal(t, "ready", nobody.Line(testkit.Timeout))

	live, db := testkit.OpenShared(t)
	stockUp(t, db)
	nobody.Tell(place("with a log", map[string]string{"app.db": live, "app.db-wal": live + "-wal"}))
	require.Regexp(t, "^true .*has a write-ahead log with commits", nobody.Line(testkit.Timeout))
	nobody.Tell(place("with an index", map[string]string{"app.db": live, "app.db-wal": live + "-wal", "app.db-shm": live + "-shm"}))
	require.Equal(t, "ready", nobody.Line(testkit.Timeout))
	nobody.End()
}
