//go:build unix

package testkit_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/honker-go/honker/internal/testkit"
)

const soon = time.Minute

func TestMain(m *testing.M) {
	testkit.RunChild(map[string]func(){
		"echo":   echo,
		"parent": parent,
		"idle":   func() { testkit.Say("idle"); <-testkit.ChildContext().Done() },
		"fail":   func() { testkit.Must(fmt.Errorf("of no use")) },
	})
	goleak.VerifyTestMain(m)
}

// echo prints its arguments and then each line that it reads.
func echo() {
	testkit.Say(strings.Join(testkit.ChildArgs[[]string](), " "))
	for line, ok := testkit.ReadLine(); ok; line, ok = testkit.ReadLine() {
		testkit.Say("heard", line)
	}
	testkit.Say("bye")
}

// parent starts a child that shares its stdout, and waits to be killed.
func parent() {
	cmd, err := testkit.ChildCommand("idle", nil)
	testkit.Must(err)
	cmd.Stdout = os.Stdout
	_, err = cmd.StdinPipe()
	testkit.Must(err)
	testkit.Must(cmd.Start())
	<-testkit.ChildContext().Done()
}

// A child exchanges lines with its parent until its stdin is closed.
func TestProc_Talk(t *testing.T) {
	p := testkit.StartChild(t, "echo", []string{"a", "b"})
	require.Equal(t, "a b", p.Line(soon))
	p.Tell("c")
	require.Equal(t, "heard c", p.Line(soon))
	require.Equal(t, []string{"bye"}, p.End())
}

// A child and its own children run in the parent's emulator. The emulator is a script that records its invocations.
func TestProc_Emulator(t *testing.T) {
	dir := t.TempDir()
	emulator, asked := filepath.Join(dir, "emulator"), filepath.Join(dir, "asked")
	script := fmt.Sprintf("#!/bin/sh\necho \"$1\" >> '%s'\nexec %s \"$@\"\n", asked, os.Getenv(testkit.EmulatorVar))
	require.NoError(t, os.WriteFile(emulator, []byte(script), 0o700))
	t.Setenv(testkit.EmulatorVar, emulator)

	p := testkit.StartChild(t, "parent", nil)
	require.Equal(t, "idle", p.Line(soon))
	p.Kill()
	binary, err := os.Executable()
	require.NoError(t, err)
	lines, err := os.ReadFile(asked)
	require.NoError(t, err)
	require.Equal(t, binary+"\n"+binary+"\n", string(lines))
}

// The output of a killed child can still be read.
func TestProc_Kill(t *testing.T) {
	p := testkit.StartChild(t, "echo", []string{"last", "words"})
	p.Tell("x")
	require.Equal(t, "last words", p.Line(soon))
	require.Equal(t, "heard x", p.Line(soon))
	p.Kill()
	_, more := <-p.Lines()
	require.False(t, more)
}

// A stopped child is silent until it is continued.
func TestProc_Stop(t *testing.T) {
	p := testkit.StartChild(t, "echo", nil)
	p.Line(soon)
	p.Stop()
	p.Tell("x")
	select {
	case line := <-p.Lines():
		t.Fatalf("a stopped child said %q", line)
	case <-time.After(100 * time.Millisecond):
	}
	p.Cont()
	require.Equal(t, "heard x", p.Line(soon))
	p.End()
}

// A child exits when its parent is killed.
func TestProc_ParentKilled(t *testing.T) {
	p := testkit.StartChild(t, "parent", nil)
	require.Equal(t, "idle", p.Line(soon))
	p.Kill()
	// The grandchild keeps the pipe open as long as it runs.
	select {
	case _, more := <-p.Lines():
		require.False(t, more)
	case <-time.After(soon):
		t.Fatal("the grandchild is still there")
	}
}

// A child that fails writes the error to stderr and exits with a non-zero status.
func TestProc_ChildFails(t *testing.T) {
	cmd, err := testkit.ChildCommand("fail", nil)
	require.NoError(t, err)
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	text, err := io.ReadAll(stderr)
	require.NoError(t, err)
	require.Error(t, cmd.Wait())
	require.Equal(t, "child: of no use\n", string(text))
}

// Noted combines the ledgers of several writers.
func TestProc_Ledgers(t *testing.T) {
	dir := t.TempDir()
	a, b := testkit.ChildLedger(filepath.Join(dir, "a")), testkit.ChildLedger(filepath.Join(dir, "b"))
	a("ran", 3)
	a("acked", 3)
	b("ran", 1)
	testkit.ChildLedger("")("ran", 9)
	ran, by := testkit.Noted(t, filepath.Join(dir, "*"), "ran")
	require.Equal(t, []int64{1, 3}, ran)
	require.Equal(t, 2, by)
}
