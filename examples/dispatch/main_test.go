package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/honker-go/honker"
)

// supervisorEnv makes the test binary run as the supervisor. Actors are recognized by their
// arguments.
const supervisorEnv = "DISPATCH_TEST_SUPERVISOR"

func TestMain(m *testing.M) {
	if os.Getenv(supervisorEnv) != "" || len(os.Args) > 1 && os.Args[1] == childCommand {
		main()
	}
	goleak.VerifyTestMain(m)
}

// A run passes all checks, and its table shows which process ran how many jobs.
func TestDispatch_Run(t *testing.T) {
	t.Parallel()
	db := filepath.Join(t.TempDir(), "dispatch.db")
	out := runMain(t, 0, append(small(db), "-legacy", "600", "-kills", "4")...)
	require.Regexp(t, `(?m)^sal-3 +20 +20  stopped$`, out)
	require.Regexp(t, `(?m)^sal-1 +0 +0  stopped$`, out)
	require.Regexp(t, `(?m)^v-4 +\d+ +\d+  killed$`, out)
	require.Regexp(t, `(?m)^v-8 +\d+ +\d+  stopped$`, out)
	require.Regexp(t, `sal-3 20 +ok`, out)
	require.Regexp(t, `600 jobs, 600 ends, \d+ begun again, 0 left, 0 dead +ok`, out)
	require.NotContains(t, out, "FAILED")
	require.FileExists(t, db)
	require.Empty(t, runMain(t, 1, small(db)...), "a file that exists is left alone")
}

// No actor outlives its supervisor, whether the supervisor is interrupted or killed.
func TestDispatch_Ended(t *testing.T) {
	t.Parallel()
	for _, signal := range []os.Signal{os.Interrupt, os.Kill} {
		db := filepath.Join(t.TempDir(), "dispatch.db")
		cmd := exec.Command(os.Args[0], append(small(db), "-work", "1h")...)
		cmd.Env = append(os.Environ(), supervisorEnv+"=1")
		out, err := cmd.StdoutPipe() // the actors inherit only stderr, which stays open until the last of them exits
		require.NoError(t, err)
		stderr, err := cmd.StderrPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		require.Eventually(t, func() bool { return len(began(t, db)) == 2 }, time.Minute, 10*time.Millisecond)
		require.NoError(t, cmd.Process.Signal(signal))
		ended := make(chan error, 1)
		go func() {
			_, err := io.Copy(io.Discard, stderr)
			ended <- err
		}()
		select {
		case err := <-ended:
			require.NoError(t, err)
		case <-time.After(time.Minute):
			t.Fatalf("actors have outlived %v of their supervisor", signal)
		}
		_, err = io.Copy(io.Discard, out)
		require.NoError(t, err)
		require.Error(t, cmd.Wait())
	}
}

// began returns the ledgers of all processes that have started a job.
func began(t *testing.T, db string) (ledgers []string) {
	all, err := filepath.Glob(filepath.Join(filepath.Dir(db), "*.ran"))
	require.NoError(t, err)
	return slices.DeleteFunc(all, func(path string) bool {
		info, err := os.Stat(path)
		return err != nil || info.Size() == 0
	})
}

// The checks fail for wrong results: missing jobs, repeated jobs and jobs left in a queue.
func TestDispatch_WrongChecks(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := config{db: filepath.Join(t.TempDir(), "dispatch.db"), legacy: 3}
	s, err := open(ctx, c, io.Discard)
	require.NoError(t, err)
	defer s.close()
	m := &migration{supervisor: s}
	for _, step := range []struct {
		number int
		found  string
		ok     bool
	}{
		{1, "1 jobs, 1 ends, 0 begun again, 0 left, 0 dead", false},
		{2, "2 jobs, 2 ends, 0 begun again, 0 left, 0 dead", false},
		{3, "3 jobs, 3 ends, 0 begun again, 0 left, 0 dead", true},
		{3, "3 jobs, 4 ends, 0 begun again, 0 left, 0 dead", false},
	} {
		_, err := s.db.SQL().ExecContext(ctx, `INSERT INTO done VALUES ('C', ?, 'v-1')`, step.number)
		require.NoError(t, err)
		name := "ledger" + strconv.Itoa(len(s.processes))
		s.processes = append(s.processes, &process{name: name, fate: "killed"})
		require.NoError(t, os.WriteFile(ledgerOf(c.db, name), []byte("C 1\n"), 0o600))
		got, err := m.check(ctx)
		require.NoError(t, err)
		require.Equal(t, step.found, got.found)
		require.Equal(t, step.ok, got.ok, "%+v", got)
	}
	var w bytes.Buffer
	require.ErrorContains(t, printChecks(&w, []check{{"A", "must", "found", true}, {"B", "must", "other", false}}), "scenario B: must, but: other")
	require.Contains(t, w.String(), "FAILED")
	_, err = honker.NewQueue[job](s.db, s.d.Keys().LegacyActorQueue("v"), nil).Enqueue(ctx, job{"C", 4})
	require.NoError(t, err)
	got, err := m.check(ctx)
	require.NoError(t, err)
	require.Contains(t, got.found, "1 left")
}

// An actor that exits on its own stops the run with an error.
func TestDispatch_ActorDies(t *testing.T) {
	t.Parallel()
	s, err := open(t.Context(), config{db: filepath.Join(t.TempDir(), "dispatch.db")}, io.Discard)
	require.NoError(t, err)
	defer s.close()
	p, err := s.start(instances("osis", "", 1, 1)[0])
	require.NoError(t, err)
	require.NoError(t, p.stdin.Close())
	err = s.until(t.Context(), func(context.Context) (bool, error) { return false, nil })
	require.ErrorIs(t, err, errEnded)
	require.ErrorContains(t, err, "osis-1")
}

// Invalid flags are rejected with exit code 2.
func TestDispatch_Flags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-shared", "0"}, {"-pinned", "-1"}, {"-legacy", "0"}, {"-kills", "-1"}, {"-work", "-1s"}, {"-nonsense"}} {
		require.Empty(t, runMain(t, 2, args...), "%v", args)
	}
}

// small returns the flags of a short run on db.
func small(db string) []string {
	return []string{"-db", db, "-shared", "400", "-pinned", "20", "-legacy", "100", "-kills", "0", "-work", "4ms"}
}

// runMain runs the supervisor in this process and returns its stdout.
func runMain(t *testing.T, code int, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	require.Equal(t, code, run(t.Context(), args, &stdout, &stderr), "%s%s", &stdout, &stderr)
	if code == 0 {
		fmt.Fprint(t.Output(), stdout.String())
	}
	return stdout.String()
}
