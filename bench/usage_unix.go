//go:build unix

package main

import (
	"strconv"
	"strings"
	"syscall"
	"time"
)

// usage of this process so far.
type usage struct {
	cpu     float64
	written float64 // KiB sent to files, where the system says so
	memory  float64 // MiB
}

func used() usage {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	cpu := time.Duration(u.Utime.Nano() + u.Stime.Nano())
	return usage{cpu.Seconds(), leading(field("/proc/self/io", "write_bytes")) / 1024, leading(field("/proc/self/status", "VmRSS")) / 1024}
}

// leading is the number that text begins with; 0: none.
func leading(text string) float64 {
	digits, _, _ := strings.Cut(text, " ")
	v, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		return 0
	}
	return v
}
