package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"math"
)

// A claim holds while its row is still this worker's attempt, and not lapsed. A pending
// row has no worker and no deadline, so state need not be asked for.
const whereClaim = ` WHERE id = ?1 AND worker_id = ?2 AND attempts = ?3 AND claim_expires_at >= ?4`

// By primary key. Jobs of one batch are mostly of one attempt, so that one statement acks
// them all. honker's ack_batch knows no attempt to fence by.
const (
	whereAttempt = ` WHERE id IN (SELECT value FROM json_each(?1)) AND worker_id = ?2 AND attempts = ?3 AND claim_expires_at >= ?4`
	whereAll     = ` WHERE id IN (SELECT value FROM json_each(?1)) AND worker_id = ?2 AND claim_expires_at >= ?3`
	whereMany    = whereAll + ` AND _honker_live.queue = ?4`

	dropAcked     = `DELETE FROM _honker_live`
	sqlAck        = dropAcked + whereClaim + ` AND NOT ` + keepsDone
	sqlAckAttempt = dropAcked + whereAttempt + ` AND NOT ` + keepsDone
	sqlAckAll     = dropAcked + whereAll + ` AND NOT ` + keepsDone
	sqlAckMany    = dropAcked + whereMany + ` AND NOT ` + keepsDone
)

// Ack removes a job that is done; false when the claim no longer holds.
func (Jobs) Ack(ctx context.Context, q Querier, c Claim, now int64) (bool, error) {
	n, err := ack(ctx, q, sqlAck, sqlKeep, 1, c.ID, c.Worker, c.Attempt, now)
	return n > 0, err
}

// ack runs the statement that acks jobs of queues that keep none that are done, and, where that were
// fewer than want, the one for the others. Each alone is all of the ack of its jobs.
func ack(ctx context.Context, q Querier, drop, keep string, want int, args ...any) (int, error) {
	n, err := affected(ctx, q, drop, args...)
	if err != nil || n >= want {
		return n, err
	}
	kept, err := affected(ctx, q, keep, args...)
	return n + kept, err
}

// AckAttempt removes those of ids that worker holds by a valid claim of that
// attempt, and counts them. AckAttemptIDs also returns them, for a third more.
func (Jobs) AckAttempt(ctx context.Context, q Querier, ids []int64, worker string, attempt, now int64) (int, error) {
	return ack(ctx, q, sqlAckAttempt, sqlKeepAttempt, len(ids), idList(ids), worker, attempt, now)
}

// AckAttemptIDs is like AckAttempt and returns the ids of the jobs that it removed.
func (Jobs) AckAttemptIDs(ctx context.Context, q Querier, ids []int64, worker string, attempt, now int64) ([]int64, error) {
	dropped, err := returnedIDs(ctx, q, sqlAckAttempt+` RETURNING id`, len(ids), idList(ids), worker, attempt, now)
	if err != nil || len(dropped) == len(ids) {
		return dropped, err
	}
	kept, err := returnedIDs(ctx, q, sqlKeepAttempt+` RETURNING job_id`, 0, idList(ids), worker, attempt, now)
	return append(dropped, kept...), err
}

// AckAll removes those of ids that worker holds on any queue, and counts them. ids is a
// JSON array, as the caller of the SQL function wrote it.
func (Jobs) AckAll(ctx context.Context, q Querier, ids, worker string, now int64) (int, error) {
	want := math.MaxInt
	var list []json.RawMessage
	if json.Unmarshal([]byte(ids), &list) == nil {
		want = len(list)
	}
	return ack(ctx, q, sqlAckAll, sqlKeepAll, want, ids, worker, now)
}

// AckMany removes those of ids that worker holds on queue, and counts them.
func (Jobs) AckMany(ctx context.Context, q Querier, queue string, ids []int64, worker string, now int64) (int, error) {
	return ack(ctx, q, sqlAckMany, sqlKeepMany, len(ids), idList(ids), worker, now, queue)
}

// By primary key.
const sqlHeld = `SELECT attempts FROM _honker_live WHERE id = ?1 AND worker_id = ?2`

// Held returns the claim by which worker holds a job, lapsed or not. It is for a caller
// that knows no attempt, such as honker's SQL functions, and is good only within the
// transaction that settles by it.
func (Jobs) Held(ctx context.Context, q Querier, id int64, worker string) (c Claim, found bool, err error) {
	c = Claim{ID: id, Worker: worker}
	found, err = one(ctx, q, sqlHeld, []any{id, worker}, (*number)(&c.Attempt))
	return c, found, err
}

// By primary key.
const sqlRetry = `UPDATE _honker_live
SET state = 'pending', run_at = ?5, worker_id = NULL, claim_expires_at = NULL` + whereClaim + `
  AND state = 'processing' AND attempts < max_attempts`

// honker's tables have no place for the error of an attempt that will be repeated.
const sqlSaveError = `INSERT INTO _honkerx_job (job_id, last_error) VALUES (?1, ?2)
ON CONFLICT (job_id) DO UPDATE SET last_error = excluded.last_error`

// Retry lets the job run again at runAt, or dead-letters it when it has no attempt left.
// held is false when the claim no longer holds, dead tells which of the two it was.
func (j Jobs) Retry(ctx context.Context, q Querier, c Claim, runAt int64, cause string, now int64) (held, dead bool, err error) {
	n, err := affected(ctx, q, sqlRetry, c.ID, c.Worker, c.Attempt, now, runAt)
	if err != nil {
		return false, false, err
	}
	if n == 0 {
		// No attempt is left, or the claim does not hold: DeadLetter finds out.
		held, err := j.DeadLetter(ctx, q, c, cause, now)
		return held, held, err
	}
	if cause == "" {
		return true, false, nil
	}
	_, err = q.ExecContext(ctx, sqlSaveError, c.ID, cause)
	return true, false, err
}

// By primary key.
const (
	sqlDeadLetter = intoDead + `?5, created_at, ?4 FROM _honker_live` + whereClaim
	sqlDrop       = `DELETE FROM _honker_live WHERE id = ?1`
)

// DeadLetter moves the job to _honker_dead; false when the claim no longer holds.
func (Jobs) DeadLetter(ctx context.Context, q Querier, c Claim, cause string, now int64) (bool, error) {
	n, err := affected(ctx, q, sqlDeadLetter, c.ID, c.Worker, c.Attempt, now, cause)
	if err != nil || n == 0 {
		return false, err
	}
	dropped, err := affected(ctx, q, sqlDrop, c.ID)
	if err == nil && dropped == 0 {
		return false, ErrStuck // it would be in both tables
	}
	return true, err
}

// By primary key. The attempt is given back.
const sqlPutBack = `UPDATE _honker_live
SET state = 'pending', run_at = max(run_at, ?5), attempts = attempts - 1,
  worker_id = NULL, claim_expires_at = NULL` + whereClaim + ` AND state = 'processing'`

// PutBack lets the job run again at runAt, or at once for 0, as if this attempt had not
// been; false when the claim no longer holds.
func (Jobs) PutBack(ctx context.Context, q Querier, c Claim, runAt, now int64) (bool, error) {
	n, err := affected(ctx, q, sqlPutBack, c.ID, c.Worker, c.Attempt, now, runAt)
	return n > 0, err
}

// By primary key.
const sqlExtend = `UPDATE _honker_live SET claim_expires_at = ?5` + whereClaim + ` AND state = 'processing'`

// Extend makes a claim last until expires, which may be earlier than before; false when it
// no longer holds.
func (Jobs) Extend(ctx context.Context, q Querier, c Claim, expires, now int64) (bool, error) {
	n, err := affected(ctx, q, sqlExtend, c.ID, c.Worker, c.Attempt, now, expires)
	return n > 0, err
}

// By primary key. A lease is never shortened: a handler may have extended its own.
const sqlRenew = `UPDATE _honker_live SET claim_expires_at = max(claim_expires_at, ?4)
WHERE id IN (SELECT value FROM json_each(?1)) AND worker_id = ?2 AND claim_expires_at >= ?3
  AND state = 'processing'
RETURNING id`

// Renew extends the claims that worker still holds, of those on ids, and returns their
// ids: a caller learns in this way which claims it has lost.
func (Jobs) Renew(ctx context.Context, q Querier, ids []int64, worker string, now, expires int64) ([]int64, error) {
	return returnedIDs(ctx, q, sqlRenew, len(ids), idList(ids), worker, now, expires)
}

// By primary keys.
const sqlGone = `SELECT k.value FROM json_each(?1) AS k
WHERE NOT EXISTS (SELECT 1 FROM _honker_live WHERE id = k.value)
  AND NOT EXISTS (SELECT 1 FROM _honker_dead WHERE id = k.value)`

// Gone returns those of ids that are neither live nor dead jobs.
func (Jobs) Gone(ctx context.Context, q Querier, ids []int64) ([]int64, error) {
	return returnedIDs(ctx, q, sqlGone, 0, idList(ids))
}

// returnedIDs runs query for one column of ids, and expects about n of them.
func returnedIDs(ctx context.Context, q Querier, query string, n int, args ...any) ([]int64, error) {
	out := make([]int64, 0, n)
	err := each(ctx, q, query, func(rows *sql.Rows) error {
		var id int64
		err := rows.Scan(&id)
		out = append(out, id)
		return err
	}, args...)
	return out, err
}
