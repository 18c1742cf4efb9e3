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

// perfTells is whether perf is installed and may count the system calls of a process.
var perfTells = sync.OnceValue(func() bool {
	_, err := syscalls(context.Background(), os.Getpid(), time.Millisecond)
	return err == nil
})

// syscalls is how many a second that process makes while length goes by. Another
// process is asked, for what counts costs too.
func syscalls(ctx context.Context, pid int, length time.Duration) (float64, error) {
	seconds := fmt.Sprint(length.Seconds())
	out, err := exec.CommandContext(ctx, "perf", "stat", "-x,", "-e", "raw_syscalls:sys_enter", "-p", strconv.Itoa(pid), "--", "sleep", seconds).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("perf: %w: %s", err, out)
	}
	count, _, _ := strings.Cut(string(out), ",")
	if count == "<not counted>" { // it made none
		return 0, nil
	}
	calls, err := strconv.ParseFloat(count, 64)
	return calls / length.Seconds(), err
}
