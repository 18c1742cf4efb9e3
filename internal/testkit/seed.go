package testkit

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var seedFlag = flag.Uint64("seed", 0, "draw what a failed run has drawn")

// begun is the start time of the run. It is read here because a bubble would return its fake time.
var begun = uint64(time.Now().UnixNano())

// UseSeed passes the -seed flag to the model tests, which use rapid's own seed. Call it in TestMain.
func UseSeed() {
	flag.Parse()
	if *seedFlag != 0 {
		_ = flag.Set("rapid.seed", fmt.Sprint(*seedFlag))
	}
}

// Seed returns the run's seed and logs it so that the run can be repeated. The seed does not affect
// how goroutines and processes are scheduled.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = begun
	}
	t.Logf("repeat with -seed=%d", seed)
	return seed
}

// Rand returns a random source for a single goroutine. of distinguishes sources that share a seed.
func Rand(seed, of uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, of)) }

// KeepOnFailure copies dir to a temporary directory if the test fails. It must be called after all
// other cleanups are registered, so that it runs before files are closed.
func KeepOnFailure(t testing.TB, dir string) {
	t.Helper()
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		kept, err := os.MkdirTemp("", "honker-failed-")
		require.NoError(t, err)
		t.Logf("files kept in %s (%v)", kept, os.CopyFS(kept, os.DirFS(dir)))
	})
}
