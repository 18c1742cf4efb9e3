//go:build unix

package pages_test

import (
	"syscall"
	"time"
)

// cpuTime returns the CPU time that the process has used. On a busy machine it says more than the time on the clock.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
