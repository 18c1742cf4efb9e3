//go:build unix

package testkit

import (
	"errors"
	"syscall"
)

// Stop suspends the child, as a debugger or a suspended machine would, and waits until it has stopped.
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

// Cont resumes a stopped child.
func (p *Child) Cont() {
	p.t.Helper()
	must(p.t, p.cmd.Process.Signal(syscall.SIGCONT))
}
