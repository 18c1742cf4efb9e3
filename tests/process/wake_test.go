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

// wokenByEvent is the limit for a wake by an event. It allows for a busy machine, but is far below
// the four seconds between two safety checks.
const wokenByEvent = 500 * time.Millisecond

// TestProcess_Wake_SeldomSlow checks that another process usually wakes a worker within
// wokenByEvent.
func TestProcess_Wake_SeldomSlow(t *testing.T) {
	const samples = 30
	path, db := openShared(t)
	q := honker.NewQueue[int64](db, "jobs", nil)
	worker := testkit.StartChild(t, "worker", testkit.Task{Path: path})
	testkit.Enqueue(t, q, 0)
	nextRun(t, worker) // the worker has started
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
