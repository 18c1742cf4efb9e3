package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// perfTells reports whether perf is installed and permitted to count system calls.
var perfTells = sync.OnceValue(func() bool {
	_, err := syscalls(context.Background(), os.Getpid(), time.Millisecond)
	return err == nil
})

// syscalls returns the system calls per second of a process during length. It runs perf in another
// process, because counting is not free.
func syscalls(ctx context.Context, pid int, length time.Duration) (float64, error) {
	seconds := fmt.Sprint(length.Seconds())
	out, err := exec.CommandContext(ctx, "perf", "stat", "-x,", "-e", "raw_syscalls:sys_enter", "-p", strconv.Itoa(pid), "--", "sleep", seconds).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("perf: %w: %s", err, out)
	}
	count, _, _ := strings.Cut(string(out), ",")
	if count == "<not counted>" { // no system calls
		return 0, nil
	}
	calls, err := strconv.ParseFloat(count, 64)
	return calls / length.Seconds(), err
}
