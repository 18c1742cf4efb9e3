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

// begun is when the run began, by the clock outside of all bubbles.
var begun = uint64(time.Now().UnixNano())

// UseSeed hands the seed on to the models, which draw by themselves.
func UseSeed() {
	flag.Parse()
	if *seedFlag != 0 {
		_ = flag.Set("rapid.seed", fmt.Sprint(*seedFlag))
	}
}

// Seed is the run's seed, which a test that fails has said. What processes, goroutines
// and the machine's scheduler add is not in it.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = begun
	}
	t.Logf("repeat with -seed=%d", seed)
	return seed
}

// Rand is the source of one goroutine, called of, of a seed.
func Rand(seed, of uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, of)) }

// KeepOnFailure copies what lies in dir, the database with its log and the ledgers, when
// the test has failed and before anything is closed. Call it last of what is set up.
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
