//go:build unix

package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// asAnother runs the command as a user without write permission. Root, which could write to any file, switches to an
// unprivileged user.
func asAnother(t *testing.T, dir string, args ...string) said {
	t.Helper()
	cmd := command(t, dir, args...)
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	return finished(t, cmd)
}

// A read-only file can be inspected. Commands that would change it report an error.
func TestFile_ReadOnly(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "honker-read-only")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700); _ = os.RemoveAll(dir) })
	require.NoError(t, open(t, filepath.Join(dir, "app.db")).Close())
	require.NoError(t, os.Chmod(filepath.Join(dir, "app.db"), 0o444))
	require.NoError(t, os.Chmod(dir, 0o555))
	require.NoError(t, os.Chmod(filepath.Dir(binary), 0o755))
	before := contents(t, dir)
	for _, args := range [][]string{{"status"}, {"check"}, {"top", "--once"}, {"stream", "tail", "orders"}, {"upgrade"}} {
		got := asAnother(t, dir, args...)
		require.Zero(t, got.code, "%v: %s", args, got.err)
	}
	for _, args := range [][]string{{"enqueue", "jobs", "1"}, {"queue", "pause", "jobs"}, {"vacuum"}, {"maintain", "--once"}, {"work", "jobs", "--", "true"}} {
		got := asAnother(t, dir, args...)
		require.Equal(t, codeRefused, got.code, "%v: %s", args, got.err)
		require.Contains(t, got.err, "app.db is read-only to this process", args)
		require.Contains(t, got.err, "\ntry: the same as a user that may use the file\n", args)
	}
	got := asAnother(t, dir, "backup", "copy.db")
	require.Equal(t, codeRefused, got.code, got.err)
	require.Contains(t, got.err, "permission denied\ntry: the same with another directory\n")
	require.NoError(t, os.Chmod(filepath.Join(dir, "app.db"), 0o000))
	got = asAnother(t, dir, "status", "-f", "app.db")
	require.Equal(t, codeRefused, got.code, got.err)
	require.Contains(t, got.err, "permission denied\ntry: the same as a user that may use the file\n")
	require.NoError(t, os.Chmod(filepath.Join(dir, "app.db"), 0o400))
	require.Equal(t, before, contents(t, dir))
}
