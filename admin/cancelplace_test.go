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

// A job that Cancel has cancelled keeps its place until its handler has returned, and until then the explanations of those
// that wait for it name it; nothing is a problem.
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
			require.Contains(t, why.Text, fmt.Sprintf("job %d was cancelled, and its handler has not returned", first))
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
