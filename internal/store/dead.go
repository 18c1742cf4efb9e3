package store

import (
	"context"
	"database/sql"
)

// By primary key.
const sqlGetDead = `SELECT id, queue, payload, priority, run_at, attempts, max_attempts, last_error, created_at, died_at
FROM _honker_dead WHERE id = ?1 AND queue = ?2`

// GetDead reads a dead job of queue.
func (Jobs) GetDead(ctx context.Context, q Querier, queue string, id int64) (job Job, found bool, err error) {
	job.State = "dead"
	var lastError sql.NullString
	found, err = one(ctx, q, sqlGetDead, []any{id, queue}, &job.ID, &job.Queue, &job.Payload,
		(*number)(&job.Priority), (*number)(&job.RunAt), (*number)(&job.Attempts), (*number)(&job.MaxAttempts), &lastError,
		(*number)(&job.CreatedAt), (*number)(&job.DiedAt))
	job.LastError = lastError.String
	return job, found, err
}

// Jobs that were to start by a time that has passed: those that wait, through the
// pending index of the queue, and those whose worker lapsed as well.
const (
	whereExpired = ` FROM _honker_live INDEXED BY _honkerx_live_pending
WHERE queue = ?1 AND state = 'pending' AND expires_at <= ?2`
	whereExpiredLapsed = ` FROM _honker_live INDEXED BY _honker_live_processing_deadline
WHERE queue = ?1 AND state = 'processing' AND claim_expires_at < ?2 AND expires_at <= ?2`

	sqlBuryExpired       = intoDead + `'` + ReasonExpired + `', created_at, ?2` + whereExpired
	sqlDropExpired       = `DELETE` + whereExpired
	sqlBuryExpiredLapsed = intoDead + `'` + ReasonExpired + `', created_at, ?2` + whereExpiredLapsed
	sqlDropExpiredLapsed = `DELETE` + whereExpiredLapsed
)

// SweepExpired moves the expired jobs of queue to the dead and counts them.
func (Jobs) SweepExpired(ctx context.Context, q Querier, queue string, now int64) (int, error) {
	swept := 0
	for _, move := range [][2]string{{sqlBuryExpired, sqlDropExpired}, {sqlBuryExpiredLapsed, sqlDropExpiredLapsed}} {
		n, err := affected(ctx, q, move[0], queue, now)
		if err != nil {
			return 0, err
		}
		if n == 0 {
			continue
		}
		if _, err := q.ExecContext(ctx, move[1], queue, now); err != nil {
			return 0, err
		}
		swept += n
	}
	return swept, nil
}
