package honker_test

import (
	"context"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

// heldJobs opens a file in which n jobs of one key are held behind a running job.
func heldJobs(t *testing.T, n int, observer *honker.Observer) (*honker.DB, *honker.Queue[int]) {
	t.Helper()
	db, err := honker.Open(context.Background(), filepath.Join(t.TempDir(), "app.db"), &honker.Options{Observer: observer})
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	q := honker.NewQueue[int](db, "jobs", nil)
	setLimits(t, q, honker.Limits{PerKey: 1})
	_, err = q.EnqueueMany(context.Background(), make([]int, n+1), honker.Key("a"))
	require.NoError(t, err)
	for testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live WHERE state = 'held'`) < int64(n) {
		testkit.Claim(t, q, 1)
	}
	return db, q
}

// Removing the limits of a queue with many held jobs takes many transactions. Other writers get their turn
// between them.
func TestQueue_SetLimits_KeepsTheWriterFree(t *testing.T) {
	const held, atOnce = 4000, 256
	var transactions atomic.Int64
	db, q := heldJobs(t, held, &honker.Observer{Tx: func(honker.TxEnded) { transactions.Add(1) }})
	before := transactions.Load()
	setLimits(t, q, honker.Limits{})
	require.GreaterOrEqual(t, transactions.Load()-before, int64(held/atOnce))
	require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live WHERE state = 'held'`))
	require.Empty(t, rows(t, db, limitTriggers))
	require.NoError(t, db.Check(context.Background()))
}

// An interrupted SetLimits is completed by the next SetLimits, by Maintain, or by the claims of a worker.
// The file is consistent meanwhile.
func TestQueue_SetLimits_IsFinished(t *testing.T) {
	finish := map[string]func(ctx context.Context, db *honker.DB, q *honker.Queue[int]) error{
		"SetLimits": func(ctx context.Context, _ *honker.DB, q *honker.Queue[int]) error {
			return q.SetLimits(ctx, honker.Limits{})
		},
		"Maintain": func(ctx context.Context, db *honker.DB, _ *honker.Queue[int]) error {
			return db.Maintain(ctx, &honker.MaintainOptions{Once: true})
		},
		"claims": func(ctx context.Context, _ *honker.DB, q *honker.Queue[int]) error {
			for range 100 {
				if _, err := q.Claim(ctx, "w", 1); err != nil {
					return err
				}
			}
			return nil
		},
	}
	for name, do := range finish {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			const held = 4000
			var transactions atomic.Int64
			transactions.Store(-1 << 40)
			db, q := heldJobs(t, held, &honker.Observer{Tx: func(honker.TxEnded) {
				if transactions.Add(1) == 3 {
					cancel()
				}
			}})
			transactions.Store(0)
			require.ErrorIs(t, q.SetLimits(ctx, honker.Limits{}), context.Canceled)
			left := testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live WHERE state = 'held'`)
			require.NotZero(t, left)
			require.Less(t, left, int64(held))
			ctx = context.Background()
			limits, err := q.Limits(ctx)
			require.NoError(t, err)
			require.Zero(t, limits)
			require.NoError(t, db.Check(ctx))
			require.NoError(t, do(ctx, db, q))
			require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live WHERE state = 'held'`))
			require.Empty(t, rows(t, db, limitTriggers))
			require.NoError(t, db.Check(ctx))
		})
	}
}
