//go:build unix

package main

import (
	"syscall"
	"time"
)

// cpuSeconds that this process has used so far.
func cpuSeconds() float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}
