package process_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

func init() {
	children["limits producer"] = produceLimited
	children["limits worker"] = workLimited
	children["limits operator"] = operateLimits
}

// The limits of the queues "bounded" and "ordered" are fixed. Those of "changing" are changed at
// random.
const (
	boundRunning = 5
	boundPerKey  = 2
)

var limitedQueues = []string{"bounded", "ordered", "changing"}

// made holds the committed jobs, and ran the jobs whose handler has finished. limitsTriggers record each
// start that violates a limit at the moment it happens, in any process.
var limitsTables = []string{
	`CREATE TABLE made (job BIGINT PRIMARY KEY)`,
	`CREATE TABLE ran (job BIGINT PRIMARY KEY)`,
	`CREATE TABLE faults (what TEXT)`,
}

// limitsTriggers returns the triggers. Their conditions are about a job that starts.
func limitsTriggers() (all []string) {
	jobs, running, keyed := "_honker_live", "state = 'processing'", "(SELECT s.key, l.* FROM _honker_live AS l JOIN _honkerx_job AS s ON s.job_id = l.id)"
	if !testkit.OnFile() {
		jobs, running, keyed = "job", "state = 1", "job"
	}
	key := "(SELECT key FROM " + keyed + " AS n WHERE n.id = NEW.id)"
	for i, f := range []struct{ queue, condition, fault string }{
		{"bounded", fmt.Sprintf("(SELECT count(*) FROM %s WHERE queue = 'bounded' AND %s) > %d", jobs, running, boundRunning), "in a full queue"},
		{"bounded", fmt.Sprintf("(SELECT count(*) FROM %s AS o WHERE o.queue = 'bounded' AND o.key = %s AND %s) > %d", keyed, key, running, boundPerKey), "in a full key"},
		{"ordered", fmt.Sprintf("EXISTS (SELECT 1 FROM %s AS o WHERE o.queue = 'ordered' AND o.key = %s AND o.id < NEW.id)", keyed, key), "before an earlier one"},
	} {
		name, when := fmt.Sprint("see_", i), fmt.Sprintf("NEW.queue = '%s' AND NEW.%s", f.queue, running)
		fault := fmt.Sprintf("INSERT INTO faults SELECT 'job ' || NEW.id || ' starts %s' WHERE %s;", f.fault, f.condition)
		if testkit.OnFile() {
			all = append(all, fmt.Sprintf("CREATE TRIGGER %s AFTER UPDATE OF state ON %s WHEN %s BEGIN %s END", name, jobs, when, fault))
		} else {
			all = append(all, fmt.Sprintf("CREATE FUNCTION %s() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN %s RETURN NULL; END $$", name, fault),
				fmt.Sprintf("CREATE TRIGGER %s AFTER UPDATE OF state ON %s FOR EACH ROW WHEN (%s) EXECUTE FUNCTION %s()", name, jobs, when, name))
		}
	}
	return all
}

// produceLimited enqueues jobs until it is killed. It rolls back some of the transactions.
func produceLimited() {
	a, db := testkit.OpenChild(nil)
	draw := testkit.Rand(a.Seed, 0)
	testkit.Say("ready")
	for testkit.ChildContext().Err() == nil {
		q := honker.NewQueue[int](db, limitedQueues[draw.IntN(len(limitedQueues))], nil)
		opts := []honker.EnqueueOption{honker.MaxAttempts(1000), honker.Priority(draw.IntN(3))}
		if key := draw.IntN(4); key > 0 {
			opts = append(opts, honker.Key(fmt.Sprint("k", key)))
		}
		undo := draw.IntN(5) == 0
		err := db.Tx(context.Background(), func(ctx context.Context, tx *sql.Tx) error {
			ids, err := q.EnqueueManyTx(ctx, tx, make([]int, 1+draw.IntN(3)), opts...)
			for _, id := range ids {
				if err == nil {
					_, err = tx.ExecContext(ctx, `INSERT INTO made VALUES ($1)`, id)
				}
			}
			if err == nil && undo {
				return errUndone
			}
			return err
		})
		if !errors.Is(err, errUndone) {
			testkit.Must(err)
		}
		_ = testkit.Within(testkit.ChildContext(), nil, time.Duration(draw.IntN(15))*time.Millisecond)
	}
	testkit.Must(db.Close())
}

// workLimited runs jobs of all queues until it is killed.
func workLimited() {
	_, db := testkit.OpenChild(nil)
	testkit.Say("ready")
	w := testkit.Workers(db, nil, limitedQueues, func(ctx context.Context, job *honker.Job[int]) error { return runLimited(ctx, db, job) })
	testkit.Must(w.Work(testkit.ChildContext(), &honker.WorkOptions{Workers: 4, Lease: time.Second}))
	testkit.Must(db.Close())
}

// runLimited is a handler that may be killed, fail or be retried with a delay.
func runLimited(ctx context.Context, db *honker.DB, job *honker.Job[int]) error {
	_ = testkit.Within(ctx, nil, time.Duration(job.ID%5)*time.Millisecond)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if job.Attempts == 1 {
		switch job.ID % 41 {
		case 3:
			return honker.RetryAfter(0, errUndone)
		case 7:
			return honker.RetryAfter(time.Second, errUndone)
		}
	}
	return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO ran VALUES ($1) ON CONFLICT DO NOTHING`, job.ID)
		return err
	})
}

// operateLimits changes limits and pauses keys until it is killed.
func operateLimits() {
	a, db := testkit.OpenChild(nil)
	draw := testkit.Rand(a.Seed, 0)
	ctx := context.Background()
	changing, bounded := honker.NewQueue[int](db, "changing", nil), honker.NewQueue[int](db, "bounded", nil)
	testkit.Say("ready")
	for testkit.ChildContext().Err() == nil {
		testkit.Must(changing.SetLimits(ctx, honker.Limits{Running: draw.IntN(3), PerKey: draw.IntN(3), InOrder: draw.IntN(4) == 0}))
		key := fmt.Sprint("k", 1+draw.IntN(3))
		for _, q := range []*honker.Queue[int]{changing, bounded} {
			var err error
			if draw.IntN(2) == 0 {
				_, err = q.Pause(ctx, &honker.PauseOptions{Key: key})
			} else {
				_, err = q.ResumeKey(ctx, key)
			}
			testkit.Must(err)
		}
		_ = testkit.Within(testkit.ChildContext(), nil, time.Duration(draw.IntN(40))*time.Millisecond)
	}
	testkit.Must(db.Close())
}

// Producers, workers and operators are killed all the time. No job ever starts beyond a limit,
// every enqueued job is done, and none remains held.
func TestProcess_Limits_Kills(t *testing.T) {
	path, db := openShared(t)
	ctx := testkit.Context(t, 2*time.Minute)
	testkit.ExecAll(t, db.SQL(), slices.Concat(limitsTables, limitsTriggers())...)
	require.NoError(t, honker.NewQueue[int](db, "bounded", nil).SetLimits(ctx, honker.Limits{Running: boundRunning, PerKey: boundPerKey}))
	require.NoError(t, honker.NewQueue[int](db, "ordered", nil).SetLimits(ctx, honker.Limits{InOrder: true}))
	kills := killAtRandom(t, path, db, 100*time.Millisecond, "limits producer", "limits worker", "limits worker", "limits worker", "limits operator")

	for _, name := range []string{"changing", "bounded"} {
		for key := range 3 {
			_, err := honker.NewQueue[int](db, name, nil).ResumeKey(ctx, fmt.Sprint("k", 1+key))
			require.NoError(t, err)
		}
	}
	w := testkit.Workers(db, nil, limitedQueues, func(ctx context.Context, job *honker.Job[int]) error { return runLimited(ctx, db, job) })
	stop := testkit.Background(t, func(ctx context.Context) error { return w.Work(ctx, &honker.WorkOptions{Workers: 8}) })
	testkit.Eventually(t, time.Minute, "all jobs handled", func() bool {
		return testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live`) == 0
	})
	require.NoError(t, stop())
	require.NoError(t, db.Check(ctx))
	made := testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM made`)
	t.Logf("%d kills, %d jobs", kills, made)
	requireNoFaults(t, db)
	require.NotZero(t, made)
	require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM made WHERE job NOT IN (SELECT job FROM ran)`))
	require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_dead`))
}
