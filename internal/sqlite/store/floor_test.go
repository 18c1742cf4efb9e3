package store_test

import (
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/jobs"
)

// A hundred thousand jobs of any kind don't make a claim slow. honker's own claim, which walks them, takes thirty
// times the limit.
func TestClaim_QuickInBacklog(t *testing.T) {
	if slower > 1 {
		t.Skip("the race detector is slow")
	}
	const floor = 20 * time.Millisecond // a hundred times the usual duration
	for name, columns := range map[string]string{
		"due":              `'a', 'pending', 0, 1, NULL, NULL, 0`,
		"many priorities":  `'a', 'pending', i % 100, 1, NULL, NULL, 0`,
		"delayed, higher":  `'a', 'pending', 9, 9000000, NULL, NULL, 0`,
		"held by a worker": `'a', 'processing', 9, 1, 'other', 9000000, 1`,
	} {
		t.Run(name, func(t *testing.T) {
			tx := begin(t, openFresh(t))
			exec(t, tx, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
INSERT INTO _honker_live (queue, state, priority, run_at, worker_id, claim_expires_at, attempts, payload)
SELECT `+columns+`, '1' FROM n`)
			exec(t, tx, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500)
INSERT INTO _honker_live (queue, priority, run_at, payload) SELECT 'a', -1, 1, '1' FROM n`)
			require.Less(t, medianClaim(t, tx), floor)
		})
	}
}

// medianClaim returns the median duration of repeated claims of eight jobs.
func medianClaim(t *testing.T, tx *sql.Tx) time.Duration {
	t.Helper()
	took := make([]time.Duration, 50)
	for i := range took {
		began := time.Now()
		jobs, _, err := claim(tx, "a", "w", 8, 1_000_000, 1_000_060)
		took[i] = time.Since(began)
		require.NoError(t, err)
		require.Len(t, jobs, 8)
	}
	slices.Sort(took)
	t.Logf("median %v, longest %v", took[len(took)/2], took[len(took)-1])
	return took[len(took)/2]
}

// Checking whether a paused queue is ready doesn't read its jobs: a hundred thousand due jobs cost no more than none.
func TestState_QuickWhilePaused(t *testing.T) {
	if slower > 1 {
		t.Skip("the race detector is slow")
	}
	tx := begin(t, openFresh(t))
	exec(t, tx, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
INSERT INTO _honker_live (queue, priority, run_at, expires_at, payload) SELECT 'a', i % 50, 1, 2, '1' FROM n`)
	_, err := jobs.Pauses{}.Set(ctx, tx, "a", "", row.Pause{Since: time.UnixMilli(1)}, time.Unix(10, 0))
	require.NoError(t, err)
	took := make([]time.Duration, 100)
	for i := range took {
		began := time.Now()
		states, err := states(tx, []string{"a"}, 10)
		require.NoError(t, err)
		require.Equal(t, []row.QueueState{{Queue: "a"}}, states)
		jobs, _, err := claim(tx, "a", "w", 9, 10, 20)
		require.NoError(t, err)
		took[i] = time.Since(began)
		require.Empty(t, jobs)
	}
	slices.Sort(took)
	require.Less(t, took[len(took)/2], 10*time.Millisecond, "one that reads the jobs takes a hundred times as long")
}
