//go:build unix

package pgbackend_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/jobs"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/honkerpg/internal/pgtest"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// A step settles and then claims. An ack with another attempt is lost, and a retry without attempts left is a death.
func TestStepSettlesAndClaims(t *testing.T) {
	schema := pgsql.Schema(pgtest.Schema(t))
	b, store, now := open(t, schema, nil), jobs.Jobs{Schema: schema}, time.Now().Truncate(time.Second)
	step := func(s row.Step) (c row.Claimed) {
		t.Helper()
		require.NoError(t, b.Write(t.Context(), engine.SingleOp(func(ctx context.Context, q engine.Querier, _ time.Time) (err error) {
			c, err = store.Step(ctx, q, s, now)
			return err
		})))
		return c
	}
	in := row.Insert{Queue: "a", Payloads: []string{`1`, `2`, `3`, `4`}, MaxAttempts: 1}
	var ids []int64
	for _, in.Queue = range []string{"a", "b"} {
		require.NoError(t, b.Write(t.Context(), engine.SingleOp(func(ctx context.Context, q engine.Querier, _ time.Time) error {
			out, err := store.Insert(ctx, q, &in, now)
			ids = append(ids, out.IDs...)
			return err
		})))
	}
	claim := &row.ClaimRequest{Lanes: row.InOrder("a", "b"), Worker: "w", N: 6, Lease: time.Minute}
	got := step(row.Step{Claim: claim}).Jobs
	require.Len(t, got, 6)
	settle := make([]*row.Settlement, 6)
	for i, outcome := range []row.Outcome{row.Acked, row.Acked, row.Retried, row.Snoozed, row.Released, row.Acked} {
		require.Equal(t, ids[i], got[i].ID, "lanes in order")
		require.EqualValues(t, 1, got[i].Attempts)
		settle[i] = &row.Settlement{Claim: row.Claim{ID: got[i].ID, Worker: "w", Attempt: 1}, Queue: got[i].Queue, Outcome: outcome, Error: "why", Delay: time.Hour}
	}
	settle[5].Attempt = 2
	next := step(row.Step{Settle: settle, Claim: claim}).Jobs
	for i, want := range []row.Outcome{row.Acked, row.Acked, row.Died, row.Snoozed, row.Released, row.Lost} {
		require.Equal(t, want, settle[i].Became, i)
	}
	require.Len(t, next, 3, "the released job, and those that were left")
	require.Equal(t, ids[4], next[0].ID)
	require.Empty(t, step(row.Step{Claim: claim}).Jobs)
	now = now.Add(2 * time.Hour)
	again := step(row.Step{Claim: claim}).Jobs
	require.Len(t, again, 1, "the snoozed job is due; the claims that have lapsed have no attempts left")
	require.Equal(t, ids[3], again[0].ID)
}
