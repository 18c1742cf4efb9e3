package store_test

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/jobs"
	"github.com/honker-go/honker/internal/sqlite/store/schema"
)

func sweep(t *testing.T, q row.Querier, queue string, now int64) int {
	t.Helper()
	n, err := jobs.Jobs{}.SweepExpired(ctx, q, queue, now)
	require.NoError(t, err)
	return len(n)
}

// The sweep takes expired jobs that are waiting, as honker's sweep does, and expired jobs with a lapsed claim, which
// none of honker's statements would ever touch again. It leaves jobs with a valid claim alone.
func TestJobs_SweepExpired_LeavesHeldJobs(t *testing.T) {
	swept := 0
	eachTable(t, randomTables/4, func(t *testing.T, tx *sql.Tx, g table) {
		wantLive, wantDead := []fixture{}, map[int64]row.Job{}
		for _, r := range liveRows(t, tx) {
			if r.Queue == "a" && r.expired(g.now) && (r.State == "pending" || r.lapsed(g.now)) {
				wantDead[r.ID] = r.dead(row.ReasonExpired, g.now)
			} else {
				wantLive = append(wantLive, r)
			}
		}
		require.Equal(t, len(wantDead), sweep(t, tx, "a", g.now))
		require.Equal(t, wantLive, liveRows(t, tx))
		require.Equal(t, wantDead, deadRows(t, tx))
		require.Zero(t, sweep(t, tx, "a", g.now), "a second time")
		swept += len(wantDead)
	})
	requireMet(t, swept, "expired")
}

// A job expires at its second and isn't claimed in that second.
func TestDead_ExpiresAtSecond(t *testing.T) {
	tx := begin(t, openFresh(t))
	r := fixture{ID: 1, Queue: "a", Payload: "1", State: "pending", MaxAttempts: 3, ExpiresAt: sql.NullInt64{Int64: 10, Valid: true}}
	writeRows(t, tx, []fixture{r})
	require.Zero(t, sweep(t, tx, "a", 9))
	jobs, _, err := claim(tx, "a", "w", 1, 10, 20)
	require.NoError(t, err)
	require.Empty(t, jobs)
	require.Equal(t, 1, sweep(t, tx, "a", 10))
}

// A dead letter replaces an earlier dead row of the same job. Such a row may be left by a binding
// that crashed between two statements, and must not block the queue forever.
func TestDead_ReplacesRow(t *testing.T) {
	tx := begin(t, openFresh(t))
	writeRows(t, tx, []fixture{claimedRow(1, 5, 1)})
	exec(t, tx, `INSERT INTO _honker_dead (id, queue, payload, last_error) VALUES (1, 'a', 'half', 'half')`)
	_, _, err := claim(tx, "a", "w", 1, 10, 20)
	require.NoError(t, err)
	require.Equal(t, map[int64]row.Job{1: claimedRow(1, 5, 1).dead(row.ReasonExhausted, 10)}, deadRows(t, tx))
	require.Empty(t, liveRows(t, tx))
}

// Check names the broken invariants.
func TestCheck_NamesBroken(t *testing.T) {
	db := openFresh(t)
	for statement, rule := range map[string]string{
		`INSERT INTO _honker_live (id, queue, payload, state) VALUES (7, 'a', '1', 'processing')`: "a processing job has a worker and a deadline: row 7",
		`INSERT INTO _honker_live (id, queue, payload, worker_id) VALUES (7, 'a', '1', 'w')`:      "a pending job has neither worker nor deadline: row 7",
		`INSERT INTO _honker_live (id, queue, payload, state) VALUES (7, 'a', '1', 'done')`:       "a live job is pending, processing or held: row 7",
		`INSERT INTO _honkerx_job (job_id) VALUES (7)`:                                            "a row of _honkerx_job belongs to a live job: row 7",
		`INSERT INTO _honker_locks (rowid, name, owner, expires_at) VALUES (7, 'l', '', 1)`:       "a lock has an owner: row 7",
		`INSERT INTO _honkerx_minutes (minute, queue, acked) VALUES (7, 'a', 1)`:                  "the totals of a minute are the sums over its queues: row 7",
		`INSERT INTO _honkerx_audit (id, at_ms, verb, n) VALUES (7, 1, 'discard', 0)`:             "an audit entry has a verb, a time and a positive count: row 7",
		`INSERT INTO _honkerx_group_members VALUES (7, 'm', 'i', 1, 1)`:                           "a member belongs to a group: row 7",
	} {
		tx := begin(t, db)
		exec(t, tx, statement)
		broken, err := schema.Check(ctx, tx)
		require.NoError(t, err)
		require.Equal(t, []string{rule}, broken)
		require.NoError(t, tx.Rollback())
	}
	tx := begin(t, db)
	exec(t, tx, `INSERT INTO _honker_live (id, queue, payload) VALUES (7, 'a', '1')`)
	exec(t, tx, `INSERT INTO _honker_dead (id, queue, payload) VALUES (7, 'a', '1')`)
	broken, err := schema.Check(ctx, tx)
	require.NoError(t, err)
	require.Equal(t, []string{"a job is live or dead, not both: row 7"}, broken)
	exec(t, tx, `DELETE FROM _honker_dead`)
	exec(t, tx, `INSERT INTO _honkerx_groups (id, topic, name, cursor, turn, created_ms) VALUES (1, 't', 'g', 6, 2, 1)`)
	exec(t, tx, `INSERT INTO _honkerx_group_claims VALUES (1, 7, 0, 'm', 3, 1, 1, NULL)`)
	broken, err = schema.Check(ctx, tx)
	require.NoError(t, err)
	require.Equal(t, []string{
		"an event claimed by a group is not above the group's cursor: row 7",
		"the epoch of a group's claim is not above the group's epoch: row 7",
	}, broken)
}
