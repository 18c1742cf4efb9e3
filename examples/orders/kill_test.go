package main

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"testing"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// If the service is killed twice and restarted, no receipt is lost or printed twice. The dead
// letters are the same as without kills.
func TestOrders_Kill(t *testing.T) { onEach(t, testKill) }

func testKill(t *testing.T, c config) {
	for _, receipts := range []int{100, 300} {
		child := startChild(t, c, "-rate", "1000", "-ui", ":0") // with the dashboard, it does not exit on its own
		waitForReceipts(t, c.out, receipts)
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
	newModel(sample).check(t, c)
}

// A second process works on the same queue until it is interrupted.
func TestOrders_WorkersOnly(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no process can be interrupted")
	}
	onEach(t, testWorkersOnly)
}

func testWorkersOnly(t *testing.T, c config) {
	c.workers, c.rate = 1, 300
	helper := startChild(t, c, "-workers-only")
	waitForWorker(t, c)
	runService(t, c)
	newModel(c.input).check(t, c)

	if err := helper.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := helper.Wait(); err != nil {
		t.Error(err)
	}
	said := helper.Stdout.(*bytes.Buffer).String()
	if !regexp.MustCompile(`worked off here +[1-9]`).MatchString(said) {
		t.Errorf("the second process did nothing:\n%s", said)
	}
}

// waitForWorker waits until the database has a worker.
func waitForWorker(t *testing.T, c config) {
	t.Helper()
	db, err := c.database().open(t.Context(), c, honker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if workers, err := admin.Workers(t.Context(), db); err == nil && len(workers) > 0 {
			return
		}
	}
	t.Error("no worker has started")
}

// startChild runs the service as a child process with the database and receipts of c, and additional flags.
func startChild(t *testing.T, c config, flags ...string) *exec.Cmd {
	t.Helper()
	flags = append([]string{"-db", c.file, "-dsn", c.dsn, "-out", c.out, "-lease", c.lease.String()}, flags...)
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
