//go:build unix

package torture

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"

	"github.com/honker-go/honker/internal/testkit"
)

// Main runs the child process and exits. In any other process it returns at once. Programs that run
// suites must call it first.
func Main() {
	testkit.Durable()
	testkit.RunChild(map[string]func(){"torture": play, "torture wakes": speak, "torture replaced": beReplaced})
}

// part contains the arguments of a child process.
type part struct {
	Path   string
	Roles  []string
	Ledger string
	Number int // unique number of the child
	Full   bool
	Clocks []time.Duration // offsets of the child's clock, set in random order
	Began  time.Time       // start of the storm
}

// child is a process of a round.
type child struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser // closing it tells the child to end
	stderr bytes.Buffer
	ended  chan struct{}
	err    error // valid after ended is closed
}

func spawn(p part) (*child, error) {
	cmd, err := testkit.ChildCommand("torture", p)
	if err != nil {
		return nil, err
	}
	return start(cmd)
}

// start starts a child. The caller may set its stdout before.
func start(cmd *exec.Cmd) (*child, error) {
	c := &child{cmd: cmd, ended: make(chan struct{})}
	cmd.Stderr = &c.stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	c.stdin = stdin
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		c.err = cmd.Wait()
		close(c.ended)
	}()
	return c, nil
}

// kill kills the child, which simulates a crash. It returns an error if the child had already
// exited because it found a fault.
func (c *child) kill() error {
	_ = c.cmd.Process.Kill()
	<-c.ended
	return c.verdict()
}

// stop tells the child to end and waits for it.
func (c *child) stop() error {
	_ = c.stdin.Close()
	<-c.ended
	return c.verdict()
}

func (c *child) verdict() error {
	var exit *exec.ExitError
	if c.err == nil || errors.As(c.err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return nil
	}
	return fmt.Errorf("a child process failed: %w\n%s", c.err, c.stderr.String())
}

// alive returns an error if the child has exited on its own.
func (c *child) alive() error {
	select {
	case <-c.ended:
		return errors.Join(errors.New("a child process exited early"), c.verdict())
	default:
		return nil
	}
}
