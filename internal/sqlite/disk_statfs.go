//go:build linux || darwin

package sqlite

import "syscall"

// Disk returns the number of bytes that this process may still write to the disk containing dir, and
// the disk's size in bytes.
func Disk(dir string) (free, size int64, err error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, 0, err
	}
	block := int64(s.Bsize)
	return int64(s.Bavail) * block, int64(s.Blocks) * block, nil
}
