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

// afterDash are the arguments before and after --, where the command line of another program begins.
func afterDash(want int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch at := cmd.ArgsLenAtDash(); {
		case at < 0 || len(args) == at:
			return errors.New("the command to run is missing: it comes after --")
		case at != want:
			return cobra.ExactArgs(want)(cmd, args[:at])
		}
		return nil
	}
}

// program finds the program of a command line, before anything is claimed or locked for it.
func program(argv []string) error {
	if _, err := exec.LookPath(argv[0]); err != nil {
		return usage("", "%v", err)
	}
	return nil
}

// child is a command line that honker runs.
type child struct {
	argv           []string
	env            []string // beside those of honker
	stdin          io.Reader
	stdout, stderr io.Writer
	grace          time.Duration // between the asking to end and the kill
	shared         bool          // it stays in honker's process group: a terminal's signals reach both
}

// run runs the command to its end. When ctx ends its process group is asked to end, and killed after
// grace: so are processes that it has started and not waited for, and that keep its output open.
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
		return nil // it has ended well, asked or not
	}
	return err
}

// exitCode is that of a command that has run, as a shell tells it; ok is false if it has not.
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

// absolute is path for a process that may have another current directory.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// beginning keeps the first bytes that are written to it.
type beginning struct {
	most int
	text []byte
	more bool // was written
}

func (b *beginning) Write(p []byte) (int, error) {
	room := b.most - len(b.text)
	b.more = b.more || len(p) > room
	b.text = append(b.text, p[:min(len(p), room)]...)
	return len(p), nil
}

// ending passes on what is written to it, whole lines at a time, and keeps the last bytes. A carriage return ends a line
// too, as of a progress bar, and a line of more than maxLine bytes is passed on in parts.
type ending struct {
	to   *together
	most int
	text []byte
	line []byte // has no end yet
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

// rest passes on a last line that has no end, and returns the last lines.
func (e *ending) rest() string {
	if len(e.line) > 0 {
		e.to.write(append(e.line, '\n'))
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(e.text), "�"))
}

// together is what several commands write to at once. That it cannot be written is no error of theirs.
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
