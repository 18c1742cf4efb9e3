//go:build unix

package torture

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

// bounded contains the queues with limits. The SQL below uses their names.
var bounded = map[string]honker.Limits{
	"shared": {Running: 5, PerKey: 2},
	"lined":  {InOrder: true},
}

// shares holds the committed jobs of bounded queues. spent holds the done jobs, inserted in the
// transactions of their acks. beyond holds jobs that ran while a limit was exceeded.
var limitTables = []string{
	`CREATE TABLE shares (job BIGINT PRIMARY KEY, queue TEXT NOT NULL, key TEXT NOT NULL)`,
	`CREATE TABLE spent (place ` + testkit.Either(`INTEGER PRIMARY KEY AUTOINCREMENT`, `BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY`) + `, job BIGINT NOT NULL)`,
	`CREATE TABLE beyond (job BIGINT NOT NULL)`,
}

var sqlBeyond = testkit.Either(`INSERT INTO beyond SELECT $1 WHERE
  (SELECT count(*) FROM _honker_live WHERE queue = 'shared' AND state = 'processing') > 5
  OR (SELECT count(*) FROM _honker_live AS l JOIN _honkerx_job AS s ON s.job_id = l.id
    WHERE l.queue = $2 AND l.state = 'processing' AND s.key = (SELECT key FROM shares WHERE job = $1)) > iif($2 = 'lined', 1, 2)`,
	`INSERT INTO beyond SELECT CAST($1 AS BIGINT) WHERE
  (SELECT count(*) FROM job WHERE queue = 'shared' AND state = 1) > 5
  OR (SELECT count(*) FROM job WHERE queue = $2 AND state = 1 AND key = (SELECT key FROM shares WHERE job = $1)) > CASE $2 WHEN 'lined' THEN 1 ELSE 2 END`)

func (a *actor) bounded(name string) *honker.Queue[int64] {
	return honker.NewQueue[int64](a.db, name, &honker.QueueOptions{MaxAttempts: 1 << 20, Backoff: honker.Constant(0)})
}

// limit sets the limits, which do not change.
func (s *storm) limit(ctx context.Context) error {
	var errs []error
	for name, limits := range bounded {
		errs = append(errs, honker.NewQueue[int64](s.db, name, nil).SetLimits(ctx, limits))
	}
	return errors.Join(errs...)
}

// share enqueues jobs with a key in each bounded queue, in a transaction that may be rolled back.
func (a *actor) share(ctx context.Context) error {
	n := a.number()
	key := fmt.Sprint("key ", n%4)
	return ignore(a.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for name := range bounded {
			ids, err := a.bounded(name).EnqueueManyTx(ctx, tx, []int64{n, n}, honker.Key(key))
			for _, id := range ids {
				if err == nil {
					_, err = tx.ExecContext(ctx, `INSERT INTO shares VALUES ($1, $2, $3)`, id, name, key)
				}
			}
			if err != nil {
				return err
			}
		}
		if n%5 == 0 {
			return errOnPurpose
		}
		return nil
	}), errOnPurpose)
}

// spend runs the jobs of all bounded queues.
func (a *actor) spend(ctx context.Context) error {
	ended := make(chan error)
	for name := range bounded {
		go func() { ended <- a.spendOf(ctx, name) }()
	}
	return errors.Join(<-ended, <-ended)
}

func (a *actor) spendOf(ctx context.Context, name string) error {
	return a.bounded(name).WorkTx(ctx, func(ctx context.Context, tx *sql.Tx, job *honker.Job[int64]) error {
		if _, err := tx.ExecContext(ctx, sqlBeyond, job.ID, name); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO spent (job) VALUES ($1)`, job.ID); err != nil {
			return err
		}
		if failsFirst(job.ID) && job.Attempts == 1 {
			return errOnPurpose
		}
		return nil
	}, &honker.WorkOptions{Workers: 3, Lease: time.Second})
}

// bounded checks that no job ran beyond a limit, that each ran once, and that jobs of a key ran in
// order where the queue requires it.
func (r *reckoning) bounded(ctx context.Context) error {
	total, err := one[int64](ctx, r.db.SQL(), `SELECT count(*) FROM spent`)
	if err != nil {
		return err
	}
	r.Add("bounded", total)
	return r.none(ctx, "limit_violations", map[string]string{
		`SELECT count(*) FROM beyond`:                                                          "jobs ran beyond a limit",
		`SELECT count(*) FROM shares WHERE job NOT IN (SELECT job FROM spent)`:                 "jobs with a key were not done",
		`SELECT count(*) FROM spent WHERE job NOT IN (SELECT job FROM shares)`:                 "jobs with a key were never committed",
		`SELECT count(*) FROM (SELECT 1 FROM spent GROUP BY job HAVING count(*) > 1) AS twice`: "jobs with a key were done more than once",
		`SELECT count(*) FROM (SELECT s.job, lag(s.job) OVER (PARTITION BY w.key ORDER BY s.place) AS before
  FROM spent AS s JOIN shares AS w ON w.job = s.job WHERE w.queue = 'lined') AS pairs WHERE before > job`: "jobs of a key were done out of order",
	})
}
