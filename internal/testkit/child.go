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

// EmulatorVar names the variable that holds the program which runs this machine's binaries,
// such as qemu-s390x-static. `go test -exec` runs a test through it, but the kernel
// refuses the children that the test starts, unless it is told of the emulator.
const EmulatorVar = "HONKER_EMULATOR"

const (
	nameVar  = "HONKER_CHILD"
	argsVar  = "HONKER_CHILD_ARGS"
	lastWord = 10 * time.Second // how long a child may take to end once its stdin is closed
)

// The child's side.
var (
	heard              = make(chan string, 1024) // a child that does not hear must still see the end
	childCtx, endChild = context.WithCancel(context.Background())
)

// RunChild runs the child that this process is and exits; in a process that is none it
// returns at once. Call it first in TestMain.
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
	Must(fmt.Errorf("the parent has gone, and the child does not end"))
}

// ChildContext ends when the parent is done with the child, or dead.
func ChildContext() context.Context { return childCtx }

// ChildArgs returns what the parent passed to StartChild.
func ChildArgs[T any]() T {
	var args T
	Must(json.Unmarshal([]byte(os.Getenv(argsVar)), &args))
	return args
}

// Say sends a line to the parent.
func Say(words ...any) { _, _ = fmt.Println(words...) }

// ReadLine waits for a line of the parent; false when no more will come.
func ReadLine() (string, bool) {
	line, ok := <-heard
	return line, ok
}

// Must ends the child, and with it the test, when err is not nil.
func Must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
}

// Child is a child, seen by the test.
type Child struct {
	t      testing.TB
	name   string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  chan string // closed when the child has closed its stdout
	reap   func() error
	stderr bytes.Buffer // read it after reap
}

// ChildCommand returns the command that runs a child, for callers that need no Child.
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
	// The race detector lets a process that exits sleep for a second. What is set wins.
	cmd.Env = append([]string{"GORACE=atexit_sleep_ms=0"}, os.Environ()...)
	cmd.Env = append(cmd.Env, nameVar+"="+name, argsVar+"="+string(text))
	return cmd, err
}

// StartChild runs the child called name. It is dead when the test ends.
func StartChild(t testing.TB, name string, args any) *Child {
	t.Helper()
	cmd, err := ChildCommand(name, args)
	must(t, err)
	return StartCommand(t, name, cmd)
}

// StartCommand runs any program as a child, one in another language for example: it talks
// in lines, and ends when its stdin does.
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
		for range p.lines { // to the end, before Wait closes the pipe
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

// Line returns the next line of the child. The test fails when there is none in time.
func (p *Child) Line(within time.Duration) string {
	p.t.Helper()
	select {
	case line, ok := <-p.lines:
		if !ok {
			p.t.Fatalf("child: %s has ended: %v\n%s", p.name, p.reap(), p.stderr.String())
		}
		return line
	case <-time.After(within):
		p.t.Fatalf("child: %s was silent for %v", p.name, within)
	}
	return ""
}

// PID is the child's.
func (p *Child) PID() int { return p.cmd.Process.Pid }

// Lines is the child's output; it is closed when the child has ended.
func (p *Child) Lines() <-chan string { return p.lines }

// Tell sends the child a line.
func (p *Child) Tell(line string) {
	p.t.Helper()
	_, err := io.WriteString(p.stdin, line+"\n")
	must(p.t, err)
}

// End closes the child's stdin and returns the rest of its lines when it has ended
// well.
func (p *Child) End() []string {
	p.t.Helper()
	_ = p.stdin.Close()
	var rest []string
	for line := range p.lines { // a child that does not end kills itself
		rest = append(rest, line)
	}
	must(p.t, p.reap())
	return rest
}

// Kill ends the child at once, as a crash would, and returns when it is dead. What it
// said before can still be read.
func (p *Child) Kill() {
	p.t.Helper()
	must(p.t, p.cmd.Process.Kill())
	_, err := p.cmd.Process.Wait() // unlike cmd.Wait, it leaves the output open
	must(p.t, err)
}
