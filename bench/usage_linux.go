package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpuOf returns the CPU time of all threads of a process.
func cpuOf(pid int) (time.Duration, error) {
	var t unix.Timespec
	err := unix.ClockGettime(int32(^pid<<3|2), &t) // clock id as computed by clock_getcpuclockid(3)
	return time.Duration(t.Nano()), err
}
