//go:build linux || darwin

package presence

import (
	"errors"
	"syscall"
)

// ask returns the state of a process with the same boot and PID namespace. Without permission to
// inspect the process, the state is Unknown.
func ask(pid int, start int64) Life {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return Gone
	}
	now, running := startOf(pid)
	switch {
	case !running && now == 0:
		return Unknown
	case !running || now != start:
		return Gone
	}
	return Alive
}
