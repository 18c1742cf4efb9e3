package sqlite

import (
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// System calls. Each platform file has the same functions.

// Pause blocks for about d. Unlike time.Sleep it can wait for less than a millisecond on Linux,
// where the runtime waits for timers with epoll, in whole milliseconds.
func Pause(d time.Duration) {
	ts := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&ts, nil)
}

// links returns the number of hard links to a file.
func links(info fs.FileInfo) uint64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(s.Nlink)
	}
	return 1
}

// startWriteback starts writing f's dirty pages, without waiting for the disk.
func startWriteback(f *os.File) error {
	return unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
}

const canStartWriteback = true
