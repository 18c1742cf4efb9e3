package store_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/jobs"
	"github.com/honker-go/honker/internal/sqlite/store/schema"
)

// counting is a sqlite.Querier that counts its statements.
type counting struct {
	row.Querier
	statements int
}

func (c *counting) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	c.statements++
	return c.Querier.ExecContext(ctx, query, args...)
}

func (c *counting) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	c.statements++
	return c.Querier.QueryContext(ctx, query, args...)
}

// keep sets queue "a"'s retention for done and dead jobs.
func keep(t *testing.T, q row.Querier, done, dead row.Retention) {
	t.Helper()
	_, err := jobs.QueueRetentions{}.SetQueue(ctx, q, row.QueueRetention{Queue: "a", Done: done, Dead: dead})
	require.NoError(t, err)
}

func requireSound(t *testing.T, q row.Querier) {
	t.Helper()
	broken, err := schema.Check(ctx, q)
	require.NoError(t, err)
	require.Empty(t, broken)
}

// acks lists the ways to settle a job as done.
var acks = settles[:4]

// Acking a job in a queue that keeps done jobs preserves everything known about the job, and leaves
// no other rows for it.
func TestDone_Ack_Keeps(t *testing.T) {
	for _, s := range acks {
		t.Run(s.name, func(t *testing.T) {
			tx := held(t, openFresh(t), heldRow())
			keep(t, tx, row.Retention{MaxCount: 9}, row.Retention{})
			exec(t, tx, `UPDATE _honkerx_job SET unique_key = 'k', unique_until = 2, queue = 'a', headers = '{}', batch = 7 WHERE job_id = 1`)
			ok, err := s.perform(tx, mine, 9)
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, []string{`1|a|"p"|4|5|me|2|3|3|900|9000|first|k|{}|7`}, lines(t, tx, `SELECT job_id, queue, payload, priority, run_at, worker_id,
  attempts, max_attempts, created_at, expires_at, done_ms, last_error, unique_key, headers, batch FROM _honkerx_done`))
			require.Equal(t, []string{"2"}, lines(t, tx, `SELECT id FROM _honker_live`))
			require.Equal(t, []string{"2"}, lines(t, tx, `SELECT job_id FROM _honkerx_job`))
			requireSound(t, tx)

			ok, err = s.perform(tx, mine, 9)
			require.NoError(t, err)
			require.False(t, ok, "once")
			require.Equal(t, "1", value(t, tx, `SELECT done_kept FROM _honkerx_queues`))
		})
	}
}

// An ack with an invalid claim keeps nothing.
func TestDone_Ack_Fenced(t *testing.T) {
	for _, s := range acks {
		t.Run(s.name, func(t *testing.T) {
			tx := held(t, openFresh(t), heldRow())
			keep(t, tx, row.Retention{MaxCount: 9}, row.Retention{})
			before := dump(t, tx)
			for _, c := range []row.Claim{{ID: 1, Worker: "other", Attempt: 2}, {ID: 1, Worker: "me", Attempt: 1}} {
				if c.Worker == "me" && !s.fenced {
					continue
				}
				ok, err := s.perform(tx, c, 9)
				require.NoError(t, err)
				require.False(t, ok)
			}
			ok, err := s.perform(tx, mine, lastValid+1)
			require.NoError(t, err)
			require.False(t, ok)
			require.Equal(t, before, dump(t, tx))
		})
	}
}

// An ack in a queue that doesn't keep done jobs takes a single statement, even if other queues keep theirs.
func TestDone_PlainAck_OneStatement(t *testing.T) {
	for _, others := range []bool{false, true} {
		for _, s := range acks {
			tx := held(t, openFresh(t), heldRow())
			if others {
				_, err := jobs.QueueRetentions{}.SetQueue(ctx, tx, row.QueueRetention{Queue: "b", Done: row.Retention{MaxCount: 9}})
				require.NoError(t, err)
			}
			c := &counting{Querier: tx}
			ids := []int64{1}
			var err error
			switch s.name {
			case "ack":
				_, err = jobs.Jobs{}.Ack(ctx, c, mine, 9)
			case "ack of one attempt":
				_, err = jobs.Jobs{}.AckAttempt(ctx, c, ids, "me", 2, 9)
			case "ack of one attempt by ids":
				_, err = jobs.Jobs{}.AckAttemptIDs(ctx, c, ids, "me", 2, 9)
			case "ack of many":
				_, err = ackMany(c, "a", ids, "me", 9)
			}
			require.NoError(t, err)
			require.Equal(t, 1, c.statements, s.name)
			require.Equal(t, []string{"2"}, lines(t, tx, `SELECT id FROM _honker_live`))
			require.Empty(t, lines(t, tx, `SELECT job_id FROM _honkerx_done`))
		}
	}
	c := &counting{Querier: held(t, openFresh(t), heldRow())}
	n, err := jobs.Jobs{}.AckAll(ctx, c, `[1]`, "me", 9)
	require.NoError(t, err)
	require.Equal(t, [2]int{1, 1}, [2]int{n, c.statements})
}

// honker's ack of many jobs in any queue also keeps done jobs.
func TestDone_AckAll(t *testing.T) {
	for _, ids := range []string{`[1]`, `[1, 77]`, `"1"`} {
		tx := held(t, openFresh(t), heldRow())
		keep(t, tx, row.Retention{MaxCount: 9}, row.Retention{})
		n, err := jobs.Jobs{}.AckAll(ctx, tx, ids, "me", 9)
		require.NoError(t, err)
		require.Equal(t, 1, n, ids)
		require.Equal(t, []string{"1"}, lines(t, tx, `SELECT job_id FROM _honkerx_done`))
		requireSound(t, tx)
	}
}

// An acked batch may mix jobs from queues that keep done jobs and from other queues.
func TestDone_Ack_SeveralQueues(t *testing.T) {
	tx := begin(t, openFresh(t))
	keep(t, tx, row.Retention{MaxAge: time.Second}, row.Retention{})
	exec(t, tx, `INSERT INTO _honker_live (id, queue, payload, state, attempts, worker_id, claim_expires_at)
VALUES (1, 'a', '1', 'processing', 1, 'w', 20), (2, 'b', '1', 'processing', 1, 'w', 20), (3, 'a', '1', 'processing', 1, 'w', 20)`)
	n, err := jobs.Jobs{}.AckAttempt(ctx, tx, []int64{1, 2, 3, 4}, "w", 1, 9)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	require.Equal(t, []string{"1", "3"}, lines(t, tx, `SELECT job_id FROM _honkerx_done`))
	require.Empty(t, lines(t, tx, `SELECT id FROM _honker_live`))
	requireSound(t, tx)
}

// Once a queue holds twice its count of done jobs, each ack deletes the oldest.
func TestDone_Ack_TrimsAtTwice(t *testing.T) {
	tx := begin(t, openFresh(t))
	keep(t, tx, row.Retention{MaxCount: 2}, row.Retention{})
	for id := range int64(7) {
		exec(t, tx, `INSERT INTO _honker_live (id, queue, payload, state, attempts, worker_id, claim_expires_at)
VALUES (?1, 'a', '1', 'processing', 1, 'w', 20)`, id+1)
		ok, err := jobs.Jobs{}.Ack(ctx, tx, row.Claim{ID: id + 1, Worker: "w", Attempt: 1}, 9)
		require.NoError(t, err)
		require.True(t, ok)
		requireSound(t, tx)
	}
	require.Equal(t, []string{"4", "5", "6", "7"}, lines(t, tx, `SELECT job_id FROM _honkerx_done`))
}

// A job that was copied back under the same ID and acked again is kept in its latest form.
func TestDone_Ack_Again(t *testing.T) {
	tx := held(t, openFresh(t), heldRow())
	keep(t, tx, row.Retention{MaxCount: 9}, row.Retention{})
	for range 2 {
		ok, err := jobs.Jobs{}.Ack(ctx, tx, mine, 9)
		require.NoError(t, err)
		require.True(t, ok)
		requireSound(t, tx)
		again := heldRow()
		writeRows(t, tx, []fixture{again})
	}
	require.Equal(t, "1", value(t, tx, `SELECT done_kept FROM _honkerx_queues`))
}

// An ack fails and changes nothing if one of the application's triggers keeps the live row.
func TestDone_Ack_LiveRowKept(t *testing.T) {
	tx := held(t, openFresh(t), heldRow())
	keep(t, tx, row.Retention{MaxCount: 9}, row.Retention{})
	exec(t, tx, `CREATE TRIGGER app BEFORE DELETE ON _honker_live BEGIN SELECT RAISE(IGNORE); END`)
	before := dump(t, tx)
	_, err := jobs.Jobs{}.Ack(ctx, tx, mine, 9)
	require.ErrorContains(t, err, "a trigger keeps a job that is done from being removed")
	require.Equal(t, before, dump(t, tx))

	keep(t, tx, row.Retention{}, row.Retention{})
	before = dump(t, tx)
	_, err = jobs.Jobs{}.Ack(ctx, tx, mine, 9)
	require.ErrorContains(t, err, "a trigger keeps", "it was kept once")
	require.Equal(t, before, dump(t, tx))
}

// A retention is stored as a single row. Setting the same retention again writes nothing, and
// ending it keeps the done jobs.
func TestRetention_Queue(t *testing.T) {
	path := newPath(t)
	db := openBootstrapped(t, path)
	get := func() row.QueueRetention {
		r, err := jobs.QueueRetentions{}.Queues(ctx, db, "a")
		require.NoError(t, err)
		if len(r) == 0 {
			return row.QueueRetention{Queue: "a"}
		}
		return r[0]
	}
	require.Equal(t, row.QueueRetention{Queue: "a"}, get())
	done, dead := row.Retention{MaxAge: time.Minute}, row.Retention{MaxCount: 5, MaxAge: time.Second}
	keep(t, db, done, dead)
	require.Equal(t, row.QueueRetention{Queue: "a", Done: done, Dead: dead}, get())
	unchanged(t, path, func() { keep(t, db, done, dead) })
	exec(t, db, `INSERT INTO _honkerx_done (job_id, queue, payload, priority, run_at, attempts, max_attempts, created_at, done_ms) VALUES (1, 'a', '1', 0, 0, 1, 3, 0, 5)`)
	keep(t, db, row.Retention{}, row.Retention{})
	require.Equal(t, "NULL|NULL|1", value(t, db, `SELECT done_count, done_age_ms, done_kept FROM _honkerx_queues`))
	all, err := jobs.QueueRetentions{}.Queues(ctx, db, "")
	require.NoError(t, err)
	require.Equal(t, []row.QueueRetention{{Queue: "a"}}, all, "the job is still there")
	exec(t, db, `DELETE FROM _honkerx_done`)
	all, err = jobs.QueueRetentions{}.Queues(ctx, db, "")
	require.NoError(t, err)
	require.Empty(t, all)
	requireSound(t, db)
}

// The stricter of the count and age limits determines which jobs are kept. Dead jobs that other jobs are waiting for
// always stay.
func TestKept_Cutoff(t *testing.T) {
	tx := begin(t, openFresh(t))
	exec(t, tx, `INSERT INTO _honker_dead (id, queue, payload, died_at) VALUES
  (1, 'a', '1', 10), (2, 'a', '1', 30), (3, 'a', '1', 20), (4, 'a', '1', 30), (5, 'b', '1', 1), (6, 'a', '1', 30)`)
	over := func(r row.Retention) []int64 {
		c, err := jobs.KeptDead.Cutoff(ctx, tx, "a", r, 35)
		require.NoError(t, err)
		ids, err := jobs.SweepDead.Find(ctx, tx, row.Part{Name: "a", Through: c}, time.Time{}, 10)
		require.NoError(t, err)
		return ids
	}
	require.Empty(t, over(row.Retention{}))
	require.Empty(t, over(row.Retention{MaxCount: 5}))
	require.Equal(t, []int64{1, 3, 2}, over(row.Retention{MaxCount: 2}))
	require.Equal(t, []int64{1}, over(row.Retention{MaxAge: 15 * time.Second}), "15 s is not more than 15 s")
	require.Equal(t, []int64{1, 3}, over(row.Retention{MaxAge: 14 * time.Second, MaxCount: 5}))
	require.Equal(t, []int64{1, 3, 2}, over(row.Retention{MaxAge: 14 * time.Second, MaxCount: 2}))
	require.Equal(t, []int64{1, 3, 2, 4, 6}, over(row.Retention{MaxAge: time.Second}))

	exec(t, tx, `INSERT INTO _honkerx_after (job_id, waiter) VALUES (3, 99)`)
	c, err := jobs.KeptDead.Cutoff(ctx, tx, "a", row.Retention{MaxCount: 2}, 35)
	require.NoError(t, err)
	taken, err := jobs.SweepDead.Take(ctx, tx, row.Part{Name: "a", Through: c}, []int64{1, 2, 3, 4, 5, 6}, time.Time{}, 10)
	require.NoError(t, err)
	require.Equal(t, 2, taken.N)
	require.Equal(t, []string{"3", "4", "5", "6"}, lines(t, tx, `SELECT id FROM _honker_dead ORDER BY id`))
}

// Trimming a dead job deletes its side row too.
func TestKept_SideRows(t *testing.T) {
	tx := begin(t, openFresh(t))
	require.Equal(t, row.PlacedNew, keyed(t, tx, jobs.Unique{}).Result)
	id := die(t, tx)
	require.Equal(t, "1", value(t, tx, `SELECT count(*) FROM _honkerx_dead_job`))
	taken, err := jobs.SweepDead.Take(ctx, tx, row.Part{Name: "a", Through: row.Everything}, []int64{id}, time.Time{}, 10)
	require.NoError(t, err)
	require.Equal(t, 1, taken.N)
	for _, table := range []string{"_honker_dead", "_honkerx_dead_job", "_honkerx_gone", "_honkerx_unique", "_honkerx_job"} {
		require.Empty(t, lines(t, tx, `SELECT 1 FROM `+table), table)
	}
}

// Check reports inconsistent done jobs.
func TestCheck_BrokenDone(t *testing.T) {
	tx := begin(t, openFresh(t))
	keep(t, tx, row.Retention{MaxCount: 9}, row.Retention{})
	for rule, by := range map[string]string{
		"a done job is not live":                                  `INSERT INTO _honker_live (id, queue, payload) VALUES (1, 'a', '1')`,
		"a queue has the correct count of its retained done jobs": `UPDATE _honkerx_queues SET done_kept = 7`,
		"a queue that retains done jobs counts them":              `UPDATE _honkerx_queues SET done_kept = NULL`,
	} {
		exec(t, tx, `SAVEPOINT broken`)
		exec(t, tx, `INSERT INTO _honkerx_done (job_id, queue, payload, priority, run_at, attempts, max_attempts, created_at, done_ms) VALUES (1, 'a', '1', 0, 0, 1, 3, 0, 5)`)
		requireSound(t, tx)
		exec(t, tx, by)
		broken, err := schema.Check(ctx, tx)
		require.NoError(t, err)
		require.Len(t, broken, 1)
		require.Contains(t, broken[0], rule)
		exec(t, tx, `ROLLBACK TO broken`)
	}
}
