package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
)

// afterDash requires want arguments before -- and a command line after it.
func afterDash(want int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch at := cmd.ArgsLenAtDash(); {
		case at < 0 || len(args) == at:
			return errors.New("no command to run: give it after --")
		case at != want:
			return cobra.ExactArgs(want)(cmd, args[:at])
		}
		return nil
	}
}

// program checks that the program in a command line exists. It is called before a job is claimed or a lock is taken.
func program(argv []string) error {
	if _, err := exec.LookPath(argv[0]); err != nil {
		return usage("", "%v", err)
	}
	return nil
}

// child is a command line run by honker.
type child struct {
	argv           []string
	env            []string // added to honker's own environment
	stdin          io.Reader
	stdout, stderr io.Writer
	grace          time.Duration // between SIGTERM and SIGKILL
	shared         bool          // stays in honker's process group, so that signals from a terminal reach both
}

// run runs the command and waits for it. When ctx ends, run sends SIGTERM to the process group, and SIGKILL after
// grace. The group includes any background processes of the command that keep its output open.
func (c child) run(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, c.argv[0], c.argv[1:]...)
	cmd.Env = append(os.Environ(), c.env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.stdin, c.stdout, c.stderr
	cmd.WaitDelay = c.grace
	if !c.shared {
		ownGroup(cmd)
	}
	cmd.Cancel = func() error { return askToEnd(cmd) }
	if err := cmd.Start(); err != nil {
		return err
	}
	err := cmd.Wait()
	left := errors.Is(err, exec.ErrWaitDelay)
	if left || ctx.Err() != nil {
		killGroup(cmd)
	}
	if cmd.ProcessState.Success() && (left || ctx.Err() != nil) {
		return nil // success counts even if the command was asked to end
	}
	return err
}

// exitCode returns a command's exit code as a shell would report it. ok is false if the command did not run.
func exitCode(err error) (code int, ok bool) {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, true
	case !errors.As(err, &exit):
		return 0, false
	case exit.Exited():
		return exit.ExitCode(), true
	}
	return 128 + signalOf(exit.ProcessState), true
}

// absolute returns path in a form that is also valid in a different current directory.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// beginning is an io.Writer that keeps the first bytes written to it.
type beginning struct {
	most int
	text []byte
	more bool // more bytes were written than fit
}

func (b *beginning) Write(p []byte) (int, error) {
	room := b.most - len(b.text)
	b.more = b.more || len(p) > room
	b.text = append(b.text, p[:min(len(p), room)]...)
	return len(p), nil
}

// ending is an io.Writer that forwards whole lines and keeps only the most recent bytes. A carriage return also ends
// a line, because progress bars use it. Lines longer than maxLine bytes are forwarded in parts.
type ending struct {
	to   *together
	most int
	text []byte
	line []byte // incomplete last line
}

const maxLine = 64 << 10

func (e *ending) Write(p []byte) (int, error) {
	e.text = append(e.text, p[max(0, len(p)-e.most):]...)
	if over := len(e.text) - e.most; over > 0 {
		e.text = append(e.text[:0], e.text[over:]...)
	}
	end := bytes.LastIndexAny(p, "\r\n") + 1
	if end == 0 && len(e.line)+len(p) > maxLine {
		end = len(p)
	}
	if end > 0 {
		e.to.write(append(e.line, p[:end]...))
		e.line = e.line[:0]
	}
	e.line = append(e.line, p[end:]...)
	return len(p), nil
}

// rest forwards an incomplete last line, and returns the bytes kept.
func (e *ending) rest() string {
	if len(e.line) > 0 {
		e.to.write(append(e.line, '\n'))
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(e.text), "�"))
}

// together is a writer shared by several commands. Write errors are ignored, because commands must not fail when
// honker's own output is closed.
type together struct {
	mu sync.Mutex
	w  io.Writer
}

func (t *together) write(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, _ = t.w.Write(p)
}

// Write implements io.Writer.
func (t *together) Write(p []byte) (int, error) {
	t.write(p)
	return len(p), nil
}
