//go:build unix && !linux

package sqlite

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// Pause blocks for about d. Timers on this platform are finer than a millisecond.
func Pause(d time.Duration) { time.Sleep(d) }

// links returns the number of hard links to a file.
func links(info fs.FileInfo) uint64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(s.Nlink)
	}
	return 1
}

const canStartWriteback = false

func startWriteback(*os.File) error { return errors.ErrUnsupported }

// filesystemUnder is implemented only on Linux. On other platforms it is up to the caller to know the filesystem.
func filesystemUnder(string) filesystem { return filesystem{} }
