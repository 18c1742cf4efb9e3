package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// setType sets a field whose size depends on the machine. On s390x it has no sign.
func setType(st *syscall.Statfs_t, magic int64) {
	field := reflect.ValueOf(st).Elem().FieldByName("Type")
	if field.CanUint() {
		field.SetUint(uint64(uint32(magic)))
		return
	}
	field.SetInt(magic)
}

// Resolve refuses a special file.
func TestPath_Resolve_SpecialFile(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	_, err := resolve(fifo, false)
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "special file")
}

// Network filesystems are refused unless asked for.
func TestPath_NetworkFilesystem(t *testing.T) {
	real := statfs
	t.Cleanup(func() { statfs = real })
	for magic, name := range networkFilesystems {
		statfs = func(_ string, st *syscall.Statfs_t) error {
			// Sign-extended, as it may come from a kernel: 0xfe534d42 is negative.
			setType(st, int64(int32(magic)))
			return nil
		}
		path := filepath.Join(t.TempDir(), "a.db")
		_, err := resolve(path, false)
		require.ErrorIs(t, err, ErrUnsupported, name)
		require.ErrorContains(t, err, name)
		_, err = resolve(path, true)
		require.NoError(t, err, name)
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Contains(t, strings.Join(Warnings(path, info), ""), "lies on "+name)
	}
	for _, local := range []int64{0xef53, 0x58465342, 0x01021994, 0x794c7630} {
		statfs = func(_ string, st *syscall.Statfs_t) error { setType(st, local); return nil }
		_, err := resolve(file(t), false)
		require.NoError(t, err, "%x", local)
	}
	statfs = func(string, *syscall.Statfs_t) error { return errors.New("no such call") }
	_, err := resolve(file(t), false)
	require.NoError(t, err, "what cannot be asked about is taken for local")
}
