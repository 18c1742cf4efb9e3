//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// ownGroup makes cmd the leader of a process group, so that a signal also reaches its children.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// askToEnd sends SIGTERM to the process group of cmd, or only to cmd if it doesn't have its own group.
func askToEnd(cmd *exec.Cmd) error { return signalTo(cmd, syscall.SIGTERM) }

func killGroup(cmd *exec.Cmd) { _ = signalTo(cmd, syscall.SIGKILL) }

func signalTo(cmd *exec.Cmd, s syscall.Signal) error {
	if cmd.SysProcAttr == nil {
		return cmd.Process.Signal(s)
	}
	err := syscall.Kill(-cmd.Process.Pid, s)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// signalOf returns the signal that ended a process, or 0.
func signalOf(state *os.ProcessState) int {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return int(status.Signal())
	}
	return 0
}
