package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// Some measurements need a second process. It is this program, started again with a task in the
// environment. It communicates in lines and exits when its stdin is closed.
const childVar = "HONKER_BENCH_CHILD"

// task is the task of a child process.
type task struct {
	Do         string // action, see run
	Contestant string
	Path       string // path of the file, or of a directory for "idle"
	Durability Durability
	PerSecond  int           // jobs per second, for "flow"
	Databases  int           // for "idle" and "tenants"
	Queues     int           // queues per database, for "crowd"; number of actors, for "actors"
	Listeners  int           // per database
	Goroutines int           // of "enqueue"; pool size of "tenants", or 0 for no pool
	Runs       int           // of "waiting"
	Lease      time.Duration // of "hold" and "await"
	Gate       bool          // of "enqueue" and "drain" on a server: wait for the parent
	Length     time.Duration // duration of the measurement
}

// asChild runs the task and exits if this process is a child.
func asChild() {
	text := os.Getenv(childVar)
	if text == "" {
		return
	}
	var t task
	err := json.Unmarshal([]byte(text), &t)
	if err == nil {
		err = t.run(untilStdinCloses())
	}
	if err != nil {
		fmt.Println("ERROR", err)
	}
	os.Exit(0)
}

func untilStdinCloses() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
		time.Sleep(20 * time.Second) // safety net in case the task does not end, after the parent has exited
		os.Exit(1)
	}()
	return ctx
}

func (t task) run(ctx context.Context) error {
	switch t.Do {
	case "paced":
		return t.paced(ctx)
	case "reads":
		return t.reads(ctx)
	case "hold", "await":
		return t.hold(ctx)
	case "waiting":
		return t.waiting(ctx)
	}
	for _, c := range t.contestants() {
		if c.Name != t.Contestant {
			continue
		}
		switch t.Do {
		case "work":
			return t.work(ctx, c)
		case "flow":
			return t.flow(ctx, c)
		case "idle":
			return t.idle(ctx, c)
		case "crowd":
			return t.crowd(ctx, c)
		case "follow":
			return t.follow(ctx, c)
		case "enqueue":
			return t.enqueue(ctx, c)
		case "deliver":
			return t.deliver(ctx, c)
		case "haul":
			return t.haul(ctx, c)
		case "mix":
			return t.mix(ctx, c)
		case "drain":
			return t.drain(ctx, c)
		case "actors":
			return t.actors(ctx)
		case "tenants":
			return t.tenants(ctx)
		}
	}
	return fmt.Errorf("no child does %q for %q", t.Do, t.Contestant)
}

// contestants returns those among which the task's is named.
func (t task) contestants() []Contestant {
	if t.Durability.onPostgres() {
		return postgresContestants()
	}
	return append(contestants(), pollers()...)
}

// child is a child process as seen by its parent.
type child struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Scanner
}

// startChild starts a child and waits until it is ready.
func startChild(ctx context.Context, t task) (*child, error) {
	text, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	binary, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, binary)
	cmd.Env = append(os.Environ(), childVar+"="+string(text))
	cmd.Stderr = os.Stderr
	return newChild(cmd)
}

func newChild(cmd *exec.Cmd) (*child, error) {
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c := &child{cmd, stdin, bufio.NewScanner(stdout)}
	c.out.Buffer(nil, 1<<22) // a line may hold many latencies
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	line, err := c.line()
	if err == nil && line != "READY" {
		err = fmt.Errorf("the other process says %q", line)
	}
	if err != nil {
		return nil, errors.Join(err, c.end())
	}
	return c, nil
}

// line returns the next line of output.
func (c *child) line() (string, error) {
	if !c.out.Scan() {
		return "", fmt.Errorf("the other process is silent: %w", errors.Join(c.out.Err(), io.ErrUnexpectedEOF))
	}
	return c.out.Text(), nil
}

// end closes stdin and waits for the child to exit. It discards the remaining output.
func (c *child) end() error {
	_ = c.stdin.Close()
	for c.out.Scan() {
		continue
	}
	return c.cmd.Wait()
}
