package main

import (
	"strconv"
	"strings"
)

// written is how many KiB this process has sent to files so far, where the system says so.
func written() float64 { return leading(field("/proc/self/io", "write_bytes")) / 1024 }

// memory of this process in MiB, where the system says so.
func memory() float64 { return leading(field("/proc/self/status", "VmRSS")) / 1024 }

// leading is the number that text begins with; 0: none.
func leading(text string) float64 {
	digits, _, _ := strings.Cut(text, " ")
	v, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		return 0
	}
	return v
}
