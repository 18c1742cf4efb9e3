//go:build unix

package torture_test

import (
	"context"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/tests/torture"
	"github.com/honker-go/honker/tests/torture/wallclock"
)

var longFlag = flag.Duration("torture", 0, "run each suite for so long")

// givenServer means that the server was running before, so the tests cannot crash it.
var givenServer = os.Getenv("HONKER_TEST_POSTGRES") != ""

func TestMain(m *testing.M) {
	torture.Main()
	testkit.Main(m, nil)
}

// run repeats a suite for the given time, but at least the given number of rounds, and returns its
// counters.
func run(t *testing.T, name string, rounds int, span, short time.Duration) *torture.Counters {
	t.Helper()
	b := torture.Bounds{Seed: testkit.Seed(t), For: span, Least: rounds}
	if testing.Short() {
		b.For = short
	}
	if name == "flow" || testing.Short() && !testkit.OnFile() {
		b.Span = 3 * time.Second
	}
	if *longFlag > 0 {
		b.For = *longFlag
	}
	c := &torture.Counters{}
	for _, s := range torture.Suites {
		if s.Name == name {
			err := s.Run(context.Background(), b, c)
			t.Log(c)
			require.NoError(t, err)
			requireCrashes(t, c)
			return c
		}
	}
	t.Fatalf("there is no suite %q", name)
	return nil
}

// requireCrashes asserts that a server that this test has started has crashed. A short run may end before, on a slow
// machine.
func requireCrashes(t *testing.T, c *torture.Counters) {
	t.Helper()
	if !testkit.OnFile() && !givenServer && !testing.Short() {
		require.Positive(t, c.Get("crashes"))
	}
}

// A power cut leaves the state after some commit.
func TestTorture_PowerCut(t *testing.T) {
	testkit.FileOnly(t)
	c := run(t, "cuts", 4, 12*time.Second, 2*time.Second)
	require.Positive(t, c.Get("cuts_full"))
	require.Positive(t, c.Get("cuts_normal"))
	require.Zero(t, c.Get("acked_lost_full")+c.Get("acked_lost_attached_full"))
}

// Disk failures cause errors, and no acknowledged write is lost.
func TestTorture_FailingDisk(t *testing.T) {
	testkit.FileOnly(t)
	c := run(t, "faults", 1, 8*time.Second, 2*time.Second)
	require.Positive(t, c.Get("surfaced"))
	require.Zero(t, c.Get("acked_lost"))
	require.Zero(t, c.Get("hung"))
}

// When processes are killed, nothing is lost or done twice.
func TestTorture_Killed(t *testing.T) {
	c := run(t, "kills", 1, 12*time.Second, 2*time.Second)
	require.Positive(t, c.Get("kills"))
	require.Positive(t, c.Get("jobs"))
	require.Positive(t, c.Get("bounded"))
	if c.Get("jobs") > 2000 { // on a slow machine few jobs run between two kills, and only every 64th dies
		require.Positive(t, c.Get("pauses"))
		require.Positive(t, c.Get("requeued"))
	}
	for _, none := range []string{"acked_lost", "phantoms", "duplicates", "order_violations", "unique_violations", "edge_violations", "limit_violations", "pause_violations"} {
		require.Zero(t, c.Get(none), none)
	}
}

// When twenty processes share a file and are killed, nothing is lost or done twice.
func TestTorture_Crowd_Killed(t *testing.T) {
	c := run(t, "crowd", 1, 8*time.Second, 2*time.Second)
	require.Positive(t, c.Get("kills"))
	require.Positive(t, c.Get("jobs"))
	for _, none := range []string{"acked_lost", "phantoms", "duplicates", "order_violations"} {
		require.Zero(t, c.Get(none), none)
	}
}

// When the clocks of processes are changed, nothing is lost or done twice.
func TestTorture_ClocksSet(t *testing.T) {
	if !wallclock.Supported {
		t.Skip("the clock cannot be set for one process here")
	}
	c := run(t, "clocks", 1, 8*time.Second, 2*time.Second)
	require.Positive(t, c.Get("clock_steps"))
	require.Positive(t, c.Get("jobs"))
	for _, none := range []string{"acked_lost", "phantoms", "duplicates", "order_violations"} {
		require.Zero(t, c.Get(none), none)
	}
}

// A process notices that its file was replaced although its clock is changed.
func TestTorture_ClocksSet_FileReplaced(t *testing.T) {
	testkit.FileOnly(t)
	c := run(t, "replaced", 1, 4*time.Second, time.Second)
	require.Positive(t, c.Get("replaced"))
	require.Zero(t, c.Get("acked_late"))
	require.Zero(t, c.Get("not_told"))
}

// With the safety poll off, no waiter misses a commit.
func TestTorture_NoMissedCommit(t *testing.T) {
	testkit.FileOnly(t)
	c := run(t, "wakes", 1, 8*time.Second, 2*time.Second)
	require.Positive(t, c.Get("commits"))
	require.Zero(t, c.Get("missed"))
}

// Closing a DB releases all of its resources.
func TestTorture_Closed(t *testing.T) {
	testkit.FileOnly(t)
	c := run(t, "leaks", 1, 4*time.Second, time.Second)
	require.Positive(t, c.Get("opened"))
}

// Each part of the library agrees with its model.
func TestTorture_Models(t *testing.T) {
	testkit.FileOnly(t)
	all := []string{"queue", "stream", "group", "lock", "rate", "retention", "scheduler", "outbox"}
	c := run(t, "models", len(all), 4*time.Second, time.Second)
	for _, model := range all {
		require.Positive(t, c.Get("operations_"+model), model)
	}
	require.Zero(t, c.Get("mismatches"))
}

// mixed returns the number of rounds of relay and dispatch that include each kind of failure, and the counters of the
// failures. A server has no power cuts and disk failures, and a short run may end before a process is stopped.
func mixed() (rounds int, failures []string) {
	if testkit.OnFile() {
		return 3, []string{"kills", "cuts", "faults"}
	}
	if testing.Short() {
		return 1, []string{"kills"}
	}
	return 1, []string{"kills", "stops"}
}

// Under kills, power cuts and disk failures, a relay loses nothing, keeps its order, and performs
// effects once.
func TestTorture_Relay(t *testing.T) {
	rounds, failures := mixed()
	c := run(t, "relay", rounds, 12*time.Second, 2*time.Second)
	for _, some := range append(failures, "messages", "effects") {
		require.Positive(t, c.Get(some), some)
	}
	for _, none := range []string{"acked_lost", "acked_lost_full", "phantoms", "duplicates", "order_violations", "hung", "stuck"} {
		require.Zero(t, c.Get(none), none)
	}
}

// Under kills, power cuts and disk failures, dispatched jobs end exactly once and none gets stuck.
// Stopped jobs do not end.
func TestTorture_Dispatch(t *testing.T) {
	rounds, failures := mixed()
	c := run(t, "dispatch", rounds, 12*time.Second, 2*time.Second)
	for _, some := range append(failures, "jobs", "effects", "stopped_jobs", "replies") {
		require.Positive(t, c.Get(some), some)
	}
	for _, none := range []string{"acked_lost", "acked_lost_full", "phantoms", "duplicates", "stopped_ran", "hung"} {
		require.Zero(t, c.Get(none), none)
	}
}

// When processes are killed, each effect of a flow happens once, each step runs, and each run ends.
func TestTorture_Flow(t *testing.T) {
	if testing.Short() && !testkit.OnFile() {
		t.Skip("the runs of a server take 20 s to end")
	}
	c := run(t, "flow", 1, 12*time.Second, 2*time.Second)
	for _, some := range []string{"kills", "runs", "effects", "killed_steps"} {
		require.Positive(t, c.Get(some), some)
	}
	for _, none := range []string{"acked_lost", "phantoms", "duplicates", "late_steps", "lost_steps", "not_undone", "stuck"} {
		require.Zero(t, c.Get(none), none)
	}
}

// A truncated or damaged log produces the state after some commit.
func TestTorture_DamagedLog(t *testing.T) {
	testkit.FileOnly(t)
	c := run(t, "tails", 1, 4*time.Second, time.Second)
	require.Positive(t, c.Get("log_cuts"))
}
