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
	require.Less(t, took[samples/2], 50*time.Millisecond, "%v", took)
	require.Less(t, took[samples*9/10], 750*time.Millisecond, "%v", took)
}
