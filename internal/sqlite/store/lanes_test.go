package store_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/jobs"
)

// A claim from lanes returns as many jobs as requested even if some lanes run out, because a short claim tells the
// worker that there are no more jobs.
func TestClaimLanes_Filled(t *testing.T) {
	tx := begin(t, openFresh(t))
	sizes := []int{1, 0, 2, 0, 1, 40}
	var queues []string
	for i, n := range sizes {
		queues = append(queues, fmt.Sprint("lane", i))
		for range n {
			exec(t, tx, `INSERT INTO _honker_live (queue, payload, run_at) VALUES (?, '1', 5)`, queues[i])
		}
	}
	const all = 44
	orders := map[string]struct {
		lanes []row.Lane
		want  []int // lanes of the first jobs
	}{
		"in turns":     {row.InTurns(queues, []int{1, 1, 1, 1, 1, 1}), []int{0, 2, 4, 5, 2, 5, 5}},
		"in order":     {row.InOrder(queues...), []int{0, 2, 2, 4, 5, 5}},
		"in one order": {row.InOneOrder(queues...), []int{0, 2, 2, 4, 5, 5}},
	}
	for name, order := range orders {
		for n := 1; n <= all+1; n++ {
			exec(t, tx, `UPDATE _honker_live SET state = 'pending', worker_id = NULL, claim_expires_at = NULL, attempts = 0`)
			claimed, _, err := jobs.Jobs{}.ClaimLanes(t.Context(), tx, order.lanes, "w", n, 10_000, 20)
			require.NoError(t, err)
			require.Len(t, claimed, min(n, all), name)
			for i, lane := range order.want[:min(n, len(order.want))] {
				require.Equal(t, queues[lane], claimed[i].Queue, "%s: job %d of %d", name, i, n)
			}
		}
	}
}
