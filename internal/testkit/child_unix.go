//go:build unix

package testkit

import (
	"errors"
	"syscall"
)

// Stop freezes the child, as a suspended machine or a debugger would, and returns when
// it stands still.
func (p *Child) Stop() {
	p.t.Helper()
	must(p.t, p.cmd.Process.Signal(syscall.SIGSTOP))
	var status syscall.WaitStatus
	_, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
	for errors.Is(err, syscall.EINTR) {
		_, err = syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
	}
	must(p.t, err)
}

// Cont lets a stopped child go on.
func (p *Child) Cont() {
	p.t.Helper()
	must(p.t, p.cmd.Process.Signal(syscall.SIGCONT))
}
