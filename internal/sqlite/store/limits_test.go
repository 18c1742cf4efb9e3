package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/jobs"
	"github.com/honker-go/honker/internal/sqlite/store/schema"
)

// In a file without limits, a job without a key takes one statement to enqueue, two to claim and
// one to ack. It fires only the side row trigger.
func TestClaim_Plain(t *testing.T) {
	tx := begin(t, openFresh(t))
	for range 2 {
		require.Equal(t, "_honkerx_job_gone", value(t, tx, `SELECT group_concat(name) FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = '_honker_live'`))
		q := &counting{Querier: tx}
		_, err := jobs.Jobs{}.InsertOne(ctx, q, jobs.NewJob{Queue: "a", RunAt: 1, MaxAttempts: 3, CreatedAt: 1}, "1")
		require.NoError(t, err)
		require.Equal(t, 1, q.statements)
		claimed, _, err := jobs.Jobs{}.ClaimAt(ctx, q, "a", "w", 1, 10_000, 20)
		require.NoError(t, err)
		require.Len(t, claimed, 1)
		require.Equal(t, 3, q.statements)
		acked, err := jobs.Jobs{}.Ack(ctx, q, row.Claim{ID: claimed[0].ID, Worker: "w", Attempt: 1}, 11)
		require.NoError(t, err)
		require.True(t, acked)
		require.Equal(t, 4, q.statements)

		// Removed limits leave nothing behind.
		_, err = jobs.Limits{}.Set(ctx, tx, "a", row.QueueLimits{Running: 1, PerKey: 1, Rate: row.StartRate{N: 1, Per: time.Millisecond, Burst: 1}})
		require.NoError(t, err)
		_, err = jobs.Limits{}.Set(ctx, tx, "a", row.QueueLimits{})
		require.NoError(t, err)
		fitAll(t, tx, "a")
	}
}

// Twenty thousand jobs held for their key don't slow down a claim.
func TestClaim_BehindHeldJobs(t *testing.T) {
	if slower > 1 {
		t.Skip("the race detector is slow")
	}
	const floor = 20 * time.Millisecond // well above the usual duration
	tx := begin(t, openFresh(t))
	free := func(n int) {
		t.Helper()
		exec(t, tx, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
INSERT INTO _honker_live (queue, priority, run_at, payload) SELECT 'a', -1, 1, '1' FROM n`, n)
	}
	free(500)
	plain := medianClaim(t, tx)
	_, err := jobs.Limits{}.Set(ctx, tx, "a", row.QueueLimits{PerKey: 1})
	require.NoError(t, err)
	exec(t, tx, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
INSERT INTO _honker_live (queue, run_at, payload) SELECT 'a', 1, '1' FROM n`)
	exec(t, tx, `INSERT INTO _honkerx_job (job_id, queue, key, slot) SELECT id, 'a', 'full', 0 FROM _honker_live WHERE priority = 0`)
	began, claims := time.Now(), 0
	for value(t, tx, `SELECT count(*) FROM _honker_live WHERE state = 'held'`) != "19999" {
		claims++
		_, _, err := claim(tx, "a", "w", 1, 1_000_000, 1_000_060)
		require.NoError(t, err)
		require.Less(t, claims, 1000)
	}
	t.Logf("%d claims held them in %v", claims, time.Since(began))
	free(500)
	limited := medianClaim(t, tx)
	t.Logf("plain %v, behind held jobs %v", plain, limited)
	require.Less(t, limited, floor)

	id := value(t, tx, `SELECT job_id FROM _honkerx_job WHERE slot = 1`)
	began = time.Now()
	exec(t, tx, `DELETE FROM _honker_live WHERE id = ?`, id)
	t.Logf("the end of the one that runs lets the next go in %v", time.Since(began))
	require.Equal(t, "19998", value(t, tx, `SELECT count(*) FROM _honker_live WHERE state = 'held'`))
}

// Check finds violations of the rules for limits.
func TestCheck_Limits(t *testing.T) {
	for broken, statements := range map[string][]string{
		"no job is held for a key that has room: row 2":                                                 {`UPDATE _honkerx_job SET slot = 2 WHERE job_id = 2`, `UPDATE _honkerx_job SET slot = 0 WHERE job_id = 1`, `UPDATE _honkerx_queues SET per_key = 2`},
		"the slot of a job matches its state: row 1":                                                    {`UPDATE _honkerx_job SET slot = 1 WHERE job_id = 1`},
		"the side row of a job with a key has its queue and a slot: row 1":                              {`UPDATE _honkerx_job SET slot = NULL WHERE job_id = 1`},
		"the triggers of keys exist if and only if a queue limits its keys or a key is paused: row 0":   {`DROP TRIGGER _honkerx_key_gate`},
		"the trigger of rates exists if and only if a queue has a rate: row 0":                          {`UPDATE _honkerx_queues SET rate_n = 1`},
		"a queue has the correct count of its paused keys: row 0":                                       {`UPDATE _honkerx_queues SET keys_paused = 1`},
		"claim_ms is set only during a claim: row 0":                                                    {`UPDATE _honkerx_queues SET claim_ms = 1`},
		"the trigger of pauses and limits exists if and only if a queue is paused or has limits: row 0": {`UPDATE _honkerx_queues SET running = 1`},
	} {
		tx := begin(t, openFresh(t))
		_, err := jobs.Limits{}.Set(ctx, tx, "a", row.QueueLimits{PerKey: 1})
		require.NoError(t, err)
		for range 2 {
			id, err := jobs.Jobs{}.InsertOne(ctx, tx, jobs.NewJob{Queue: "a", RunAt: 1, MaxAttempts: 3, CreatedAt: 1}, "1")
			require.NoError(t, err)
			require.NoError(t, jobs.Jobs{}.SetSides(ctx, tx, "a", jobs.Side{Key: "k"}, []int64{id}))
		}
		found, err := schema.Check(ctx, tx)
		require.NoError(t, err)
		require.Empty(t, found)
		for _, s := range statements {
			exec(t, tx, s)
		}
		found, err = schema.Check(ctx, tx)
		require.NoError(t, err)
		require.Contains(t, found, broken)
	}
}

// fitAll adjusts all of a queue's jobs to changed limits.
func fitAll(t *testing.T, q row.Querier, queue string) {
	t.Helper()
	for more := true; more; {
		var err error
		more, err = jobs.Limits{}.FitSome(ctx, q, queue, 100, 1_000_000)
		require.NoError(t, err)
	}
}
