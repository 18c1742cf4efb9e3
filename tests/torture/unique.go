//go:build unix

package torture

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

// Each counter has a job with its name as the unique key. tally is the number of increments, and
// seen is the highest tally passed to a handler. crowded counts handlers that ran at the same time
// as another job with the key.
const countersTable = `CREATE TABLE counters (name BIGINT PRIMARY KEY, tally BIGINT NOT NULL, seen BIGINT NOT NULL DEFAULT 0,
  crowded BIGINT NOT NULL DEFAULT 0)`

// sqlSee records the tally of a counter, and whether another job with its key runs or waits to run.
var sqlSee = testkit.Either(`UPDATE counters SET seen = max(seen, $1), crowded = crowded + (SELECT count(*) <> 1
  FROM _honkerx_job AS s JOIN _honker_live AS l ON l.id = s.job_id
  WHERE s.queue = 'counts' AND s.unique_key = $2 AND l.state <> 'held')
WHERE name = $3`, `UPDATE counters SET seen = greatest(seen, $1), crowded = crowded + (SELECT (count(*) <> 1)::int
  FROM job WHERE queue = 'counts' AND unique_key = $2 AND state < 2)
WHERE name = $3`)

const counterNames = 4

// count is a counter with its tally.
type count struct{ Name, Tally int64 }

func (a *actor) counts() *honker.Queue[count] {
	return honker.NewQueue[count](a.db, "counts", &honker.QueueOptions{MaxAttempts: 1 << 20, Backoff: honker.Constant(0)})
}

// increment increments a counter and enqueues its job, with RunAgain, in a transaction that may be
// rolled back.
func (a *actor) increment(ctx context.Context) error {
	n := a.number()
	c := count{Name: n % counterNames}
	return ignore(a.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		row := tx.QueryRowContext(ctx, `INSERT INTO counters (name, tally) VALUES ($1, 1)
ON CONFLICT (name) DO UPDATE SET tally = counters.tally + 1 RETURNING tally`, c.Name)
		if err := row.Scan(&c.Tally); err != nil {
			return err
		}
		_, err := a.counts().EnqueueTx(ctx, tx, c, honker.Unique(fmt.Sprint(c.Name), &honker.Uniqueness{Conflict: honker.RunAgain}))
		if err == nil && n%5 == 0 {
			return errOnPurpose
		}
		return err
	}), errOnPurpose)
}

// see records the tally of a counter in the transaction of the job's ack. A dead job passes its key
// to its successor, so when it is requeued it may run later with a lower tally.
func (a *actor) see(ctx context.Context) error {
	return a.counts().WorkTx(ctx, func(ctx context.Context, tx *sql.Tx, job *honker.Job[count]) error {
		if _, err := tx.ExecContext(ctx, sqlSee, job.Args.Tally, fmt.Sprint(job.Args.Name), job.Args.Name); err != nil {
			return err
		}
		return fate(job.ID, job.Attempts)
	}, &honker.WorkOptions{Workers: 2, Lease: time.Second})
}

// counted checks that the job of each counter ran after its last increment, that no two jobs of a
// key ran at the same time, and that no key remains.
func (r *reckoning) counted(ctx context.Context) error {
	total, err := one[int64](ctx, r.db.SQL(), `SELECT CAST(coalesce(sum(tally), 0) AS BIGINT) FROM counters`)
	if err != nil {
		return err
	}
	r.Add("increments", total)
	return r.none(ctx, "unique_violations", map[string]string{
		`SELECT count(*) FROM counters WHERE seen <> tally`: "counters were not seen with their last tally",
		`SELECT count(*) FROM counters WHERE crowded > 0`:   "counters had two jobs at once",
		testkit.CountUnique: "keys are left behind",
		`SELECT count(*) FROM _honker_dead WHERE queue = 'counts'`: "jobs of counters are dead",
	})
}
