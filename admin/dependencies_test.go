package admin_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/internal/testkit"
)

// Dependencies finds jobs and batches in both directions, up to the given number of edges. A dead dependency is marked.
func TestDependencies_BothDirections(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	batch := newBatch(t, db)
	extract := testkit.Enqueue(t, q, 1)
	clean, join := testkit.Enqueue(t, q, 2, honker.After(extract)), testkit.Enqueue(t, q, 3, honker.After(extract))
	load := testkit.Enqueue(t, q, 4, honker.After(clean, join), honker.InBatch(batch.ID))
	last := testkit.Enqueue(t, q, 5, honker.AfterBatch(batch.ID))
	jobs, err := q.Claim(ctx, "w", 1)
	require.NoError(t, err)
	require.NoError(t, jobs[0].Ack(ctx))
	jobs, err = q.Claim(ctx, "w", 2)
	require.NoError(t, err)
	require.NoError(t, jobs[1].Reject(ctx, errors.New("no supplier")))

	type node struct {
		id    int64
		level int
		batch bool
		phase honker.Phase
	}
	of := func(id int64, levels int) (nodes []node, g *admin.DependencyGraph) {
		t.Helper()
		g, err := admin.Dependencies(ctx, db, id, levels)
		require.NoError(t, err)
		for _, n := range g.Nodes {
			of := node{n.ID, n.Level, n.Batch != nil, ""}
			if n.Job != nil {
				of.phase = n.Job.Phase
			}
			nodes = append(nodes, of)
		}
		return nodes, g
	}
	nodes, g := of(load, 2)
	require.Equal(t, []node{{extract, -2, false, ""}, {clean, -1, false, honker.PhaseRunning}, {join, -1, false, honker.PhaseDead},
		{load, 0, false, honker.PhaseHeld}, {batch.ID, 1, true, ""}, {last, 2, false, honker.PhaseHeld}}, nodes)
	require.Equal(t, []admin.DependencyEdge{{From: 0, To: 1, Done: true}, {From: 0, To: 2, Done: true}, {From: 1, To: 3}, {From: 2, To: 3, Dead: true},
		{From: 3, To: 4}, {From: 4, To: 5}}, g.Edges)
	require.False(t, g.More)
	nodes, _ = of(load, 1)
	require.Len(t, nodes, 4)
	nodes, _ = of(999, 2)
	require.Equal(t, []node{{999, 0, false, ""}}, nodes)
	for range 9 {
		testkit.Enqueue(t, q, 6, honker.After(last))
	}
	nodes, g = of(last, 1)
	require.Len(t, nodes, 10)
	require.True(t, g.More)

	for _, levels := range []int{0, -1, 6} {
		_, err = admin.Dependencies(ctx, db, load, levels)
		require.ErrorIs(t, err, honker.ErrInvalid)
	}
	_, err = admin.Dependencies(ctx, nil, load, 2)
	require.ErrorIs(t, err, honker.ErrInvalid)
}
