package jobs

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// These statements use the primary key.
const (
	sqlFindDead = `SELECT id, queue, payload, priority, run_at, attempts, max_attempts, last_error, created_at, died_at,
  s.unique_key, s.key, s.headers, s.batch, s.progress
FROM _honker_dead LEFT JOIN _honkerx_dead_job AS s ON s.job_id = id WHERE id = ?1`
	sqlGetDead = sqlFindDead + ` AND queue = ?2`
)

func getDead(ctx context.Context, q row.Querier, query string, args ...any) (job Stored, found bool, err error) {
	job.State = "dead"
	found, err = rows.One(ctx, q, query, args, &job.ID, &job.Queue, &job.Payload,
		(*rows.Number)(&job.Priority), (*rows.Second)(&job.RunAt), (*rows.Number)(&job.Attempts), (*rows.Number)(&job.MaxAttempts), (*rows.Text)(&job.LastError),
		(*rows.Second)(&job.CreatedAt), (*rows.Second)(&job.DiedAt), (*rows.Text)(&job.Unique), (*rows.Text)(&job.Key), (*rows.Text)(&job.Headers),
		(*rows.Number)(&job.Batch), (*rows.Text)(&job.Progress))
	return job, found, err
}

// Jobs that have expired. Pending jobs are found by the queue's pending index. honker's own sweep does not
// see jobs with lapsed claims.
var (
	whereExpired = ` FROM _honker_live INDEXED BY _honkerx_live_pending
WHERE queue = ?1 AND state = 'pending' AND expires_at <= ?2`
	whereExpiredLapsed = ` FROM _honker_live INDEXED BY _honker_live_processing_deadline
WHERE queue = ?1 AND state = 'processing' AND claim_expires_at < ?2 AND expires_at <= ?2`

	// Jobs held for their key or for other jobs. Jobs do not expire while they wait for the
	// owner of their unique key.
	whereExpiredHeld = ` FROM _honker_live INDEXED BY _honkerx_live_held
WHERE queue = ?1 AND state = 'held' AND expires_at <= ?2 AND ` + heldToStart
	heldToStart = `(EXISTS (SELECT 1 FROM _honkerx_job WHERE job_id = _honker_live.id AND slot = 2)
    OR ` + waits("_honker_live.id") + `)`

	sqlDeadLetterExpired       = intoDead + `'` + row.ReasonExpired + `', created_at, ?2` + whereExpired
	sqlDeadLetterExpiredLapsed = intoDead + `'` + row.ReasonExpired + `', created_at, ?2` + whereExpiredLapsed
	sqlDeadLetterExpiredHeld   = intoDead + `'` + row.ReasonExpired + `', created_at, ?2` + whereExpiredHeld
)

// SweepExpired dead-letters all of queue's expired jobs and returns them.
func (Jobs) SweepExpired(ctx context.Context, q row.Querier, queue string, now int64) (all []row.Death, err error) {
	for _, copyRows := range []string{sqlDeadLetterExpired, sqlDeadLetterExpiredLapsed, sqlDeadLetterExpiredHeld} {
		died, err := toDead(ctx, q, copyRows, queue, now)
		if err != nil {
			return nil, err
		}
		all = append(all, died...)
	}
	return all, nil
}

// sqlDropDied uses the primary key. The worker is stored only in the live row.
const sqlDropDied = `DELETE FROM _honker_live WHERE id IN (SELECT value FROM json_each(?1))
RETURNING id, attempts, coalesce(worker_id, ''), iif(expires_at <= ?2, '` + row.ReasonExpired + `', '` + row.ReasonExhausted + `')`

// toDead moves jobs to the dead letters and returns them. copyRows copies their rows into _honker_dead, and
// its second argument must be the current second. The live rows are deleted by id, because a death may
// release another job that has expired too. No job may be lost or be in both tables. If one of the
// application's triggers prevents the copy or the delete, toDead returns an error and the caller must roll
// back.
func toDead(ctx context.Context, q row.Querier, copyRows string, args ...any) (dead []row.Death, err error) {
	copied, err := rows.ReturnedIDs(ctx, q, copyRows+` RETURNING id`, 0, args...)
	if err != nil || len(copied) == 0 {
		return nil, err
	}
	err = rows.Each(ctx, q, sqlDropDied, func(r *sql.Rows) error {
		var d row.Death
		err := r.Scan(&d.ID, (*rows.Number)(&d.Attempts), &d.Worker, &d.Reason)
		dead = append(dead, d)
		return err
	}, rows.IDList(copied), args[1])
	if err == nil && len(dead) != len(copied) {
		return nil, fmt.Errorf("only %d of %d jobs were moved to the dead letters: %w", len(dead), len(copied), row.ErrStuck)
	}
	return dead, err
}
