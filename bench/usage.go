package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// usage is the resource usage of a process so far. It is read from outside, because the process
// would use more by waking up to report it than by being idle.
type usage struct {
	cpu     time.Duration
	written float64 // KiB written to files
}

func usageOf(pid int) (usage, error) {
	cpu, err := cpuOf(pid)
	return usage{cpu, leading(field(fmt.Sprintf("/proc/%d/io", pid), "write_bytes")) / 1024}, err
}

// memoryOf returns the resident memory of a process in MiB.
func memoryOf(pid int) float64 {
	return leading(field(fmt.Sprintf("/proc/%d/status", pid), "VmRSS")) / 1024
}

// leading returns the number at the beginning of text, or 0 if there is none.
func leading(text string) float64 {
	digits, _, _ := strings.Cut(text, " ")
	v, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		return 0
	}
	return v
}
