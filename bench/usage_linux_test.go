package main

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The CPU time read from outside agrees with getrusage in the process.
func TestBench_CPUUsage(t *testing.T) {
	own := func() time.Duration {
		var u syscall.Rusage
		require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	for busy := time.Now(); time.Since(busy) < 50*time.Millisecond; {
		continue
	}
	before := own()
	seen, err := cpuOf(os.Getpid())
	require.NoError(t, err)
	const tick = 10 * time.Millisecond // granularity of the clock on some systems
	require.Greater(t, seen, before-tick)
	require.Less(t, seen, own()+tick)
	_, err = cpuOf(1 << 23)
	require.Error(t, err, "there is none with that number")
}
