package main

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
)

// deadline is far longer than any command takes.
const deadline = time.Minute

// command returns the binary with args, to run in dir.
func command(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), deadline)
	t.Cleanup(stop)
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "NO_COLOR=")
	return cmd
}

// ran runs the binary and waits for it.
func ran(t *testing.T, dir string, args ...string) said {
	t.Helper()
	return finished(t, command(t, dir, args...))
}

// finished runs cmd and waits for it.
func finished(t *testing.T, cmd *exec.Cmd) said {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	code := codeOf(t, cmd.Run())
	return said{out.String(), errs.String(), code}
}

func codeOf(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	require.NoError(t, err)
	return 0
}

// newFile returns a file with a queue. It stays open, so that several processes use the file.
func newFile(t *testing.T) (dir string, db *honker.DB, q *honker.Queue[int]) {
	t.Helper()
	dir = t.TempDir()
	db = honkertest.OpenFile(t, filepath.Join(dir, "app.db"), nil)
	return dir, db, honker.NewQueue[int](db, "jobs", nil)
}

// The exit codes are stable, because scripts rely on them.
func TestProcess_ExitCodes(t *testing.T) {
	t.Parallel()
	dir, _, q := newFile(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "exit7"), []byte("exit 7\n"), 0o644))
	for n := range 2 {
		_, err := q.Enqueue(t.Context(), n)
		require.NoError(t, err)
	}
	_, err := q.WorkDue(t.Context(), func(context.Context, *honker.Job[int]) error { return honker.Reject(io.ErrUnexpectedEOF) }, nil)
	require.NoError(t, err)
	for _, c := range []struct {
		code int
		args string
	}{
		{0, "version"},
		{0, "status"},
		{0, "queues -f app.db"},
		{0, "check"},
		{0, "dead requeue --queue others --dry-run"},
		{1, "status --fail-on warn"},
		{1, "job show 99"},
		{1, "job cancel 99"},
		{2, "no-such"},
		{2, "job show"},
		{2, "job show x"},
		{2, "dead requeue --queue jobs"},
		{2, "queues -f no.db"},
		{1, "stream show t"},
		{1, "consumer show t c"},
		{1, "group show t g"},
		{1, "schedule show n"},
		{1, "lock break l"},
		{1, "relay break webhooks 1"},
		{2, "relay break webhooks x"},
		{1, "presence break k"},
		{1, "job wait 2 --for 10ms"},
		{2, "top"},
		{2, "lock run l"},
		{2, "stream tail t -n -1"},
		{7, "lock run l -- sh exit7"},
		{10, "dead requeue --queue jobs --dry-run"},
		{0, "dead requeue --queue jobs --yes"},
		{0, "dead requeue --queue jobs --dry-run"},
	} {
		got := ran(t, dir, strings.Fields(c.args)...)
		require.Equal(t, c.code, got.code, "%s: %s%s", c.args, got.out, got.err)
		if c.code != 0 && c.code < 7 && !strings.HasPrefix(c.args, "status") {
			require.Contains(t, got.err, "\ntry: ", c.args)
		}
	}
	require.NoFileExists(t, filepath.Join(dir, "no.db"))
}

// Closing the output isn't an error and isn't reported.
func TestProcess_ClosedPipe(t *testing.T) {
	t.Parallel()
	dir, _, q := newFile(t)
	many := make([]int, 20_000) // more than a pipe can buffer
	_, err := q.EnqueueMany(t.Context(), many)
	require.NoError(t, err)
	for _, format := range formats {
		cmd := command(t, dir, "jobs", "--limit", "0", "-o", format)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		require.NoError(t, cmd.Start())
		_, err = bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		require.NoError(t, out.Close())
		require.Zero(t, codeOf(t, cmd.Wait()), format)
		require.Empty(t, errs.String(), format)
	}
}

// A command that follows the file ends without an error at the first line it can't write.
func TestProcess_ClosedPipeOfFeed(t *testing.T) {
	t.Parallel()
	dir, db, q := newFile(t)
	topic := honker.NewStream[int](db, "orders", nil)
	for args, cause := range map[string]func() error{
		"stream tail orders --follow": func() error { _, err := topic.Publish(t.Context(), 1); return err },
		"listen cache":                func() error { _, err := db.Notify(t.Context(), "cache", 1); return err },
		"events":                      func() error { _, err := q.Enqueue(t.Context(), 1); return err },
	} {
		cmd := command(t, dir, append(strings.Fields(args), "-q")...)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		require.NoError(t, cmd.Start())
		lines := make(chan error, 1)
		go func() {
			_, err := bufio.NewReader(out).ReadString('\n')
			lines <- errors.Join(err, out.Close())
			lines <- cmd.Wait()
		}()
		for n := range 2 { // a line, then the end
			require.Eventually(t, func() bool {
				require.NoError(t, cause())
				select {
				case err := <-lines:
					require.NoError(t, err, "%s, %d", args, n)
					return true
				case <-time.After(100 * time.Millisecond):
					return false
				}
			}, deadline, time.Millisecond, args)
		}
		require.Empty(t, errs.String(), args)
	}
}

// Replacing the file ends commands that follow it.
func TestProcess_Replaced(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("a file that is open cannot be replaced")
	}
	for _, args := range []string{"listen cache", "events"} {
		dir := t.TempDir()
		for _, name := range []string{"app.db", "other.db"} {
			require.NoError(t, open(t, filepath.Join(dir, name)).Close())
		}
		cmd := command(t, dir, append([]string{"-f", "app.db"}, strings.Fields(args)...)...)
		errs, err := cmd.StderrPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		said := bufio.NewReader(errs)
		_, err = said.ReadString('\n') // the message that it is following the file
		require.NoError(t, err)
		require.NoError(t, os.Rename(filepath.Join(dir, "other.db"), filepath.Join(dir, "app.db")))
		rest, err := io.ReadAll(said)
		require.NoError(t, err)
		require.Equal(t, codeRefused, codeOf(t, cmd.Wait()), "%s: %s", args, rest)
		require.Contains(t, string(rest), "replaced", args)
		require.Contains(t, string(rest), "\ntry: the same again\n", args)
	}
}

// An interrupt ends a command that is waiting for input. The command reports how much it has added.
func TestProcess_Interrupt(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("os.Interrupt cannot be sent")
	}
	dir, _, _ := newFile(t)
	cmd := command(t, dir, "enqueue", "jobs", "-", "-o", "name")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	var errs bytes.Buffer
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = &errs
	require.NoError(t, cmd.Start())
	_, err = io.WriteString(in, "1\n2\n3\n")
	require.NoError(t, err)
	ids := bufio.NewReader(out)
	for _, want := range []string{"1\n", "2\n", "3\n"} { // printed before the end of the input
		id, err := ids.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, want, id)
	}
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.Equal(t, codeInterrupted, codeOf(t, cmd.Wait()))
	require.Contains(t, errs.String(), "interrupted: added 3 jobs\n")
}

// Writes wait for a busy file for as long as --timeout allows. Reads don't wait.
func TestProcess_Busy(t *testing.T) {
	t.Parallel()
	dir, db, _ := newFile(t)
	require.NoError(t, db.Tx(t.Context(), func(_ context.Context, _ *sql.Tx) error {
		for _, args := range []string{
			"enqueue jobs 1", "queue pause jobs", "queue resume jobs", "queue limits jobs --running 1", "queue retention jobs --dead 1d", "stream publish t 1", "notify c 1",
			"schedule add n jobs @daily", "vacuum",
		} {
			got := ran(t, dir, append(strings.Fields(args), "--timeout", "50ms")...)
			require.Equal(t, codeRefused, got.code, "%s: %s", args, got.err)
			require.Contains(t, got.err, "busy")
			require.Contains(t, got.err, "try: the same with --timeout")
		}
		for _, args := range []string{"status", "queues", "jobs", "check", "dead groups", "streams", "schedules", "locks", "schema", "top --once"} {
			got := ran(t, dir, strings.Fields(args)...)
			require.Zero(t, got.code, "%s: %s", args, got.err)
		}
		return nil
	}))
}

// Without -f and $HONKER_FILE, the command uses the only honker file in the directory.
func TestProcess_WhichFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	got := ran(t, dir, "queues")
	require.Equal(t, said{"", "no honker file in this directory: name a file with -f or $HONKER_FILE, or a server with $HONKER_DSN\ntry: honker status -f FILE\n", codeUsage}, got)

	other, err := honker.Open(t.Context(), filepath.Join(dir, "app.db"), nil)
	require.NoError(t, err)
	require.NoError(t, other.Close())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "notes.db"), []byte("some text, and no database at all"), 0o644))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder.db"), 0o755))
	pool, err := sql.Open("sqlite", filepath.Join(dir, "customers.db"))
	require.NoError(t, err)
	_, err = pool.ExecContext(t.Context(), `CREATE TABLE customers (id INTEGER PRIMARY KEY)`)
	require.NoError(t, err)
	require.NoError(t, pool.Close())
	got = ran(t, dir, "queues", "-q")
	require.Equal(t, said{}, got)

	second, err := honker.Open(t.Context(), filepath.Join(dir, "two.db"), nil)
	require.NoError(t, err)
	require.NoError(t, second.Close())
	got = ran(t, dir, "queues")
	require.Equal(t, codeUsage, got.code)
	require.Contains(t, got.err, "2 honker files in this directory (app.db, two.db)")
	require.Zero(t, ran(t, dir, "queues", "-f", "two.db").code)
}

// An empty file name, for example from an unset variable, is a usage error even if the directory has a
// single honker file.
func TestProcess_EmptyFile(t *testing.T) {
	t.Parallel()
	dir, db, _ := newFile(t)
	for _, args := range []string{"enqueue jobs 1", "status", "dead discard --all --yes", "backup copy.db"} {
		got := ran(t, dir, append([]string{"-f", ""}, strings.Fields(args)...)...)
		require.Equal(t, codeUsage, got.code, args)
		require.Contains(t, got.err, "the path is empty", args)
		require.Contains(t, got.err, "\ntry: ", args)

		cmd := command(t, dir, strings.Fields(args)...)
		cmd.Env = append(cmd.Env, "HONKER_FILE=")
		got = finished(t, cmd)
		require.Equal(t, codeUsage, got.code, args)
		require.Equal(t, "$HONKER_FILE is set but empty: set it, or unset it\ntry: honker status -f FILE\n", got.err, args)

		cmd = command(t, dir, append([]string{"-f", "app.db"}, strings.Fields(args)...)...)
		cmd.Env = append(cmd.Env, "HONKER_FILE=")
		require.Zero(t, finished(t, cmd).code, args)
		_ = os.Remove(filepath.Join(dir, "copy.db"))
	}
	jobs, err := honker.NewQueue[int](db, "jobs", nil).Claim(t.Context(), "w", 9)
	require.NoError(t, err)
	require.Len(t, jobs, 1, "of the command that names the file")
}

// A terminal gets a table with colors, unless NO_COLOR is set.
func TestProcess_Terminal(t *testing.T) {
	t.Parallel()
	script, err := exec.LookPath("script")
	if err != nil || runtime.GOOS != "linux" {
		t.Skip("no terminal")
	}
	dir, _, q := newFile(t)
	_, err = q.Enqueue(t.Context(), 1)
	require.NoError(t, err)
	jobs, err := q.Claim(t.Context(), "w", 1)
	require.NoError(t, err)
	require.NoError(t, jobs[0].Reject(t.Context(), errors.New("no")))
	for env, want := range map[string]string{
		"NO_COLOR=":  "\x1b[33mwarn\x1b[0m   jobs: 1 job died",
		"NO_COLOR=1": "warn   jobs: 1 job died",
		"TERM=dumb":  "warn   jobs: 1 job died",
	} {
		cmd := exec.Command(script, "-qec", binary+" status", os.DevNull)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "NO_COLOR=", "TERM=xterm", env)
		out, err := cmd.Output()
		require.NoError(t, err, "%s", out)
		require.True(t, strings.HasPrefix(string(out), want), "%s: %q", env, out)
		require.Regexp(t, `QUEUE(\x1b\[0m)?  (\x1b\[2m)?READY`, string(out))
	}
}

// Queue names are completed, both in bash and through the completion command.
func TestProcess_Completion(t *testing.T) {
	t.Parallel()
	dir, db, _ := newFile(t)
	for _, name := range []string{"emails", "email digests", "reports"} {
		_, err := honker.NewQueue[int](db, name, nil).Enqueue(t.Context(), 1)
		require.NoError(t, err)
	}
	require.Equal(t, "email digests\nemails\nreports\n:4\n", ran(t, dir, "__complete", "queue", "pause", "").out)
	require.Equal(t, ":4\n", ran(t, dir, "__complete", "queue", "pause", "emails", "").out)
	require.Equal(t, "email digests\nemails\nreports\n:4\n", ran(t, dir, "__complete", "jobs", "--queue", "").out)
	require.Equal(t, ":4\n", ran(t, dir, "__complete", "jobs", "-f", "no.db", "--queue", "").out, "an error is no offer")

	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash")
	}
	script := `
set -u
source <(honker completion bash)
_init_completion() { cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=("${COMP_WORDS[@]}") cword=$COMP_CWORD; }
_get_comp_words_by_ref() { _init_completion; }
offer() {
  COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_POINT=${#COMP_LINE} COMP_TYPE=9 COMP_KEY=9 COMPREPLY=()
  __start_honker
  printf '%s|' "${COMPREPLY[@]}"; echo
}
compopt() { :; }
offer honker queue pause rep
offer honker jobs --queue em
offer honker queue show 'email\ d'
offer honker sta
offer honker jobs --phase la
`
	cmd := exec.Command(bash, "-c", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HONKER_FILE=app.db", "PATH="+filepath.Dir(binary)+string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "reports|\nemail digests|emails|\nemail\\ digests|\nstatus|\nlapsed|\n", string(out))
}

// Waiting for a job ends with the commit that ends the job, in any process.
func TestProcess_Wait(t *testing.T) {
	t.Parallel()
	dir, _, q := newFile(t)
	id, err := q.Enqueue(t.Context(), 1)
	require.NoError(t, err)
	cmd := command(t, dir, "job", "wait", strconv.FormatInt(id, 10))
	var out bytes.Buffer
	cmd.Stdout = &out
	require.NoError(t, cmd.Start())
	_, err = q.WorkDue(t.Context(), func(_ context.Context, job *honker.Job[int]) error { return job.SetResult("done") }, nil)
	require.NoError(t, err)
	require.Zero(t, codeOf(t, cmd.Wait()))
	require.Equal(t, "\"done\"\n", out.String())
}
