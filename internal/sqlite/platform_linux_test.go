package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/honker-go/honker/internal/engine"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// setType sets the Type field, whose size depends on the architecture. On s390x it is unsigned.
func setType(st *syscall.Statfs_t, magic int64) {
	field := reflect.ValueOf(st).Elem().FieldByName("Type")
	if field.CanUint() {
		field.SetUint(uint64(uint32(magic)))
		return
	}
	field.SetInt(magic)
}

// Resolve rejects special files.
func TestPath_Resolve_SpecialFile(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	_, err := resolve(fifo, Config{})
	require.ErrorIs(t, err, engine.ErrUnsupported)
	require.ErrorContains(t, err, "special file")
}

// mounted makes every path appear to be on a filesystem of this type.
func mounted(t *testing.T, magic int64) {
	t.Helper()
	real := statfs
	t.Cleanup(func() { statfs = real })
	statfs = func(_ string, st *syscall.Statfs_t) error { setType(st, magic); return nil }
}

// warningsOf returns the warnings for the file at path.
func warningsOf(t *testing.T, path string) string {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	return strings.Join(Warnings(path, info), "")
}

// A filesystem with machine-local locks is rejected unless Config allows it. Other filesystems that machines can
// share cause a warning.
func TestPath_Filesystem_SharedByMachines(t *testing.T) {
	for magic, on := range filesystems {
		// Sign-extended, as a kernel may return it: 0xfe534d42 is negative.
		mounted(t, int64(int32(magic)))
		path := filepath.Join(t.TempDir(), "a.db")
		_, err := resolve(path, Config{})
		if on.refused {
			require.ErrorIs(t, err, engine.ErrUnsupported, on.name)
			require.ErrorContains(t, err, on.name)
		} else {
			require.NoError(t, err, on.name)
		}
		_, err = resolve(path, Config{AnyFilesystem: true})
		require.NoError(t, err, on.name)
		require.Contains(t, warningsOf(t, path), "is on "+on.name)
		require.True(t, MayBeRemote(path), on.name)
	}
	require.True(t, filesystems[unix.CIFS_SUPER_MAGIC].refused)
	require.False(t, filesystems[unix.OCFS2_SUPER_MAGIC].refused)
}

// Local and unknown filesystems cause no warning.
func TestPath_Filesystem_Local(t *testing.T) {
	for _, magic := range []int64{unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.OVERLAYFS_SUPER_MAGIC} {
		mounted(t, magic)
		path, err := resolve(file(t), Config{})
		require.NoError(t, err, "%x", magic)
		require.Empty(t, warningsOf(t, path))
		require.False(t, MayBeRemote(path))
	}
	statfs = func(string, *syscall.Statfs_t) error { return errors.New("no such call") }
	path, err := resolve(file(t), Config{})
	require.NoError(t, err)
	require.Empty(t, warningsOf(t, path))
}

// All FUSE filesystems share a magic number. They are told apart by the mount table.
func TestPath_Filesystem_FUSE(t *testing.T) {
	mounted(t, unix.FUSE_SUPER_MAGIC)
	real := mountinfo
	t.Cleanup(func() { mountinfo = real })
	for kind, want := range map[string]filesystem{
		"fuse":       {name: "FUSE"},
		"fuse.sshfs": {name: "FUSE (fuse.sshfs)", refused: true},
		"fuse.own":   {name: "FUSE (fuse.own)"},
		"virtiofs":   {name: "FUSE (virtiofs)"},
		"fuseblk":    {},
	} {
		path := filepath.Join(t.TempDir(), "a.db")
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		mountinfo = filepath.Join(t.TempDir(), "mountinfo")
		require.NoError(t, os.WriteFile(mountinfo, []byte(mountsWith(t, path, kind)), 0o600))
		require.Equal(t, want, filesystemUnder(path), kind)
		_, err := resolve(path, Config{})
		require.Equal(t, want.refused, errors.Is(err, engine.ErrUnsupported), kind)
	}
	mountinfo = filepath.Join(t.TempDir(), "no such file")
	require.Equal(t, filesystem{name: "FUSE"}, filesystemUnder(t.TempDir()), "in doubt, there is a warning")
}

// mountsWith returns a mount table in which path is on a mount of the given kind.
func mountsWith(t *testing.T, path, kind string) string {
	t.Helper()
	var st unix.Stat_t
	require.NoError(t, unix.Stat(path, &st))
	dev := uint64(st.Dev)
	return fmt.Sprintf("21 1 999:1 / /other rw shared:1 - ext4 /dev/x rw\n43 21 %d:%d / /mnt rw,relatime shared:7 master:2 - %s some:thing rw\n",
		unix.Major(dev), unix.Minor(dev), kind)
}
