//go:build linux || darwin

package presence

import (
	"errors"
	"syscall"
)

// ask looks for a process of this boot and space. One that may not be looked at may be any.
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
