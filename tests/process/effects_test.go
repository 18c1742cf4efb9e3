//go:build unix

package process_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

func init() { children["moody worker"] = workMoodily }

// workMoodily inserts a row for each job in the transaction of the ack, and then ends in a random
// way.
func workMoodily() {
	a, db := testkit.OpenChild(nil)
	luck := testkit.Rand(a.Seed, 1)
	q := honker.NewQueue[int64](db, "jobs", &honker.QueueOptions{MaxAttempts: 1000, Backoff: honker.Constant(0), Timeout: 100 * time.Millisecond})
	testkit.Must(q.WorkTx(testkit.ChildContext(), func(ctx context.Context, tx *sql.Tx, job *honker.Job[int64]) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO effects VALUES ($1)`, job.ID); err != nil {
			if strings.Contains(strings.ToUpper(err.Error()), "UNIQUE") {
				return honker.Reject(err) // the row exists from an earlier attempt
			}
			return err
		}
		switch luck.IntN(40) {
		case 0, 1, 2:
			return honker.RetryAfter(0, errors.New("not yet"))
		case 3:
			return honker.Reject(errors.New("never"))
		case 4:
			panic("oh")
		case 5:
			<-ctx.Done() // too slow, and does not report the error
		case 6:
			return job.AckTx(ctx, tx)
		}
		return nil
	}, &honker.WorkOptions{Workers: 1, Lease: time.Second}))
	testkit.Must(db.Close())
}

// Each completed job has exactly one row and each dead job has none, however its handlers end and
// however often the process is killed.
func TestWorker_WorkTx_EffectOnce(t *testing.T) {
	jobs, kills := 2000, 20
	if testing.Short() {
		jobs, kills = brief(500), brief(4)
	}
	path, db := openShared(t)
	seed := testkit.Seed(t)
	luck := testkit.Rand(seed, 0)
	testkit.ExecAll(t, db.SQL(), `CREATE TABLE effects (job BIGINT PRIMARY KEY)`)
	q := honker.NewQueue[int64](db, "jobs", nil)
	ids, err := q.EnqueueMany(context.Background(), make([]int64, jobs), honker.MaxAttempts(1000))
	require.NoError(t, err)
	var workers [2]*testkit.Child
	start := func(i int) {
		workers[i] = testkit.StartChild(t, "moody worker", testkit.Task{Path: path, Seed: luck.Uint64()})
	}
	start(0)
	start(1)
	over := func() int64 {
		return testkit.QueryInt(t, db.SQL(), `SELECT (SELECT count(*) FROM effects) + (SELECT count(*) FROM _honker_dead)`)
	}
	for i := range kills {
		goal := min(over()+1+luck.Int64N(int64(jobs/kills)), int64(jobs-1))
		testkit.Eventually(t, testkit.Timeout, "some more are over", func() bool { return over() >= goal })
		workers[i%2].Kill()
		start(i % 2)
	}
	testkit.Eventually(t, testkit.Timeout, "all are over", func() bool { return testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live`) == 0 })
	for _, w := range workers {
		require.Empty(t, w.End())
	}
	dead := testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_dead WHERE last_error LIKE '%never%'`)
	require.Equal(t, dead, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_dead`), "and none died of anything else")
	require.Positive(t, dead)
	require.EqualValues(t, len(ids), over())
	require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM effects JOIN _honker_dead ON id = job`))
}
