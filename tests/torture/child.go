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

// Main runs the child that this process is and exits; in a process that is none it
// returns at once. A program that runs suites calls it first.
func Main() {
	testkit.RunChild(map[string]func(){"torture": play, "torture wakes": speak, "torture replaced": beReplaced})
}

// part is what a child is asked to do.
type part struct {
	Path   string
	Roles  []string
	Ledger string
	Number int // of the child; none has it twice
	Full   bool
	Clocks []time.Duration // by which it sets its clock ahead, one after another
	Began  time.Time       // the storm
}

// child is a process of a round.
type child struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser // its end tells the child to end
	stderr bytes.Buffer
	ended  chan struct{}
	err    error // once it has ended
}

func spawn(p part) (*child, error) {
	cmd, err := testkit.ChildCommand("torture", p)
	if err != nil {
		return nil, err
	}
	return start(cmd)
}

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

// kill ends the child as a crash would. One that has ended by itself has found
// something.
func (c *child) kill() error {
	_ = c.cmd.Process.Kill()
	<-c.ended
	return c.verdict()
}

// stop tells the child to end.
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
	return fmt.Errorf("a child has ended: %w\n%s", c.err, c.stderr.String())
}

// alive returns an error when the child has ended by itself.
func (c *child) alive() error {
	select {
	case <-c.ended:
		return errors.Join(errors.New("a child has ended too early"), c.verdict())
	default:
		return nil
	}
}
