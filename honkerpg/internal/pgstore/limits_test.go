//go:build unix

package pgstore_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/honkerpg/internal/pgstore"
	"github.com/honker-go/honker/internal/row"
)

// A claim of a long queue with limits reads a few rows for each job that it takes, holds or lets go, and the queue's state
// a few rows for each key, even if the server's statistics are of the empty table.
func TestLimits_ReadLittle(t *testing.T) {
	schema, db := long(t)
	stores := pgstore.Stores(schema)
	_, err := db.ExecContext(t.Context(), schema.SQL(`INSERT INTO honker.token (queue, key) SELECT 'keyed', n::text FROM generate_series(0, 99) n`))
	require.NoError(t, err)
	claim := row.Step{Claim: &row.ClaimRequest{Lanes: row.InOrder("keyed"), Worker: "w", N: 20, Lease: time.Minute}}
	rate := row.StartRate{N: 1, Per: time.Minute, Burst: 2}
	for _, limits := range []row.QueueLimits{{Running: 10}, {PerKey: 2}, {PerKey: 100}, {InOrder: true}, {KeyRate: rate}, {Rate: rate, KeyRate: rate}} {
		_, err := stores.Limits.Set(t.Context(), db, "keyed", limits)
		require.NoError(t, err)
		for range 7 { // the server has chosen a plan for all values by then, if it may
			jobs := 0
			indexed, scanned := readsIn(t, db, schema, "job", nil, func(ctx context.Context, q row.Querier) error {
				c, err := stores.Jobs.Step(ctx, q, claim, start)
				jobs = len(c.Jobs)
				return err
			})
			require.Zero(t, scanned, "%+v", limits)
			require.LessOrEqual(t, indexed, 6000, "%+v", limits)
			require.NotZero(t, jobs)
			indexed, scanned = reads(t, db, schema, "job", func(ctx context.Context, q row.Querier) error {
				_, err := stores.Jobs.States(ctx, q, slices.Repeat([]string{"keyed"}, 2), true, start)
				return err
			})
			require.Zero(t, scanned, "%+v", limits)
			require.LessOrEqual(t, indexed, 500, "%+v", limits)
		}
	}
}
