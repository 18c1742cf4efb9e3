//go:build unix

package process_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

// wokenByEvent is far above what a wake takes on a machine that is busy with others, and far below what it takes by the
// safety look, every four seconds.
const wokenByEvent = 500 * time.Millisecond

// The wake of another process is seldom slow.
func TestProcess_Wake_SeldomSlow(t *testing.T) {
	const samples = 30
	path, db := testkit.OpenShared(t)
	q := honker.NewQueue[int64](db, "jobs", nil)
	worker := testkit.StartChild(t, "worker", testkit.Task{Path: path})
	testkit.Enqueue(t, q, 0)
	nextRun(t, worker) // so it is up
	var took []time.Duration
	for range samples {
		sent := time.Now()
		testkit.Enqueue(t, q, sent.UnixNano())
		took = append(took, nextRun(t, worker).at.Sub(sent))
	}
	slices.Sort(took)
	require.Less(t, took[samples/2], wokenByEvent, "%v", took)
	require.Less(t, took[samples*3/4], 3*wokenByEvent, "%v", took)
}
