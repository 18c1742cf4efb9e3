//go:build linux || darwin

package disk_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/disk"
)

// The free space is at most the size of the disk. A missing directory is an error.
func TestSpace(t *testing.T) {
	dir := t.TempDir()
	free, size, err := disk.Space(dir)
	require.NoError(t, err)
	require.Positive(t, size)
	require.LessOrEqual(t, free, size)
	_, _, err = disk.Space(filepath.Join(dir, "none"))
	require.Error(t, err)
}
