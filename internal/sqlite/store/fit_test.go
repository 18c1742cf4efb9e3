package store_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/jobs"
	"github.com/honker-go/honker/internal/sqlite/store/schema"
)

// fitted lists changes of limits that affect a queue's existing jobs.
var fitted = []struct {
	name    string
	was, is row.QueueLimits
}{
	{"PerKey removed", row.QueueLimits{PerKey: 1}, row.QueueLimits{}},
	{"PerKey raised", row.QueueLimits{PerKey: 1}, row.QueueLimits{PerKey: 3}},
	{"PerKey to InOrder", row.QueueLimits{PerKey: 2}, row.QueueLimits{InOrder: true}},
	{"InOrder to PerKey", row.QueueLimits{InOrder: true}, row.QueueLimits{PerKey: 2}},
	{"InOrder removed", row.QueueLimits{InOrder: true}, row.QueueLimits{}},
	{"KeyRate changed", row.QueueLimits{KeyRate: row.StartRate{N: 1, Per: time.Minute, Burst: 1}}, row.QueueLimits{KeyRate: row.StartRate{N: 1, Per: time.Millisecond, Burst: 100}}},
	{"KeyRate removed", row.QueueLimits{KeyRate: row.StartRate{N: 1, Per: time.Minute, Burst: 1}}, row.QueueLimits{}},
}

// limitedJobs inserts jobs with many keys and runs claims under the limits l, so that some jobs run
// and others are held.
func limitedJobs(t *testing.T, tx row.Querier, n, keys int, l row.QueueLimits) {
	t.Helper()
	_, err := jobs.Limits{}.Set(ctx, tx, "a", l)
	require.NoError(t, err)
	exec(t, tx, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
INSERT INTO _honker_live (queue, priority, run_at, payload) SELECT 'a', i % 3 - 1, 1 + i % 7, '1' FROM n`, n)
	exec(t, tx, `INSERT INTO _honkerx_job (job_id, queue, key, slot) SELECT id, 'a', 'k' || (id % ?), 0 FROM _honker_live`, keys)
	for before := ""; ; {
		_, _, err := jobs.Jobs{}.ClaimAt(ctx, tx, "a", "w", 10, 100_000, 1_000)
		require.NoError(t, err)
		left := value(t, tx, `SELECT count(*) FROM _honker_live WHERE state = 'pending' AND run_at <= 100`)
		if left == "0" || left == before {
			return
		}
		before = left
	}
}

func totalChanges(t *testing.T, q row.Querier) int {
	t.Helper()
	n, err := strconv.Atoi(value(t, q, `SELECT total_changes()`))
	require.NoError(t, err)
	return n
}

func requireSoundFile(t *testing.T, q row.Querier, what ...any) {
	t.Helper()
	broken, err := schema.Check(ctx, q)
	require.NoError(t, err)
	require.Empty(t, broken, what...)
}

// A change of limits, and each later part of its work, changes a limited number of rows, no matter how many jobs are
// waiting. The file is consistent between the parts.
func TestLimits_FitSome_Bounded(t *testing.T) {
	const n, part = 3000, 100
	for _, c := range fitted {
		t.Run(c.name, func(t *testing.T) {
			tx := begin(t, openFresh(t))
			limitedJobs(t, tx, n, 600, c.was)
			requireSoundFile(t, tx)
			before := totalChanges(t, tx)
			_, err := jobs.Limits{}.Set(ctx, tx, "a", c.is)
			require.NoError(t, err)
			require.Less(t, totalChanges(t, tx)-before, 20)
			parts := 0
			for more := true; more; parts++ {
				before := totalChanges(t, tx)
				more, err = jobs.Limits{}.FitSome(ctx, tx, "a", part, 100)
				require.NoError(t, err)
				if n := totalChanges(t, tx) - before; more { // the last part drops triggers
					require.LessOrEqual(t, n, 10*part)
				} else {
					require.LessOrEqual(t, n, 2000) // the final call also clears the marks of running jobs
				}
				if parts%8 == 0 {
					requireSoundFile(t, tx)
				}
			}
			require.Greater(t, parts, 4)
			requireSoundFile(t, tx)
			require.Equal(t, "NULL|NULL|NULL", value(t, tx, `SELECT ifnull(fit_job, 'NULL') || '|' || ifnull(fit_key, 'NULL') || '|' || ifnull(fit_rate, 'NULL') FROM _honkerx_queues`))
		})
	}
}

// Changed limits apply immediately, no matter how much of the work was done when a process died.
// Claims continue the work, and no job is stranded.
func TestLimits_FitSome_ByClaims(t *testing.T) {
	for _, c := range fitted {
		for _, parts := range []int{0, 1, 9} {
			t.Run(fmt.Sprint(c.name, " after ", parts), func(t *testing.T) {
				tx := begin(t, openFresh(t))
				limitedJobs(t, tx, 300, 20, c.was)
				_, err := jobs.Limits{}.Set(ctx, tx, "a", c.is)
				require.NoError(t, err)
				for range parts {
					_, err = jobs.Limits{}.FitSome(ctx, tx, "a", 7, 100)
					require.NoError(t, err)
					claimFitted(t, tx, c.is, honkersClaimAt)
					requireSoundFile(t, tx)
				}
				for range 3000 {
					claimFitted(t, tx, c.is, ourClaimAt)
					// End the oldest running jobs.
					exec(t, tx, `DELETE FROM _honker_live WHERE id IN (SELECT id FROM _honker_live WHERE state = 'processing' ORDER BY id LIMIT 5)`)
					if value(t, tx, `SELECT count(*) FROM _honker_live`) == "0" {
						break
					}
				}
				requireSoundFile(t, tx)
				require.Equal(t, "0", value(t, tx, `SELECT count(*) FROM _honker_live`))
				require.Equal(t, "1", value(t, tx, `SELECT fit_job IS NULL FROM _honkerx_queues`))
			})
		}
	}
}

// ourClaimAt claims at a later time than honkersClaimAt, which uses SQLite's clock.
func ourClaimAt(t *testing.T, q row.Querier) {
	t.Helper()
	_, _, err := jobs.Jobs{}.ClaimAt(ctx, q, "a", "w", 7, 4_102_444_800_000, 5_000_000_000)
	require.NoError(t, err)
}

// honkersClaimAt claims like other bindings, which don't adjust jobs to limits.
func honkersClaimAt(t *testing.T, q row.Querier) {
	t.Helper()
	exec(t, q, `UPDATE _honker_live SET state = 'processing', worker_id = 'py', claim_expires_at = 2000000, attempts = attempts + 1
WHERE id IN (SELECT id FROM _honker_live WHERE queue = 'a' AND state = 'pending' ORDER BY priority DESC, run_at, id LIMIT 7)`)
}

// claimFitted claims some jobs and requires that the limits l allow the jobs that started.
func claimFitted(t *testing.T, q row.Querier, l row.QueueLimits, claim func(*testing.T, row.Querier)) {
	t.Helper()
	exec(t, q, `CREATE TEMP TABLE ran AS SELECT id FROM _honker_live WHERE state = 'processing'`)
	exec(t, q, `CREATE TEMP TABLE lived AS SELECT job_id, key FROM _honkerx_job`)
	claim(t, q)
	const started = ` FROM _honker_live AS l JOIN _honkerx_job AS s ON s.job_id = l.id WHERE l.state = 'processing' AND l.id NOT IN (SELECT id FROM temp.ran)`
	if l.InOrder {
		require.Empty(t, lines(t, q, `SELECT l.id`+started+` AND EXISTS (SELECT 1 FROM temp.lived AS o WHERE o.key = s.key AND o.job_id < l.id)`), "not the first of its key")
	}
	if l.PerKey > 0 {
		require.Empty(t, lines(t, q, `SELECT s.key`+started+` GROUP BY s.key HAVING count(*) > 0 AND
  (SELECT count(*) FROM _honkerx_job AS r JOIN _honker_live AS m ON m.id = r.job_id WHERE r.key = s.key AND m.state = 'processing') > ?1`, l.PerKey), "too many of a key")
	}
	exec(t, q, `DROP TABLE temp.ran`)
	exec(t, q, `DROP TABLE temp.lived`)
}
