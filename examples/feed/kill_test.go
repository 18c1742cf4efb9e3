package main

import (
	"bytes"
	"os"
	"os/exec"
	"testing"
)

// If the program is killed three times and restarted, no line is lost or counted twice.
func TestFeed_Kill(t *testing.T) {
	t.Parallel()
	c := newConfig(t, sample)
	for _, lines := range []int64{100, 250, 400} {
		child := startChild(t, c, "-rate", "1000", "-follow") // with -follow, it does not exit on its own
		waitForLines(t, c.db, lines)
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := child.Wait(); err == nil {
			t.Fatal("the child was done before it was killed")
		}
	}
	if err := startChild(t, c, "-rate", "0").Wait(); err != nil {
		t.Fatal(err)
	}
	checkBooks(t, c, sampleLines)
}

// startChild runs the program as a child process with the paths of c and additional flags.
func startChild(t *testing.T, c config, flags ...string) *exec.Cmd {
	t.Helper()
	flags = append([]string{"-db", c.db, "-log", c.log, "-lease", c.lease.String()}, flags...)
	child := exec.Command(os.Args[0], flags...)
	child.Env = append(os.Environ(), childEnv+"=1")
	child.Stdout, child.Stderr = new(bytes.Buffer), t.Output()
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if child.ProcessState == nil { // the test has failed before Wait
			_ = child.Process.Kill()
			_ = child.Wait()
		}
	})
	return child
}
