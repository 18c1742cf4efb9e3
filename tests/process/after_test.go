package process_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/internal/testkit"
)

func init() {
	children["after producer"] = produceAfter
	children["after worker"] = workAfter
	children["after operator"] = operateAfter
}

var afterQueues = []string{"first", "second"}

// made holds the committed jobs and needs their dependencies. ran holds the jobs whose effect and
// ack were committed. faults holds jobs that started before a job they depend on.
var afterTables = []string{
	`CREATE TABLE made (job BIGINT PRIMARY KEY)`,
	`CREATE TABLE needs (job BIGINT, before BIGINT)`,
	`CREATE INDEX needs_job ON needs (job)`,
	`CREATE TABLE ran (job BIGINT PRIMARY KEY)`,
	`CREATE TABLE faults (what TEXT)`,
}

// produceAfter enqueues fan-outs, fan-ins, chains and batches until it is killed. It rolls back
// some of the transactions.
func produceAfter() {
	a, db := testkit.OpenChild(nil)
	draw := testkit.Rand(a.Seed, 0)
	testkit.Say("ready")
	for testkit.ChildContext().Err() == nil {
		undo, batched, n := draw.IntN(5) == 0, draw.IntN(3) == 0, 1+draw.IntN(4)
		first, second := draw.IntN(2), draw.IntN(2)
		err := db.Tx(context.Background(), func(ctx context.Context, tx *sql.Tx) error {
			if err := fanIn(ctx, db, tx, afterQueues[first], afterQueues[second], n, batched); err != nil || !undo {
				return err
			}
			return errUndone
		})
		if !errors.Is(err, errUndone) {
			testkit.Must(err)
		}
		_ = testkit.Within(testkit.ChildContext(), nil, time.Duration(draw.IntN(15))*time.Millisecond)
	}
	testkit.Must(db.Close())
}

// fanIn enqueues n jobs, a job that depends on all of them, and a job that depends on that job.
func fanIn(ctx context.Context, db *honker.DB, tx *sql.Tx, first, second string, n int, batched bool) error {
	q, next := honker.NewQueue[int](db, first, nil), honker.NewQueue[int](db, second, nil)
	opts := []honker.EnqueueOption{honker.MaxAttempts(1000)}
	var batch *honker.Batch
	if batched {
		var err error
		if batch, err = db.NewBatchTx(ctx, tx, nil); err != nil {
			return err
		}
		opts = append(opts, honker.InBatch(batch.ID))
	}
	ids, err := q.EnqueueManyTx(ctx, tx, make([]int, n), opts...)
	if err != nil {
		return err
	}
	after := honker.After(ids...)
	if batched {
		after = honker.AfterBatch(batch.ID)
		if err := batch.SealTx(ctx, tx); err != nil {
			return err
		}
	}
	joint, err := next.EnqueueTx(ctx, tx, 0, after, honker.MaxAttempts(1000))
	if err != nil {
		return err
	}
	last, err := q.EnqueueTx(ctx, tx, 0, honker.After(joint), honker.MaxAttempts(1000))
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := note(ctx, tx, id, joint); err != nil {
			return err
		}
	}
	return errors.Join(note(ctx, tx, joint, last), note(ctx, tx, last, 0))
}

// note records, in the transaction of the enqueues, that next depends on job. next is 0 if no job
// depends on it.
func note(ctx context.Context, tx *sql.Tx, job, next int64) error {
	if _, err := tx.ExecContext(ctx, `INSERT INTO made VALUES ($1)`, job); err != nil || next == 0 {
		return err
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO needs VALUES ($1, $2)`, next, job)
	return err
}

// workAfter runs jobs of all queues until it is killed.
func workAfter() {
	_, db := testkit.OpenChild(nil)
	testkit.Say("ready")
	w := testkit.Workers(db, nil, afterQueues, func(ctx context.Context, job *honker.Job[int]) error { return runAfter(ctx, db, job) })
	testkit.Must(w.Work(testkit.ChildContext(), &honker.WorkOptions{Workers: 4, Lease: time.Second}))
	testkit.Must(db.Close())
}

// runAfter is a handler that may be killed, fail or reject its job. Half of its jobs are
// acknowledged in the transaction of their effect, the others by the worker.
func runAfter(ctx context.Context, db *honker.DB, job *honker.Job[int]) error {
	_ = testkit.Within(ctx, nil, time.Duration(job.ID%5)*time.Millisecond)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if job.Attempts == 1 && job.ID%11 == 3 {
		return honker.Reject(errUndone)
	}
	return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO faults SELECT 'job ' || job || ' runs before ' || before FROM needs
WHERE job = $1 AND before NOT IN (SELECT job FROM ran)`, job.ID)
		if err == nil {
			_, err = tx.ExecContext(ctx, `INSERT INTO ran VALUES ($1) ON CONFLICT DO NOTHING`, job.ID)
		}
		if err != nil || job.ID%2 == 0 {
			return err
		}
		return job.AckTx(ctx, tx)
	})
}

// operateAfter requeues dead letters until it is killed.
func operateAfter() {
	_, db := testkit.OpenChild(nil)
	testkit.Say("ready")
	for testkit.ChildContext().Err() == nil {
		_, err := admin.Requeue(context.Background(), db, admin.JobFilter{All: true}, nil)
		testkit.Must(err)
		_ = testkit.Within(testkit.ChildContext(), nil, 100*time.Millisecond)
	}
	testkit.Must(db.Close())
}

// Producers, workers and operators are killed all the time. No job starts before its dependencies
// are done, and every job is done in the end.
func TestProcess_After_Kills(t *testing.T) {
	path, db := openShared(t)
	ctx := testkit.Context(t, 2*time.Minute)
	testkit.ExecAll(t, db.SQL(), afterTables...)
	kills := killAtRandom(t, path, db, 100*time.Millisecond, "after producer", "after worker", "after worker", "after operator")

	w := testkit.Workers(db, nil, afterQueues, func(ctx context.Context, job *honker.Job[int]) error { return runAfter(ctx, db, job) })
	stop := testkit.Background(t, func(ctx context.Context) error { return w.Work(ctx, &honker.WorkOptions{Workers: 8}) })
	testkit.Eventually(t, time.Minute, "all jobs handled", func() bool {
		_, err := admin.Requeue(ctx, db, admin.JobFilter{All: true}, nil)
		require.NoError(t, err)
		return testkit.QueryInt(t, db.SQL(), `SELECT (SELECT count(*) FROM _honker_live) + (SELECT count(*) FROM _honker_dead)`)+testkit.QueryInt(t, db.SQL(), testkit.CountPending) == 0
	})
	require.NoError(t, stop())
	require.NoError(t, db.Check(ctx))
	made := testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM made`)
	t.Logf("%d kills, %d jobs", kills, made)
	requireNoFaults(t, db)
	require.NotZero(t, made)
	for what, query := range map[string]string{
		"did not run":  `SELECT count(*) FROM made WHERE job NOT IN (SELECT job FROM ran)`,
		"edges":        testkit.CountEdges,
		"open batches": testkit.CountBatches,
	} {
		require.Zero(t, testkit.QueryInt(t, db.SQL(), query), what)
	}
}
