package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// usage is what a process has used so far, seen from outside: to wake up and say so costs
// it more than to be idle.
type usage struct {
	cpu     time.Duration
	written float64 // KiB that it has sent to files
}

func usageOf(pid int) (usage, error) {
	cpu, err := cpuOf(pid)
	return usage{cpu, leading(field(fmt.Sprintf("/proc/%d/io", pid), "write_bytes")) / 1024}, err
}

// memoryOf that process in MiB.
func memoryOf(pid int) float64 {
	return leading(field(fmt.Sprintf("/proc/%d/status", pid), "VmRSS")) / 1024
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
