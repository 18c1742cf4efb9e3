//go:build unix && !linux

package sqlite

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// Pause blocks for about d: here timers are finer than a millisecond.
func Pause(d time.Duration) { time.Sleep(d) }

// links counts the names that a file has.
func links(info fs.FileInfo) uint64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(s.Nlink)
	}
	return 1
}

const canStartWriteback = false

func startWriteback(*os.File) error { return errors.ErrUnsupported }

// filesystemUnder is known on Linux only; elsewhere the caller must know.
func filesystemUnder(string) filesystem { return filesystem{} }
