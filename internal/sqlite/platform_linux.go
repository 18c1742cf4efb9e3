package sqlite

import (
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// What is asked of the operating system. Each platform file has the same functions.

// Pause blocks for less than a millisecond, which time.Sleep cannot on Linux: the
// runtime waits for its timers with epoll, in whole milliseconds.
func Pause(d time.Duration) {
	ts := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&ts, nil)
}

// links counts the names that a file has.
func links(info fs.FileInfo) uint64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(s.Nlink)
	}
	return 1
}

// startWriteback has the kernel begin to write what is in memory of f, without waiting
// for the disk.
func startWriteback(f *os.File) error {
	return unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
}

const canStartWriteback = true
