package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/jobs"
	"github.com/honker-go/honker/internal/sqlite/store/schema"
)

// deadJob adds a job with three attempts to queue "a" and dead-letters it in its first attempt.
func deadJob(t *testing.T, q row.Querier) int64 {
	t.Helper()
	_, err := jobs.Jobs{}.InsertOne(ctx, q, jobs.NewJob{Queue: "a", RunAt: 5, MaxAttempts: 3, CreatedAt: 5, Priority: 7}, `{"n":1}`)
	require.NoError(t, err)
	return die(t, q)
}

func requeue(t *testing.T, q row.Querier, r row.Requeue) row.Requeued {
	t.Helper()
	out, err := jobs.Jobs{}.Requeue(ctx, q, r, time.Unix(7, 0))
	require.NoError(t, err)
	broken, err := schema.Check(ctx, q)
	require.NoError(t, err)
	require.Empty(t, broken)
	return out
}

const revived = `SELECT id, queue, payload, state, priority, run_at, attempts, max_attempts, created_at FROM _honker_live`

// Every time a job is requeued, it keeps its ID and its attempts, and gets its original number of attempts in
// addition. Base is the number of attempts before the requeue.
func TestRequeue_AttemptsGrow(t *testing.T) {
	tx := begin(t, openFresh(t))
	id := deadJob(t, tx)
	require.Equal(t, row.Requeued{Queue: "a", Done: true}, requeue(t, tx, row.Requeue{ID: id, RunAt: row.Instant(5)}))
	require.Equal(t, `1|a|{"n":1}|pending|7|5|1|4|5`, value(t, tx, revived))
	require.Equal(t, `no|1`, value(t, tx, `SELECT last_error, base FROM _honkerx_job`))
	require.Empty(t, lines(t, tx, `SELECT id FROM _honker_dead`))

	require.Equal(t, id, die(t, tx))
	require.Equal(t, "1", value(t, tx, `SELECT base FROM _honkerx_dead_job`))
	requeue(t, tx, row.Requeue{ID: id, RunAt: row.Instant(5)})
	require.Equal(t, `1|a|{"n":1}|pending|7|5|2|5|5`, value(t, tx, revived), "three more, as at first")
	require.Equal(t, id, die(t, tx))
	requeue(t, tx, row.Requeue{ID: id, RunAt: row.Instant(9), Queue: "b", Attempts: 1})
	require.Equal(t, `1|b|{"n":1}|pending|7|9|3|4|5`, value(t, tx, revived))
	base, err := jobs.Jobs{}.Base(ctx, tx, id)
	require.NoError(t, err)
	require.EqualValues(t, 3, base)
}

// The base survives even if another binding deletes the live row before it inserts the dead row.
func TestRequeue_BaseSurvivesForeignDeath(t *testing.T) {
	tx := begin(t, openFresh(t))
	id := deadJob(t, tx)
	requeue(t, tx, row.Requeue{ID: id, RunAt: row.Instant(5)})
	exec(t, tx, `CREATE TEMP TABLE kept AS SELECT * FROM _honker_live`)
	exec(t, tx, `DELETE FROM _honker_live`)
	exec(t, tx, `INSERT INTO _honker_dead (id, queue, payload, attempts, max_attempts) SELECT id, queue, payload, 4, max_attempts FROM kept`)
	requeue(t, tx, row.Requeue{ID: id, RunAt: row.Instant(5)})
	require.Equal(t, "4|7", value(t, tx, `SELECT attempts, max_attempts FROM _honker_live`))
}

// A job's side row follows it to the dead letters and back, even if another binding has
// dead-lettered it.
func TestRequeue_SideRowSurvives(t *testing.T) {
	tx := begin(t, openFresh(t))
	id := deadJob(t, tx)
	requeue(t, tx, row.Requeue{ID: id, RunAt: row.Instant(5)})
	const side = `SELECT headers, key, batch, progress, checkpoint FROM `
	const carried = `{"tenant":"acme"}|acme|7|[1,2]|{"page":3}`
	exec(t, tx, `UPDATE _honkerx_job SET queue = 'a', slot = 1, priority = 7, run_at = 5, key = 'acme', batch = 7,
  headers = '{"tenant":"acme"}', progress = '[1,2]', checkpoint = '{"page":3}'`)

	require.Equal(t, id, die(t, tx))
	require.Equal(t, carried, value(t, tx, side+`_honkerx_dead_job`))
	requeue(t, tx, row.Requeue{ID: id, RunAt: row.Instant(9), Queue: "b"})
	require.Equal(t, carried, value(t, tx, side+`_honkerx_job`))
	require.Equal(t, "b|0|NULL|NULL", value(t, tx, `SELECT queue, slot, priority, run_at FROM _honkerx_job`))

	exec(t, tx, `DELETE FROM _honker_live`)
	exec(t, tx, `INSERT INTO _honker_dead (id, queue, payload) VALUES (?1, 'b', '1')`, id)
	require.Equal(t, carried, value(t, tx, side+`_honkerx_dead_job`))
	require.Empty(t, lines(t, tx, `SELECT job_id FROM _honkerx_gone`))
}

// A worker that claimed the job before it was requeued can't settle it afterward, by any method.
func TestRequeue_StaleWorkerFenced(t *testing.T) {
	tx := begin(t, openFresh(t))
	id := deadJob(t, tx)
	stale := row.Claim{ID: id, Worker: "w", Attempt: 1}
	requeue(t, tx, row.Requeue{ID: id, RunAt: row.Instant(5)})
	claimed, _, err := claim(tx, "a", "w", 1, 8, 90) // the same worker
	require.NoError(t, err)
	require.Len(t, claimed, 1)
	require.EqualValues(t, 2, claimed[0].Attempts)
	before := dump(t, tx)
	held, err := jobs.Jobs{}.Ack(ctx, tx, stale, 8)
	require.NoError(t, err)
	require.False(t, held)
	held, _, err = jobs.Jobs{}.Retry(ctx, tx, stale, 9, "no", 8)
	require.NoError(t, err)
	require.False(t, held)
	held, err = jobs.Jobs{}.DeadLetter(ctx, tx, stale, "no", 8)
	require.NoError(t, err)
	require.False(t, held)
	held, err = jobs.Jobs{}.PutBack(ctx, tx, stale, 0, 8)
	require.NoError(t, err)
	require.False(t, held)
	require.Equal(t, before, dump(t, tx))
}

// A dead job stays dead if another job has taken its unique key, and retakes the key if it is free.
func TestRequeue_UniqueKey(t *testing.T) {
	tx := begin(t, openFresh(t))
	first := keyed(t, tx, jobs.Unique{})
	require.Equal(t, first.ID, die(t, tx))
	second := keyed(t, tx, jobs.Unique{})
	before := dump(t, tx)
	require.Equal(t, row.Requeued{Queue: "a", Key: "k", TakenBy: second.ID}, requeue(t, tx, row.Requeue{ID: first.ID, RunAt: row.Instant(5)}))
	require.Equal(t, before, dump(t, tx))
	exec(t, tx, `DELETE FROM _honker_live WHERE id = ?1`, second.ID)
	require.True(t, requeue(t, tx, row.Requeue{ID: first.ID, RunAt: row.Instant(5)}).Done)
	require.Equal(t, row.PlacedExisting, keyed(t, tx, jobs.Unique{}).Result)
}

// Requeue leaves alone jobs that aren't dead, and jobs that an application has copied back under the same ID.
func TestRequeue_NotDead(t *testing.T) {
	tx := begin(t, openFresh(t))
	require.Equal(t, row.Requeued{}, requeue(t, tx, row.Requeue{ID: 99, RunAt: row.Instant(5)}))
	id := deadJob(t, tx)
	exec(t, tx, `INSERT INTO _honker_live (id, queue, payload) VALUES (?1, 'a', '2')`, id)
	out, err := jobs.Jobs{}.Requeue(ctx, tx, row.Requeue{ID: id, RunAt: row.Instant(5)}, time.Unix(7, 0))
	require.NoError(t, err)
	require.Equal(t, row.Requeued{Queue: "a", Live: true}, out)
	require.Equal(t, "2", value(t, tx, `SELECT payload FROM _honker_live`))
}

// Discard deletes only dead jobs. CancelMany deletes live jobs, and claimed jobs only on request.
// RunNow affects only scheduled jobs.
func TestRequeue_OthersByID(t *testing.T) {
	tx := begin(t, openFresh(t))
	dead := deadJob(t, tx)
	exec(t, tx, `INSERT INTO _honker_live (id, queue, payload, run_at, state, worker_id, claim_expires_at, attempts) VALUES
		(11, 'a', '1', 5, 'pending', NULL, NULL, 0), (12, 'b', '1', 99, 'pending', NULL, NULL, 0),
		(13, 'a', '1', 5, 'processing', 'w', 90, 1), (14, 'a', '1', 5, 'processing', 'w', 6, 1)`)
	all := []int64{dead, 11, 12, 13, 14, 15}
	got, err := jobs.Jobs{}.RunNow(ctx, tx, all, time.Unix(7, 0))
	require.NoError(t, err)
	require.Equal(t, []row.Change{{ID: 12, Queue: "b"}}, got)
	out, err := jobs.Jobs{}.CancelMany(ctx, tx, row.CancelJobs{IDs: all}, time.Unix(7, 0))
	require.NoError(t, err)
	require.Equal(t, []row.Change{{ID: 11, Queue: "a"}, {ID: 12, Queue: "b"}, {ID: 14, Queue: "a"}}, out.Jobs)
	out, err = jobs.Jobs{}.CancelMany(ctx, tx, row.CancelJobs{IDs: all, Running: true}, time.Unix(7, 0))
	require.NoError(t, err)
	require.Equal(t, []row.Change{{ID: 13, Queue: "a"}}, out.Jobs)
	out, err = jobs.Jobs{}.Discard(ctx, tx, all, row.KeepWaiters)
	require.NoError(t, err)
	require.Equal(t, []row.Change{{ID: dead, Queue: "a"}}, out.Jobs)
	require.Empty(t, lines(t, tx, `SELECT id FROM _honker_live UNION SELECT id FROM _honker_dead`))
}
