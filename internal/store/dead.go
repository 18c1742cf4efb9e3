package store

import (
	"context"
	"database/sql"
	"fmt"
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

// Jobs that were to start by a time that has passed: those that wait, by the pending index
// of the queue, and those of lapsed claims, which honker's own sweep does not see.
const (
	whereExpired = ` FROM _honker_live INDEXED BY _honkerx_live_pending
WHERE queue = ?1 AND state = 'pending' AND expires_at <= ?2`
	whereExpiredLapsed = ` FROM _honker_live INDEXED BY _honker_live_processing_deadline
WHERE queue = ?1 AND state = 'processing' AND claim_expires_at < ?2 AND expires_at <= ?2`

	sqlDeadLetterExpired       = intoDead + `'` + ReasonExpired + `', created_at, ?2` + whereExpired
	sqlDropExpired             = `DELETE` + whereExpired
	sqlDeadLetterExpiredLapsed = intoDead + `'` + ReasonExpired + `', created_at, ?2` + whereExpiredLapsed
	sqlDropExpiredLapsed       = `DELETE` + whereExpiredLapsed
)

// SweepExpired dead-letters the expired jobs of queue and counts them.
func (Jobs) SweepExpired(ctx context.Context, q Querier, queue string, now int64) (int, error) {
	waiting, err := toDead(ctx, q, sqlDeadLetterExpired, sqlDropExpired, queue, now)
	if err != nil {
		return 0, err
	}
	lapsed, err := toDead(ctx, q, sqlDeadLetterExpiredLapsed, sqlDropExpiredLapsed, queue, now)
	return waiting + lapsed, err
}

// toDead moves jobs to _honker_dead by two statements with the same condition and arguments,
// and counts them. A job must not be lost, nor be in both tables: where a trigger lets only one
// of the two happen it is an error, after which the transaction has to be undone.
func toDead(ctx context.Context, q Querier, copyRows, dropRows string, args ...any) (int, error) {
	copied, err := affected(ctx, q, copyRows, args...)
	if err != nil || copied == 0 {
		return 0, err
	}
	dropped, err := affected(ctx, q, dropRows, args...)
	if err == nil && dropped != copied {
		return 0, fmt.Errorf("%d of %d jobs moved to the dead letters: %w", dropped, copied, ErrStuck)
	}
	return dropped, err
}
