package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// limitQueues sets the limits of several queues.
func (d *Fixture) limitQueues(t *testing.T, limits map[string]row.QueueLimits) {
	t.Helper()
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
		for queue, l := range limits {
			if _, err := d.Stores.Limits.Set(ctx, q, queue, l); err != nil {
				return err
			}
		}
		return nil
	})
}

// addTo adds a job with key and priority to queue and returns its id.
func (d *Fixture) addTo(t *testing.T, queue, key string, priority int64) int64 {
	t.Helper()
	in := plain()
	in.Queue, in.Key, in.Priority = queue, key, priority
	return d.insert(t, start, in).IDs[0]
}

// claimLanes claims up to n jobs of lanes.
func (d *Fixture) claimLanes(t *testing.T, n int, lanes ...row.Lane) []*row.Job {
	t.Helper()
	return d.step(t, start, row.Step{Claim: &row.ClaimRequest{Lanes: lanes, Worker: "w", N: n, Lease: jobLease}}).Jobs
}

// A lane with a limit gives its jobs of the highest priority, and the other lanes fill the claim.
func limitedLanesByPriority(t *testing.T, d *Fixture) {
	d.limitQueues(t, map[string]row.QueueLimits{"a": {Running: 2}})
	var a, b []int64
	for _, priority := range []int64{0, 5, 1, 9} {
		a = append(a, d.addTo(t, "a", "", priority))
	}
	for range 3 {
		b = append(b, d.addTo(t, "b", "", 6))
	}
	lanes := row.InOneOrder("a", "b", "none")
	got := d.claimLanes(t, 3, lanes...)
	require.Equal(t, []int64{a[3], b[0], b[1]}, jobIDs(got))
	require.Equal(t, []int64{b[2], a[1]}, jobIDs(d.claimLanes(t, 9, lanes...)))
	require.Empty(t, d.claimLanes(t, 9, lanes...))
	d.end(t, start, got[0], row.Acked)
	require.Equal(t, []int64{a[2]}, jobIDs(d.claimLanes(t, 9, lanes...)))
}

// Lanes keep their limits on queues and on keys in one claim, whatever their order.
func limitedLanesWithKeys(t *testing.T, d *Fixture) {
	d.limitQueues(t, map[string]row.QueueLimits{"a": {Running: 2, PerKey: 1}, "b": {PerKey: 1}, "c": {Running: 1}})
	a := []int64{d.addTo(t, "a", "k", 9), d.addTo(t, "a", "k", 8), d.addTo(t, "a", "l", 7), d.addTo(t, "a", "", 6)}
	b := []int64{d.addTo(t, "b", "k", 0), d.addTo(t, "b", "k", 0), d.addTo(t, "b", "", 0)}
	c := []int64{d.addTo(t, "c", "k", 0), d.addTo(t, "c", "k", 0)}
	first := []int64{a[0], a[2], b[0], b[2], c[0]}
	for name, lanes := range map[string][]row.Lane{
		"in order":     row.InOrder("a", "b", "c"),
		"in one order": row.InOneOrder("c", "a", "b"),
		"in turns":     row.InTurns([]string{"b", "a", "c"}, []int{1, 2, 3}),
	} {
		got := d.claimLanes(t, 9, lanes...)
		require.ElementsMatch(t, first, jobIDs(got), name)
		require.Empty(t, d.claimLanes(t, 9, lanes...), name)
		for _, j := range got { // back to the beginning
			d.settleJobs(t, start, &row.Settlement{Claim: claimOf(j), Queue: j.Queue, Outcome: row.Released})
		}
	}
}

// A lane that a claim has filled takes no place from the others, even while the claim looks for jobs behind those
// that it holds for their keys.
func filledLane(t *testing.T, d *Fixture) {
	d.limitQueues(t, map[string]row.QueueLimits{"a": {Running: 1}, "b": {PerKey: 1}})
	d.addTo(t, "b", "k", 0)
	require.Equal(t, "b", queuesOf(d.claimLanes(t, 9, row.InOrder("a", "b")...)))
	for range 150 {
		d.addTo(t, "a", "", 0)
	}
	for range 2 {
		d.addTo(t, "b", "k", 0)
	}
	d.inQueues(t, 5, "c")
	require.Equal(t, "accc", queuesOf(d.claimLanes(t, 4, row.InOrder("a", "b", "c")...)))
}

// The bounds of a claim are those of its limits and not of the lanes before: a claim returns as many jobs as
// requested while any lane has jobs that may run.
func limitedLanesFilled(t *testing.T, d *Fixture) {
	d.limitQueues(t, map[string]row.QueueLimits{"a": {Rate: row.StartRate{N: 1, Per: time.Hour, Burst: 1}}, "b": {Running: 1}})
	d.inQueues(t, 4, "a", "b", "c")
	lanes := row.InTurns([]string{"a", "b", "c"}, []int{5, 5, 1})
	require.ElementsMatch(t, []byte("abcc"), []byte(queuesOf(d.claimLanes(t, 4, lanes...))))
	require.Equal(t, "cc", queuesOf(d.claimLanes(t, 4, lanes...)))
}

// A lane of which all jobs are held gives one as soon as its key has room, whether or not other lanes have jobs.
func heldLane(t *testing.T, d *Fixture) {
	d.limitQueues(t, map[string]row.QueueLimits{"a": {PerKey: 1}})
	ids := []int64{d.addTo(t, "a", "k", 0), d.addTo(t, "a", "k", 0), d.addTo(t, "a", "k", 0)}
	lanes := row.InOrder("a", "b")
	for i, id := range ids {
		if i == 2 {
			d.inQueues(t, 1, "b")
		}
		got := d.claimLanes(t, 9, lanes...)
		require.Equal(t, id, got[0].ID)
		require.Empty(t, d.claimLanes(t, 9, lanes...))
		d.end(t, start, got[0], row.Acked)
	}
}
