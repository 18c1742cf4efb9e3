//go:build unix

package pgbackend_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/honkerpg/internal/pgstore"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/honkerpg/internal/pgtest"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Claims at once on the queues of a job and of its copy start the job exactly once, and never wait for each other's
// copies: a deadlock would make an op run again after a second.
func TestDispatchStartsOneCopy(t *testing.T) {
	const sent = 60
	schema := pgsql.Schema(pgtest.Schema(t))
	b, stores := open(t, schema, nil), pgstore.Stores(schema)
	write := func(f func(ctx context.Context, q engine.Querier, now time.Time) error) error {
		return b.Write(t.Context(), engine.OpFunc(f))
	}
	original := map[int64]int64{} // the sent job of each job
	require.NoError(t, write(func(ctx context.Context, q engine.Querier, now time.Time) error {
		insert := func(queue string) int64 {
			out, err := stores.Jobs.Insert(ctx, q, &row.Insert{Queue: queue, Payloads: []string{`1`}, MaxAttempts: 1}, now)
			require.NoError(t, err)
			return out.IDs[0]
		}
		for range sent {
			id, copied := insert("new"), insert("old")
			original[id], original[copied] = id, id
			_, err := stores.Dispatches.Add(ctx, q, row.Sent{ID: id, Queue: "new"}, now)
			require.NoError(t, err)
			require.NoError(t, stores.Dispatches.AddTwins(ctx, q, id, []int64{copied}))
		}
		return nil
	}))
	var mu sync.Mutex
	starts := map[int64]int{}
	var g sync.WaitGroup
	for _, queue := range []string{"new", "old", "new", "old"} {
		g.Go(func() {
			for done := false; !done && !t.Failed(); {
				var got row.Claimed
				runs := 0
				err := write(func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
					runs++
					claim := &row.ClaimRequest{Lanes: row.InOrder(queue), Worker: "w", N: 3, Lease: time.Minute}
					got, err = stores.Jobs.Step(ctx, q, row.Step{Claim: claim}, now)
					return err
				})
				if err != nil || runs > 1 {
					t.Errorf("a claim has run %d times: %v", runs, err)
					return
				}
				mu.Lock()
				for _, j := range got.Jobs {
					starts[original[j.ID]]++
				}
				done = len(starts) == sent
				mu.Unlock()
			}
		})
	}
	g.Wait()
	for id, n := range starts {
		require.Equal(t, 1, n, id)
	}
	broken, err := b.Check(t.Context())
	require.NoError(t, err)
	require.Empty(t, broken)
}
