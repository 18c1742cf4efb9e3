package store_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/jobs"
)

// A claim of lanes returns as many jobs as requested even if lanes end, because a short claim tells
// the worker that there are no more jobs.
func TestClaimFair_Filled(t *testing.T) {
	tx := begin(t, openFresh(t))
	sizes := []int{1, 0, 2, 0, 1, 40}
	var lanes []row.Lane
	var queues []string
	for i, n := range sizes {
		queue := fmt.Sprint("lane", i)
		queues = append(queues, queue)
		lanes = append(lanes, row.Lane{Queue: queue, Step: 1})
		for range n {
			exec(t, tx, `INSERT INTO _honker_live (queue, payload, run_at) VALUES (?, '1', 5)`, queue)
		}
	}
	const all = 44
	for n := 1; n <= all+1; n++ {
		exec(t, tx, `UPDATE _honker_live SET state = 'pending', worker_id = NULL, claim_expires_at = NULL, attempts = 0`)
		fair, _, err := jobs.Jobs{}.ClaimFair(t.Context(), tx, lanes, "w", n, 10_000, 20)
		require.NoError(t, err)
		require.Len(t, fair, min(n, all))
		for i, first := range []string{"lane0", "lane2", "lane4", "lane5", "lane2", "lane5", "lane5"} {
			if i < n {
				require.Equal(t, first, fair[i].Queue, "job %d of %d", i, n)
			}
		}
		exec(t, tx, `UPDATE _honker_live SET state = 'pending', worker_id = NULL, claim_expires_at = NULL, attempts = 0`)
		strict, _, err := jobs.Jobs{}.ClaimStrict(t.Context(), tx, queues, "w", n, 10_000, 20)
		require.NoError(t, err)
		require.Len(t, strict, min(n, all))
	}
}
