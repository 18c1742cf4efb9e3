package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/jobs"
	"github.com/honker-go/honker/internal/sqlite/store/schema"
)

// keyed enqueues a job with the key "k" in queue "a" at second 5.
func keyed(t *testing.T, q row.Querier, u jobs.Unique) row.Placed {
	t.Helper()
	u.Key, u.NowMS = "k", 5000
	n := jobs.NewJob{Queue: "a", RunAt: 5, MaxAttempts: 3, CreatedAt: 5}
	p, err := jobs.Jobs{}.InsertUnique(ctx, q, n, "1", u)
	require.NoError(t, err)
	return p
}

// die claims the only job and moves it to the dead letters.
func die(t *testing.T, q row.Querier) int64 {
	t.Helper()
	claimed, _, err := claim(q, "a", "w", 1, 5, 90)
	require.NoError(t, err)
	require.Len(t, claimed, 1)
	died, err := jobs.Jobs{}.DeadLetter(ctx, q, row.Claim{ID: claimed[0].ID, Worker: "w", Attempt: claimed[0].Attempts}, "no", 6)
	require.NoError(t, err)
	require.True(t, died)
	return claimed[0].ID
}

// revive makes a dead job live again, as an operator does, and retakes its key.
func revive(t *testing.T, q row.Querier, id int64, queue string) (key string, by int64) {
	t.Helper()
	key, by, err := jobs.Jobs{}.RetakeUnique(ctx, q, id, queue, 7, 7000)
	require.NoError(t, err)
	if by == 0 {
		exec(t, q, `INSERT INTO _honker_live (id, queue, payload, run_at, attempts, max_attempts)
			SELECT id, ?2, payload, run_at, attempts, attempts + 3 FROM _honker_dead WHERE id = ?1`, id, queue)
		exec(t, q, `DELETE FROM _honker_dead WHERE id = ?1`, id)
	}
	broken, err := schema.Check(ctx, q)
	require.NoError(t, err)
	require.Empty(t, broken)
	return key, by
}

// A revived job gets its key back if the key is free. Otherwise RetakeUnique returns the job that
// holds the key.
func TestUnique_Retake(t *testing.T) {
	tx := begin(t, openFresh(t))
	first := keyed(t, tx, jobs.Unique{})
	require.Equal(t, first.ID, die(t, tx))
	second := keyed(t, tx, jobs.Unique{})
	require.Equal(t, row.PlacedNew, second.Result)
	before := dump(t, tx)
	key, by := revive(t, tx, first.ID, "a")
	require.Equal(t, "k", key)
	require.Equal(t, second.ID, by)
	require.Equal(t, before, dump(t, tx), "nothing is changed")

	key, by = revive(t, tx, first.ID, "b")
	require.Equal(t, []any{"k", int64(0)}, []any{key, by}, "it is free in another queue")
	job, _, err := jobs.Jobs{}.Find(ctx, tx, first.ID, "")
	require.NoError(t, err)
	require.Equal(t, "k", job.Unique)

	require.Equal(t, second.ID, die(t, tx))
	_, by = revive(t, tx, second.ID, "a")
	require.Zero(t, by)
	require.Equal(t, second.ID, keyed(t, tx, jobs.Unique{}).ID)
}

// A key that was released before the job died doesn't return with it.
func TestUnique_Retake_Started(t *testing.T) {
	tx := begin(t, openFresh(t))
	first := keyed(t, tx, jobs.Unique{Started: true})
	require.Equal(t, first.ID, die(t, tx))
	second := keyed(t, tx, jobs.Unique{Started: true})
	key, by := revive(t, tx, first.ID, "a")
	require.Equal(t, []any{"k", int64(0)}, []any{key, by})
	require.Equal(t, second.ID, keyed(t, tx, jobs.Unique{}).ID)
	exec(t, tx, `DELETE FROM _honker_live WHERE id = ?1`, second.ID)
	require.Equal(t, row.PlacedNew, keyed(t, tx, jobs.Unique{}).Result)
}

// A job that dies before its first claim retakes a key that it was to hold until that claim. If its key is kept for
// some time, it still finds the key.
func TestUnique_Retake_NeverStarted(t *testing.T) {
	for _, u := range []jobs.Unique{{Started: true}, {UntilMS: 9000}} {
		tx := begin(t, openFresh(t))
		first := keyed(t, tx, u)
		exec(t, tx, `UPDATE _honker_live SET expires_at = 5`)
		require.Equal(t, 1, sweep(t, tx, "a", 5))
		_, by := revive(t, tx, first.ID, "a")
		require.Zero(t, by)
		require.Equal(t, first.ID, keyed(t, tx, u).ID)
	}
}

// A key that was released explicitly doesn't return after a later death, even if the job had it when it died earlier.
func TestUnique_Retake_Released(t *testing.T) {
	tx := begin(t, openFresh(t))
	first := keyed(t, tx, jobs.Unique{})
	for range 2 {
		require.Equal(t, first.ID, die(t, tx))
		_, by := revive(t, tx, first.ID, "a")
		require.Zero(t, by)
	}
	released, err := jobs.Jobs{}.ReleaseUnique(ctx, tx, "a", "k", time.Unix(7, 0))
	require.NoError(t, err)
	require.True(t, released)
	die(t, tx)
	key, _ := revive(t, tx, first.ID, "a")
	require.Empty(t, key)
}

// A plain job has no key to retake.
func TestUnique_Retake_Plain(t *testing.T) {
	tx := begin(t, openFresh(t))
	_, err := jobs.Jobs{}.InsertOne(ctx, tx, jobs.NewJob{Queue: "a", MaxAttempts: 1}, "1")
	require.NoError(t, err)
	id := die(t, tx)
	key, by := revive(t, tx, id, "a")
	require.Equal(t, []any{"", int64(0)}, []any{key, by})
}

// The key survives if another binding deletes the live row before it inserts the dead row, for as many jobs at a time
// as _honkerx_gone has slots.
func TestUnique_Retake_DeletedFirst(t *testing.T) {
	tx := begin(t, openFresh(t))
	n := jobs.NewJob{Queue: "a", RunAt: 5, MaxAttempts: 3, CreatedAt: 5}
	for i := range 64 {
		_, err := jobs.Jobs{}.InsertUnique(ctx, tx, n, "1", jobs.Unique{Key: fmt.Sprint("k", i), NowMS: 5000})
		require.NoError(t, err)
	}
	exec(t, tx, `CREATE TEMP TABLE gone AS SELECT * FROM _honker_live`)
	exec(t, tx, `DELETE FROM _honker_live`)
	require.Equal(t, "0", value(t, tx, `SELECT count(*) FROM _honkerx_unique`))
	exec(t, tx, `INSERT INTO _honker_dead (id, queue, payload) SELECT id, queue, payload FROM gone`)
	require.Equal(t, "64", value(t, tx, `SELECT count(DISTINCT unique_key) FROM _honkerx_dead_job`))
	key, by := revive(t, tx, 1, "a")
	require.Equal(t, []any{"k0", int64(0)}, []any{key, by})
	exec(t, tx, `DELETE FROM _honker_dead`)
	require.Equal(t, "0", value(t, tx, `SELECT count(*) FROM _honkerx_dead_job`))
}

// Check reports mismatched keys and jobs.
func TestCheck_Unique(t *testing.T) {
	db := openFresh(t)
	for statement, rule := range map[string]string{
		`UPDATE _honker_live SET state = 'held' WHERE id = 1`:    "a held job waits for its key, for other jobs, or for the job that has its unique key: row 1",
		`UPDATE _honker_live SET state = 'pending' WHERE id = 2`: "a job that waits for its unique key is held: row 2",
		`UPDATE _honkerx_unique SET job_id = 7`:                  "a unique key belongs to a live job, or has an end: row 7",
		`UPDATE _honkerx_job SET unique_key = 'x'`:               "the side row of a job with a unique key names the key: row 1",
		`UPDATE _honkerx_job SET queue = 'x' WHERE job_id = 2`:   "the side row of a job with a unique key names the key: row 2",
		`DELETE FROM _honkerx_unique`:                            "a live job has its unique key until it ends: row 1",
		`INSERT INTO _honkerx_dead_job (job_id) VALUES (7)`:      "a row of _honkerx_dead_job belongs to a dead job: row 7",
	} {
		tx := begin(t, db)
		keyed(t, tx, jobs.Unique{})
		_, _, err := claim(tx, "a", "w", 1, 5, 90)
		require.NoError(t, err)
		require.Equal(t, row.PlacedAgain, keyed(t, tx, jobs.Unique{Conflict: row.RunAgain}).Result)
		broken, err := schema.Check(ctx, tx)
		require.NoError(t, err)
		require.Empty(t, broken)
		exec(t, tx, statement)
		broken, err = schema.Check(ctx, tx)
		require.NoError(t, err)
		require.Contains(t, broken, rule, statement)
		require.NoError(t, tx.Rollback())
	}
}
