//go:build unix && !darwin && !solaris && !illumos && !aix

package sqlite

import (
	"syscall"
	"time"
)

// Pause blocks for less than a millisecond, which time.Sleep cannot.
func Pause(d time.Duration) {
	ts := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&ts, nil)
}
