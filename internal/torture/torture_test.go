//go:build unix

package torture_test

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/honker-go/honker/internal/torture"
)

var (
	seedFlag = flag.Uint64("seed", 0, "repeat the round of a failed run")
	longFlag = flag.Duration("torture", 0, "run each suite for so long")
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// run repeats a suite for a while, and returns what it counted.
func run(t *testing.T, name string, span, short time.Duration) *torture.Counters {
	t.Helper()
	b := torture.Bounds{Seed: *seedFlag, For: span, Least: 2}
	if b.Seed == 0 {
		b.Seed = uint64(time.Now().UnixNano())
	}
	if testing.Short() {
		b.For = short
	}
	if *longFlag > 0 {
		b.For = *longFlag
	}
	c := &torture.Counters{}
	for _, s := range torture.Suites {
		if s.Name == name {
			t.Logf("repeat with -seed=%d", b.Seed)
			require.NoError(t, s.Run(context.Background(), b, c))
			t.Log(c)
			return c
		}
	}
	t.Fatalf("there is no suite %q", name)
	return nil
}

func TestPowerCutLeavesTheStateAfterOneOfTheCommits(t *testing.T) {
	c := run(t, "cuts", 12*time.Second, 2*time.Second)
	require.Positive(t, c.Get("cuts_full"))
	require.Positive(t, c.Get("cuts_normal"))
	require.Zero(t, c.Get("acked_lost_full"))
}

func TestFailingDiskIsAnErrorAndNothingAcknowledgedIsLost(t *testing.T) {
	c := run(t, "faults", 12*time.Second, 2*time.Second)
	require.Positive(t, c.Get("surfaced"))
	require.Zero(t, c.Get("acked_lost"))
	require.Zero(t, c.Get("hung"))
}
