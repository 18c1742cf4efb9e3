package testkit

import (
	"errors"
	"testing"

	"github.com/honker-go/honker/internal/disk"
)

// Disk sets the free space and size reported for all disks, or the error from reading them, until the end of the
// test.
func Disk(t *testing.T, free, size int64, err error) {
	was := disk.Space
	t.Cleanup(func() { disk.Space = was })
	disk.Space = func(string) (int64, int64, error) { return free, size, err }
}

// NoDisk makes the sizes of all disks unknown, so that no test reports a problem with the disk it runs on.
func NoDisk() {
	disk.Space = func(string) (int64, int64, error) { return 0, 0, errors.ErrUnsupported }
}
