package testkit

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// EmulatorVar names the environment variable that contains the emulator for binaries of this
// architecture, such as qemu-s390x-static. `go test -exec` runs a test in the emulator, but the
// kernel cannot start the test's children without it.
const EmulatorVar = "HONKER_EMULATOR"

const (
	nameVar  = "HONKER_CHILD"
	argsVar  = "HONKER_CHILD_ARGS"
	lastWord = 10 * time.Second // how long a child may run after its stdin is closed
)

// The child process's state.
var (
	heard              = make(chan string, 1024) // buffered, so that a child that doesn't read lines still notices the end of stdin
	childCtx, endChild = context.WithCancel(context.Background())
)

// RunChild runs this child process's function and exits. In any other process it returns
// immediately. Call it at the beginning of TestMain.
func RunChild(children map[string]func()) {
	name := os.Getenv(nameVar)
	if name == "" {
		return
	}
	run := children[name]
	if run == nil {
		Must(fmt.Errorf("no child is called %q", name))
	}
	go listen()
	run()
	os.Exit(0)
}

func listen() {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		heard <- in.Text()
	}
	close(heard)
	endChild()
	time.Sleep(lastWord)
	Must(fmt.Errorf("the parent is gone, but the child does not end"))
}

// ChildContext returns a ctx that is cancelled when the parent closes the child's stdin or dies.
func ChildContext() context.Context { return childCtx }

// ChildArgs returns the arguments passed to StartChild.
func ChildArgs[T any]() T {
	var args T
	Must(json.Unmarshal([]byte(os.Getenv(argsVar)), &args))
	return args
}

// Say sends a line to the parent.
func Say(words ...any) { _, _ = fmt.Println(words...) }

// ReadLine waits for a line from the parent. It returns false after the last line.
func ReadLine() (string, bool) {
	line, ok := <-heard
	return line, ok
}

// Must exits the child with status 1 if err is not nil, which makes the test fail.
func Must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
}

// Child is the parent's handle to a child process.
type Child struct {
	t      testing.TB
	name   string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  chan string // closed when the child closes its stdout
	reap   func() error
	stderr bytes.Buffer // read only after reap has returned
}

// ChildCommand returns the command that starts a child, for callers that don't need a Child.
func ChildCommand(name string, args any) (*exec.Cmd, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(args)
	cmd := exec.Command(binary)
	if emulator := os.Getenv(EmulatorVar); emulator != "" {
		cmd = exec.Command(emulator, binary)
	}
	// By default, the race detector delays a process's exit by a second. The environment may override this setting.
	cmd.Env = append([]string{"GORACE=atexit_sleep_ms=0"}, os.Environ()...)
	cmd.Env = append(cmd.Env, nameVar+"="+name, argsVar+"="+string(text))
	return cmd, err
}

// StartChild starts the child called name. The child is killed when the test ends.
func StartChild(t testing.TB, name string, args any) *Child {
	t.Helper()
	cmd, err := ChildCommand(name, args)
	must(t, err)
	return StartCommand(t, name, cmd)
}

// StartCommand starts any program as a child, for example a program in another language. The
// program must communicate in lines and exit when its stdin is closed.
func StartCommand(t testing.TB, name string, cmd *exec.Cmd) *Child {
	t.Helper()
	var err error
	p := &Child{t: t, name: name, cmd: cmd, lines: make(chan string, 64)}
	p.reap = sync.OnceValue(cmd.Wait)
	cmd.Stderr = &p.stderr
	p.stdin, err = cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())

	go p.read(out)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		for range p.lines { // drains the output before Wait closes the pipe
		}
		_ = p.reap()
		if t.Failed() && p.stderr.Len() > 0 {
			t.Logf("%s %d wrote:\n%s", p.name, cmd.Process.Pid, p.stderr.String())
		}
	})
	return p
}

func (p *Child) read(out io.Reader) {
	defer close(p.lines)
	for s := bufio.NewScanner(out); s.Scan(); {
		p.lines <- s.Text()
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("child: %v", err)
	}
}

// Line returns the child's next line of output. It fails the test if there is none within the given time.
func (p *Child) Line(within time.Duration) string {
	p.t.Helper()
	select {
	case line, ok := <-p.lines:
		if !ok {
			p.t.Fatalf("child: %s has ended: %v\n%s", p.name, p.reap(), p.stderr.String())
		}
		return line
	case <-time.After(within):
		p.t.Fatalf("child: %s printed nothing for %v", p.name, within)
	}
	return ""
}

// PID returns the child's process ID.
func (p *Child) PID() int { return p.cmd.Process.Pid }

// Lines returns the child's lines of output. The channel is closed when the child has ended.
func (p *Child) Lines() <-chan string { return p.lines }

// Tell sends a line to the child.
func (p *Child) Tell(line string) {
	p.t.Helper()
	_, err := io.WriteString(p.stdin, line+"\n")
	must(p.t, err)
}

// End closes the child's stdin, waits for the child to exit and returns its remaining lines. It
// fails the test if the exit status is not 0.
func (p *Child) End() []string {
	p.t.Helper()
	_ = p.stdin.Close()
	var rest []string
	for line := range p.lines { // a child that hangs kills itself after lastWord
		rest = append(rest, line)
	}
	must(p.t, p.reap())
	return rest
}

// Kill kills the child, which simulates a crash, and waits until it is dead. Its output can still
// be read.
func (p *Child) Kill() {
	p.t.Helper()
	must(p.t, p.cmd.Process.Kill())
	_, err := p.cmd.Process.Wait() // unlike cmd.Wait, this leaves the pipes open
	must(p.t, err)
}
