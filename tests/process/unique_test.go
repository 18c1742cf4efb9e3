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

// A counter has as many increments as were committed, each with an enqueue; done is the newest
// that a handler has begun with. runs has the job that a handler of the counter works on.
const uniqueTables = `CREATE TABLE counters (name TEXT PRIMARY KEY, n INTEGER NOT NULL DEFAULT 0, done INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
CREATE TABLE runs (name TEXT PRIMARY KEY, job INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE faults (what TEXT)`

const counterNames = 3

type increment struct {
	Name string
	N    int
}

var errUndone = errors.New("rolled back")

// produceUnique increments counters for ever. Of the transactions some are rolled back.
func produceUnique() {
	a, db := testkit.OpenChild(nil)
	q := honker.NewQueue[increment](db, "jobs", nil)
	draw := testkit.Rand(a.Seed, 0)
	testkit.Say("ready")
	for testkit.ChildContext().Err() == nil {
		in := increment{Name: fmt.Sprint("c", draw.IntN(counterNames))}
		undo := draw.IntN(4) == 0
		err := db.Tx(context.Background(), func(ctx context.Context, tx *sql.Tx) error {
			row := tx.QueryRowContext(ctx, `UPDATE counters SET n = n + 1 WHERE name = ? RETURNING n`, in.Name)
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

// workUnique handles increments for ever, and notes a counter that another handler works on.
func workUnique() {
	_, db := testkit.OpenChild(nil)
	q := honker.NewQueue[increment](db, "jobs", nil)
	testkit.Say("ready")
	testkit.Must(q.Work(testkit.ChildContext(), func(ctx context.Context, job *honker.Job[increment]) error { return runUnique(ctx, db, job) },
		&honker.WorkOptions{Workers: 4, Lease: time.Second}))
	testkit.Must(db.Close())
}

// runUnique is a handler: it begins by a transaction and ends by another, and between them it can
// be killed. What a killed one has left is the same job's, or that of one that is gone. One that stood still for longer
// than its lease finds no job of this attempt, and is no fault.
func runUnique(ctx context.Context, db *honker.DB, job *honker.Job[increment]) error {
	err := db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for _, s := range []string{
			`INSERT INTO faults SELECT 'job ' || ?2 || ' runs beside ' || r.job FROM runs AS r JOIN _honker_live AS l ON l.id = r.job
			  WHERE r.name = ?1 AND r.job <> ?2 AND EXISTS (SELECT 1 FROM _honker_live WHERE id = ?2 AND state = 'processing' AND attempts = ?4)`,
			`INSERT OR REPLACE INTO runs (name, job) VALUES (?1, ?2)`,
			`UPDATE counters SET done = max(done, ?3) WHERE name = ?1 AND ?2`,
		} {
			if _, err := tx.ExecContext(ctx, s, job.Args.Name, job.ID, job.Args.N, job.Attempts); err != nil {
				return err
			}
		}
		return nil
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

// Of producers and workers that are killed all the time, never do two jobs of a key run at once,
// no increment is left without a run that began after it, and no key is left behind.
func TestProcess_Unique_Kills(t *testing.T) {
	path, db := testkit.OpenShared(t)
	ctx := testkit.Context(t, time.Minute)
	_, err := db.SQL().ExecContext(ctx, uniqueTables)
	require.NoError(t, err)
	for i := range counterNames {
		testkit.Exec(t, db, `INSERT INTO counters (name) VALUES (?)`, fmt.Sprint("c", i))
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
	require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honkerx_unique`))
	require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_dead`))
}
