package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpuOf is the time that all threads of that process have had, in nanoseconds.
func cpuOf(pid int) (time.Duration, error) {
	var t unix.Timespec
	err := unix.ClockGettime(int32(^pid<<3|2), &t) // what clock_getcpuclockid(3) makes of pid
	return time.Duration(t.Nano()), err
}
