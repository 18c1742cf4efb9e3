//go:build linux || darwin

package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/sqlite"
)

// The free space is at most the size of the disk. A missing directory is an error.
func TestDisk(t *testing.T) {
	dir := t.TempDir()
	free, size, err := sqlite.Disk(dir)
	require.NoError(t, err)
	require.Positive(t, size)
	require.LessOrEqual(t, free, size)
	_, _, err = sqlite.Disk(filepath.Join(dir, "none"))
	require.Error(t, err)
}
