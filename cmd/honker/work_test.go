//go:build unix

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
)

// A command's exit code determines how its job is settled, and its output is the job's result.
func TestWork_ExitCodes(t *testing.T) {
	t.Parallel()
	dir, db, q := newFile(t)
	ids, err := q.EnqueueMany(t.Context(), []int{0, 75, 65, 1, 200, 201})
	require.NoError(t, err)
	got := ran(t, dir, "work", "jobs", "--once", "--workers", "3", "--snooze", "1h", "-o", "jsonl", "--", "sh", "-c", `
read code
case $code in
200) echo '{"sum": 12345678901234567890}'; exit 0;;
201) printf 'two\nlines\n'; exit 0;;
esac
echo "job $HONKER_JOB_ID of $HONKER_QUEUE, attempt $HONKER_ATTEMPT of $HONKER_MAX_ATTEMPTS" >&2
exit $code`)
	require.Zero(t, got.code, got.err)
	outcomes := map[int64]string{}
	for line := range strings.Lines(got.out) {
		var s struct {
			ID      int64
			Outcome string
		}
		require.NoError(t, json.Unmarshal([]byte(line), &s), line)
		outcomes[s.ID] = s.Outcome
	}
	require.Equal(t, map[int64]string{
		ids[0]: "acked", ids[1]: "snoozed", ids[2]: "died", ids[3]: "retried", ids[4]: "acked", ids[5]: "acked",
	}, outcomes)
	require.Contains(t, got.err, "job "+strconv.FormatInt(ids[2], 10)+" of jobs, attempt 1 of 25\n")

	snoozed, err := db.Job(t.Context(), ids[1])
	require.NoError(t, err)
	require.Equal(t, honker.PhaseScheduled, snoozed.Phase)
	require.Greater(t, snoozed.RunAt.Sub(snoozed.CreatedAt), 50*time.Minute)
	dead, err := db.Job(t.Context(), ids[2])
	require.NoError(t, err)
	require.Equal(t, "exit status 65: job "+strconv.FormatInt(ids[2], 10)+" of jobs, attempt 1 of 25", dead.LastError)
	failed, err := db.Job(t.Context(), ids[3])
	require.NoError(t, err)
	require.Contains(t, failed.LastError, "exit status 1: job ")

	sum, err := honker.Result[json.RawMessage](t.Context(), db, ids[4])
	require.NoError(t, err)
	require.JSONEq(t, `{"sum": 12345678901234567890}`, string(sum))
	require.Contains(t, string(sum), "12345678901234567890")
	lines, err := honker.Result[string](t.Context(), db, ids[5])
	require.NoError(t, err)
	require.Equal(t, "two\nlines", lines)
	_, err = honker.Result[string](t.Context(), db, ids[0])
	require.ErrorIs(t, err, honker.ErrNotFound)
}

// worker starts honker work and waits for its start message.
func worker(t *testing.T, dir, script string, flags ...string) (*exec.Cmd, *bufio.Reader, *bytes.Buffer) {
	t.Helper()
	args := append([]string{"work", "jobs", "-o", "jsonl"}, flags...)
	cmd := command(t, dir, append(args, "--", "sh", "-c", script)...)
	errs, err := cmd.StderrPipe()
	require.NoError(t, err)
	var out bytes.Buffer
	cmd.Stdout = &out
	require.NoError(t, cmd.Start())
	return cmd, bufio.NewReader(errs), &out
}

func line1(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	line, err := r.ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(line)
}

// After SIGTERM, the running command may finish, and no other command starts.
func TestWork_Drain(t *testing.T) {
	t.Parallel()
	dir, db, q := newFile(t)
	ids, err := q.EnqueueMany(t.Context(), []int{1, 2})
	require.NoError(t, err)
	cmd, errs, out := worker(t, dir, `echo begun >&2; while [ ! -e go ]; do sleep 0.05; done; echo '"well"'`, "-w", "1")
	require.Equal(t, "begun", line1(t, errs))
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.Contains(t, line1(t, errs), "draining: no more jobs start")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o644))
	_, _ = io.Copy(io.Discard, errs)
	require.Zero(t, codeOf(t, cmd.Wait()))
	require.Contains(t, out.String(), `"outcome":"acked"`)
	result, err := honker.Result[string](t.Context(), db, ids[0])
	require.NoError(t, err)
	require.Equal(t, "well", result)
	second, err := db.Job(t.Context(), ids[1])
	require.NoError(t, err)
	require.Equal(t, honker.PhaseReady, second.Phase)
	require.Zero(t, second.Attempts)
}

// A second signal terminates the commands and their children, and returns their jobs to the queue.
func TestWork_SecondSignal(t *testing.T) {
	t.Parallel()
	dir, db, q := newFile(t)
	id, err := q.Enqueue(t.Context(), 1)
	require.NoError(t, err)
	cmd, errs, _ := worker(t, dir, `sleep 300 & echo $! >&2; wait`)
	child, err := strconv.Atoi(line1(t, errs))
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.Contains(t, line1(t, errs), "a second signal ends running commands")
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.Eventually(t, func() bool { return syscall.Kill(child, 0) != nil }, deadline, 10*time.Millisecond, "the command's child goes on")
	_, _ = io.Copy(io.Discard, errs)
	require.Zero(t, codeOf(t, cmd.Wait()))
	job, err := db.Job(t.Context(), id)
	require.NoError(t, err)
	require.Zero(t, job.Attempts)
	require.Equal(t, honker.StatePending, job.State)
}

// A job is held until its command has ended, even if that takes longer than the worker waits for a handler. With a
// limit of 1, the second worker starts the job only after the first command has ended.
func TestWork_HeldUntilEnded(t *testing.T) {
	t.Parallel()
	dir, _, q := newFile(t)
	require.NoError(t, q.SetLimits(t.Context(), honker.Limits{Running: 1, PerKey: 1, InOrder: true}))
	id, err := q.Enqueue(t.Context(), 1, honker.Key("ann"))
	require.NoError(t, err)
	// mkdir fails if two commands run at once. The first command takes three seconds to end after SIGTERM.
	const script = `mkdir runs || { echo two at once >&2; exit 1; }
trap 'echo asked >&2; sleep 3; rmdir runs; exit 1' TERM
echo "begun $HONKER_ATTEMPT" >&2
while [ ! -e go ]; do sleep 0.05; done
rmdir runs`
	first, firstErrs, _ := worker(t, dir, script, "-w", "1", "--drain", "100ms")
	require.Equal(t, "begun 1", line1(t, firstErrs))
	second, secondErrs, out := worker(t, dir, script, "-w", "1")
	begun := make(chan string, 1)
	go func() {
		line, _ := secondErrs.ReadString('\n')
		begun <- line
		_, _ = io.Copy(io.Discard, secondErrs)
		close(begun)
	}()
	require.NoError(t, first.Process.Signal(syscall.SIGTERM))
	said, err := io.ReadAll(firstErrs)
	require.NoError(t, err)
	require.Contains(t, string(said), "asked\n")
	require.Zero(t, codeOf(t, first.Wait()))
	require.Equal(t, "begun 1\n", <-begun, "the attempt of a command that was cut short is not spent")
	require.NotContains(t, string(said), "still running after its context was cancelled")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o644))
	require.Eventually(t, func() bool { return ran(t, dir, "job", "show", strconv.FormatInt(id, 10)).code == codeNo }, deadline, 100*time.Millisecond)
	require.NoError(t, second.Process.Signal(syscall.SIGTERM))
	<-begun
	require.Zero(t, codeOf(t, second.Wait()))
	require.Equal(t, 1, strings.Count(out.String(), `"outcome":"acked"`), out.String())
}

// A command and its children are ended if the job is cancelled or exceeds its time limit.
func TestWork_Ends(t *testing.T) {
	t.Parallel()
	dir, db, q := newFile(t)
	id, err := q.Enqueue(t.Context(), 1)
	require.NoError(t, err)
	cmd, errs, out := worker(t, dir, `sleep 300 & echo $! >&2; wait`, "--max-run", "30s")
	child, err := strconv.Atoi(line1(t, errs))
	require.NoError(t, err)
	_, err = q.Cancel(t.Context(), id)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return syscall.Kill(child, 0) != nil }, deadline, 10*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	_, _ = io.Copy(io.Discard, errs)
	require.Zero(t, codeOf(t, cmd.Wait()))
	require.Contains(t, out.String(), `"outcome":"cancelled"`)

	id, err = q.Enqueue(t.Context(), 2, honker.MaxAttempts(1))
	require.NoError(t, err)
	got := ran(t, dir, "work", "jobs", "--once", "--max-run", "3s", "-q", "--", "sleep", "300")
	require.Zero(t, got.code, got.err)
	dead, err := db.Job(t.Context(), id)
	require.NoError(t, err)
	require.Contains(t, dead.LastError, "timeout after 3s: signal: terminated")
}

// A command that can't be run is reported before any job is claimed. Commands have the default signal handling.
func TestWork_Command(t *testing.T) {
	t.Parallel()
	dir, db, q := newFile(t)
	id, err := q.Enqueue(t.Context(), 1)
	require.NoError(t, err)
	for _, args := range []string{"work jobs -- no-such-command", "work jobs", "work jobs true", "work -- true", "work jobs others -- true", "work jobs -o json -- true"} {
		got := ran(t, dir, strings.Fields(args)...)
		require.Equal(t, codeUsage, got.code, "%s: %s", args, got.err)
		require.Contains(t, got.err, "\ntry: ")
	}
	job, err := db.Job(t.Context(), id)
	require.NoError(t, err)
	require.Zero(t, job.Attempts)
	got := ran(t, dir, "work", "jobs", "--once", "-q", "--", "sh", "-c", `yes | head -n 1`)
	require.Zero(t, got.code)
	require.NotContains(t, strings.ToLower(got.err), "broken pipe")
	result, err := honker.Result[string](t.Context(), db, id)
	require.NoError(t, err)
	require.Equal(t, "y", result)
}

// Of two commands under the same lock, only the first runs.
func TestLockRun(t *testing.T) {
	t.Parallel()
	dir, db, _ := newFile(t)
	first := command(t, dir, "lock", "run", "nightly", "--", "sh", "-c", `echo "$HONKER_LOCK $HONKER_LOCK_TOKEN"; read line; exit 7`)
	in, err := first.StdinPipe()
	require.NoError(t, err)
	out, err := first.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, first.Start())
	require.Equal(t, "nightly 1", line1(t, bufio.NewReader(out)))

	got := ran(t, dir, "lock", "run", "nightly", "--", "touch", "ran")
	require.Equal(t, codeNo, got.code)
	require.Contains(t, got.err, `lock "nightly"`)
	require.Contains(t, got.err, "try: honker locks")
	got = ran(t, dir, "lock", "run", "nightly", "--wait", "50ms", "--", "touch", "ran")
	require.Equal(t, codeNo, got.code, got.err)
	require.NoFileExists(t, filepath.Join(dir, "ran"))
	require.Contains(t, ran(t, dir, "locks").out, "nightly")

	waits := command(t, dir, "lock", "run", "nightly", "--wait", "1m", "--", "sh", "-c", "echo $HONKER_LOCK_TOKEN > ran")
	require.NoError(t, waits.Start())
	require.NoError(t, in.Close())
	require.Equal(t, 7, codeOf(t, first.Wait()), "the code is the command's")
	require.Zero(t, codeOf(t, waits.Wait()))
	require.Equal(t, "2\n", string(must1(os.ReadFile(filepath.Join(dir, "ran")))))
	lock, err := db.TryLock(t.Context(), "nightly", nil)
	require.NoError(t, err)
	require.NoError(t, lock.Unlock(t.Context()))
}

// A signal is passed on, and the lock is released afterward.
func TestLockRun_Signal(t *testing.T) {
	t.Parallel()
	dir, db, _ := newFile(t)
	for script, want := range map[string]int{
		`trap 'exit 3' TERM; echo begun; while :; do sleep 0.05; done`: 3,
		`trap 'exit 0' TERM; echo begun; while :; do sleep 0.05; done`: 0,
		`echo begun; exec sleep 300`:                                   128 + int(syscall.SIGTERM),
	} {
		cmd := command(t, dir, "lock", "run", "nightly", "--", "sh", "-c", script)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		require.Equal(t, "begun", line1(t, bufio.NewReader(out)))
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		require.Equal(t, want, codeOf(t, cmd.Wait()), script)
		lock, err := db.TryLock(t.Context(), "nightly", nil)
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(t.Context()))
	}
}

// Breaking a lock ends the command that runs under it.
func TestLockRun_Broken(t *testing.T) {
	t.Parallel()
	dir, _, _ := newFile(t)
	cmd := command(t, dir, "lock", "run", "nightly", "--ttl", "12s", "--", "sh", "-c", "echo begun; exec sleep 300")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	require.NoError(t, cmd.Start())
	require.Equal(t, "begun", line1(t, bufio.NewReader(out)))
	require.Equal(t, "nightly\n", ran(t, dir, "lock", "break", "nightly", "-o", "name").out)
	require.Equal(t, codeRefused, codeOf(t, cmd.Wait()), errs.String())
	require.Contains(t, errs.String(), "lock lost")
}

// If the output is closed, the work ends and no job stays claimed.
func TestWork_ClosedPipe(t *testing.T) {
	t.Parallel()
	dir, db, q := newFile(t)
	_, err := q.EnqueueMany(t.Context(), make([]int, 20))
	require.NoError(t, err)
	cmd := command(t, dir, "work", "jobs", "-w", "1", "-o", "name", "--", "true")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line1(t, bufio.NewReader(out))
	require.NoError(t, out.Close())
	require.Zero(t, codeOf(t, cmd.Wait()))
	stats, err := honker.NewQueue[int](db, "jobs", nil).Stats(t.Context())
	require.NoError(t, err)
	require.Zero(t, stats.Running.N)
}
