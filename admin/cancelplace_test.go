package admin_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/internal/testkit"
)

// A cancelled job counts against the limits until its handler has returned. Until then, it's named in the
// explanations of waiting jobs, and Problems doesn't report ProblemHeld.
func TestCancel_KeepsThePlace(t *testing.T) {
	for name, limits := range map[string]honker.Limits{"Running": {Running: 1}, "PerKey": {PerKey: 1}, "InOrder": {InOrder: true}} {
		t.Run(name, func(t *testing.T) {
			ctx, db, q := testkit.NewQueue[int](t, nil)
			require.NoError(t, q.SetLimits(ctx, limits))
			first := testkit.Enqueue(t, q, 1, honker.Key("a"))
			second := testkit.Enqueue(t, q, 2, honker.Key("a"))
			job := testkit.ClaimOne(t, q)
			report, err := admin.Cancel(ctx, db, admin.JobFilter{IDs: []int64{first}}, &admin.CancelOptions{Running: true})
			require.NoError(t, err)
			require.EqualValues(t, 1, report.Changed)
			require.Empty(t, testkit.Claim(t, q, 1))

			why, err := admin.Explain(ctx, db, second)
			require.NoError(t, err)
			require.Contains(t, why.Text, fmt.Sprintf("job %d was cancelled, but its handler has not returned", first))
			require.Equal(t, []int64{first}, why.Reasons[0].Jobs)
			queue, err := admin.ExplainQueue(ctx, db, "jobs")
			require.NoError(t, err)
			require.Contains(t, fmt.Sprint(queue.Reasons), "was cancelled")
			problems, err := admin.Problems(ctx, db)
			require.NoError(t, err)
			for _, p := range problems {
				require.NotEqual(t, admin.ProblemHeld, p.Code)
			}

			require.ErrorIs(t, job.Ack(context.Background()), honker.ErrClaimLost)
			require.Equal(t, second, testkit.ClaimOne(t, q).ID)
			require.NoError(t, db.Check(ctx))
		})
	}
}

// If a cancelled job no longer counts against the limit, the next claim takes the job held back by it
// first. Explain predicts this.
func TestExplain_PlaceEnded(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	require.NoError(t, q.SetLimits(ctx, honker.Limits{PerKey: 1}))
	first := testkit.Enqueue(t, q, 1, honker.Key("a"))
	held := testkit.Enqueue(t, q, 2, honker.Key("a"))
	testkit.ClaimOne(t, q)
	cancelled, err := q.Cancel(ctx, first)
	require.NoError(t, err)
	require.True(t, cancelled)
	require.Empty(t, testkit.Claim(t, q, 1))
	other := testkit.Enqueue(t, q, 3)
	testkit.Exec(t, db, testkit.Either(`UPDATE _honkerx_cancelled SET until_ms = 1000`, `UPDATE place SET until_at = 'epoch'`))

	for place, id := range []int64{held, other} {
		why, err := admin.Explain(ctx, db, id)
		require.NoError(t, err)
		require.Equal(t, honker.Count{N: int64(place)}, why.Ahead, why.Text)
	}
	claimed := testkit.Claim(t, q, 10)
	require.Len(t, claimed, 2)
	require.Equal(t, held, claimed[0].ID)
	require.Equal(t, other, claimed[1].ID)
}
