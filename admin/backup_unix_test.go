//go:build unix

package admin_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// modesOf returns all the permissions that the named file had until ctx ended.
func modesOf(ctx context.Context, name string) map[fs.FileMode]bool {
	seen := make(map[fs.FileMode]bool)
	for ctx.Err() == nil {
		if info, err := os.Stat(name); err == nil {
			seen[info.Mode().Perm()] = true
		}
	}
	return seen
}

// A backup gets the database's permissions regardless of the umask. Until it is complete, only its owner
// can read it.
func TestBackup_Permissions(t *testing.T) {
	testkit.FileOnly(t)
	defer syscall.Umask(syscall.Umask(0))
	dir := t.TempDir()
	path := filepath.Join(dir, "app.db")
	db := honkertest.OpenFile(t, path, nil)
	_, err := honker.NewQueue[int](db, "jobs", nil).EnqueueMany(t.Context(), make([]int, 20_000)) // enough for more than a few steps
	require.NoError(t, err)
	attached, err := honker.Attach(t.Context(), testkit.OpenPool(t, path), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, attached.Close()) })
	for _, mode := range []fs.FileMode{0o600, 0o640, 0o644, 0o666} {
		for name, from := range map[string]*honker.DB{"opened": db, "attached": attached} {
			require.NoError(t, os.Chmod(path, mode))
			to := filepath.Join(dir, name+mode.String())
			ctx, stop := context.WithCancel(t.Context())
			parts := make(chan map[fs.FileMode]bool)
			go func() { parts <- modesOf(ctx, to+".part") }()
			err := admin.Backup(t.Context(), from, to)
			stop()
			seen := <-parts
			require.NoError(t, err)
			info, err := os.Stat(to)
			require.NoError(t, err)
			require.Equal(t, mode, info.Mode().Perm(), name)
			delete(seen, mode) // seen between the last page and the rename
			delete(seen, 0o600)
			require.Empty(t, seen, "%s: permissions of the copy while it was written", name)
			require.Equal(t, int64(20_000), jobsIn(t, to))
		}
	}
}

// Backup copies read-only and private files with their permissions.
func TestBackup_Permissions_ReadOnly(t *testing.T) {
	testkit.FileOnly(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "app.db")
	require.NoError(t, honkertest.OpenFile(t, path, nil).Close())
	require.NoError(t, os.Chmod(path, 0o400))
	db := honkertest.OpenFile(t, path, &honker.Options{ReadOnly: true})
	to := filepath.Join(dir, "copy.db")
	require.NoError(t, admin.Backup(t.Context(), db, to))
	info, err := os.Stat(to)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o400), info.Mode().Perm())
}
