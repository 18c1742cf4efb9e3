package process_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

func init() {
	children["unique producer"] = produceUnique
	children["unique worker"] = workUnique
}

// Each increment of a counter is committed together with an enqueue. done is the highest number
// with which a handler has started, and runs contains the running job of each counter.
var uniqueTables = []string{
	`CREATE TABLE counters (name TEXT PRIMARY KEY, n BIGINT NOT NULL DEFAULT 0, done BIGINT NOT NULL DEFAULT 0)`,
	`CREATE TABLE runs (name TEXT PRIMARY KEY, job BIGINT NOT NULL)`,
	`CREATE TABLE faults (what TEXT)`,
}

const counterNames = 3

type increment struct {
	Name string
	N    int
}

var errUndone = errors.New("rolled back")

// produceUnique increments counters until it is killed. It rolls back some of the transactions.
func produceUnique() {
	a, db := testkit.OpenChild(nil)
	q := honker.NewQueue[increment](db, "jobs", nil)
	draw := testkit.Rand(a.Seed, 0)
	testkit.Say("ready")
	for testkit.ChildContext().Err() == nil {
		in := increment{Name: fmt.Sprint("c", draw.IntN(counterNames))}
		undo := draw.IntN(4) == 0
		err := db.Tx(context.Background(), func(ctx context.Context, tx *sql.Tx) error {
			row := tx.QueryRowContext(ctx, `UPDATE counters SET n = n + 1 WHERE name = $1 RETURNING n`, in.Name)
			if err := row.Scan(&in.N); err != nil {
				return err
			}
			_, err := q.EnqueueTx(ctx, tx, in, honker.Unique(in.Name, &honker.Uniqueness{Conflict: honker.RunAgain}))
			if err == nil && undo {
				return errUndone
			}
			return err
		})
		if !errors.Is(err, errUndone) {
			testkit.Must(err)
		}
	}
	testkit.Must(db.Close())
}

// workUnique handles increments until it is killed.
func workUnique() {
	_, db := testkit.OpenChild(nil)
	q := honker.NewQueue[increment](db, "jobs", nil)
	testkit.Say("ready")
	testkit.Must(q.Work(testkit.ChildContext(), func(ctx context.Context, job *honker.Job[increment]) error { return runUnique(ctx, db, job) },
		&honker.WorkOptions{Workers: 4, Lease: time.Second}))
	testkit.Must(db.Close())
}

// runUnique is a handler with a transaction at its start and another at its end. It may be killed
// between them. A row left in runs must belong to the same job or to a job that no longer exists. A
// handler that was suspended beyond its lease is not at fault, since another attempt of its job is
// running.
func runUnique(ctx context.Context, db *honker.DB, job *honker.Job[increment]) error {
	err := db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, beside := tx.ExecContext(ctx, testkit.On(tx, `INSERT INTO faults SELECT 'job ' || r.job || ' runs beside another' FROM runs AS r
WHERE r.name = $1 AND r.job <> $2 AND EXISTS (SELECT 1 FROM _honker_live WHERE id = r.job)
  AND EXISTS (SELECT 1 FROM _honker_live WHERE id = $2 AND attempts = $3 AND state = `+testkit.Either(`'processing'`, `1`)+`)`),
			job.Args.Name, job.ID, job.Attempts)
		_, runs := tx.ExecContext(ctx, `INSERT INTO runs (name, job) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET job = excluded.job`, job.Args.Name, job.ID)
		_, done := tx.ExecContext(ctx, `UPDATE counters SET done = $1 WHERE name = $2 AND done < $1`, job.Args.N, job.Args.Name)
		return errors.Join(beside, runs, done)
	})
	if err != nil {
		return err
	}
	_ = testkit.Within(ctx, nil, time.Duration(job.ID%5)*time.Millisecond)
	if job.ID%7 == 0 && job.Attempts == 1 {
		return honker.RetryAfter(0, errUndone)
	}
	return nil
}

// Producers and workers are killed all the time. Two jobs with the same key never run at the same
// time, each increment is followed by a run, and no key remains taken.
func TestProcess_Unique_Kills(t *testing.T) {
	path, db := openShared(t)
	ctx := testkit.Context(t, time.Minute)
	testkit.ExecAll(t, db.SQL(), uniqueTables...)
	for i := range counterNames {
		testkit.Exec(t, db, `INSERT INTO counters (name) VALUES ($1)`, fmt.Sprint("c", i))
	}
	kills := killAtRandom(t, path, db, 60*time.Millisecond, "unique producer", "unique producer", "unique worker", "unique worker")

	q := honker.NewQueue[increment](db, "jobs", nil)
	stop := testkit.Work(t, q, func(ctx context.Context, job *honker.Job[increment]) error { return runUnique(ctx, db, job) }, nil)
	testkit.Eventually(t, testkit.Timeout, "all jobs handled", func() bool {
		return testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live`) == 0
	})
	require.NoError(t, stop())
	require.NoError(t, db.Check(ctx))
	counters, err := testkit.Rows(db.SQL(), `SELECT * FROM counters`)
	require.NoError(t, err)
	t.Logf("%d kills; counters, increments, newest run: %q", kills, counters)
	requireNoFaults(t, db)
	require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM counters WHERE n <> done OR n = 0`), "%q", counters)
	require.Zero(t, testkit.QueryInt(t, db.SQL(), testkit.CountUnique))
	require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_dead`))
}
