package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"math"

	"github.com/honker-go/honker/internal/row"
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
	plainly       = ` AND NOT ` + isAwaited + ` AND NOT ` + keepsDone
	sqlAck        = dropAcked + whereClaim + plainly
	sqlAckAttempt = dropAcked + whereAttempt + plainly
	sqlAckAll     = dropAcked + whereAll + plainly
	sqlAckMany    = dropAcked + whereMany + plainly
)

// By primary keys.
var (
	sqlEndEdges        = endsEdges(whereClaim)
	sqlEndEdgesAttempt = endsEdges(whereAttempt)
	sqlEndEdgesAll     = endsEdges(whereAll)
	sqlEndEdgesMany    = endsEdges(whereMany)
)

// acking are the statements of an ack, with the same condition and arguments. Each of the first two alone is
// all of the ack of its jobs, so an ack of plain jobs needs no transaction; the third comes before them for jobs
// that others wait for.
type acking struct{ drop, keep, endEdges string }

// Of one job, of jobs of an attempt, and of jobs of whatever attempt, on any queue and on one.
var (
	ackOne     = acking{sqlAck, sqlKeep, sqlEndEdges}
	ackAttempt = acking{sqlAckAttempt, sqlKeepAttempt, sqlEndEdgesAttempt}
	ackAll     = acking{sqlAckAll, sqlKeepAll, sqlEndEdgesAll}
	ackMany    = acking{sqlAckMany, sqlKeepMany, sqlEndEdgesMany}
)

// run counts the jobs that it has removed, of which there are up to want.
func (a acking) run(ctx context.Context, q Querier, want int, args ...any) (int, error) {
	n, err := a.alone(ctx, q, want, args...)
	if err != nil || n >= want {
		return n, err
	}
	ended, err := affected(ctx, q, a.endEdges, args...)
	if err != nil || ended == 0 {
		return n, err
	}
	more, err := a.alone(ctx, q, want-n, args...)
	return n + more, err
}

// alone is run of the jobs that none waits for.
func (a acking) alone(ctx context.Context, q Querier, want int, args ...any) (int, error) {
	n, err := affected(ctx, q, a.drop, args...)
	if err != nil || n >= want {
		return n, err
	}
	kept, err := affected(ctx, q, a.keep, args...)
	return n + kept, err
}

// Ack removes a job that is done; false when the claim no longer holds.
func (Jobs) Ack(ctx context.Context, q Querier, c row.Claim, now int64) (bool, error) {
	n, err := ackOne.run(ctx, q, 1, c.ID, c.Worker, c.Attempt, now)
	return n > 0, err
}

// AckAlone is Ack without a transaction around it. It is ErrAwaited, and changes nothing, where others may wait for
// the job.
func (j Jobs) AckAlone(ctx context.Context, q Querier, c row.Claim, now int64) (bool, error) {
	n, err := ackOne.alone(ctx, q, 1, c.ID, c.Worker, c.Attempt, now)
	if err != nil || n > 0 {
		return n > 0, err
	}
	some, err := j.HasEdges(ctx, q)
	if err == nil && some {
		err = ErrAwaited
	}
	return false, err
}

// AckAttempt removes those of ids that worker holds by a valid claim of that
// attempt, and counts them. AckAttemptIDs also returns them, for a third more.
func (Jobs) AckAttempt(ctx context.Context, q Querier, ids []int64, worker string, attempt, now int64) (int, error) {
	return ackAttempt.run(ctx, q, len(ids), idList(ids), worker, attempt, now)
}

// AckAttemptIDs is like AckAttempt and returns the ids of the jobs that it removed.
func (Jobs) AckAttemptIDs(ctx context.Context, q Querier, ids []int64, worker string, attempt, now int64) (acked []int64, err error) {
	args := []any{idList(ids), worker, attempt, now}
	for range 2 {
		for _, query := range []string{sqlAckAttempt + ` RETURNING id`, sqlKeepAttempt + ` RETURNING job_id`} {
			some, err := returnedIDs(ctx, q, query, 0, args...)
			acked = append(acked, some...)
			if err != nil || len(acked) == len(ids) {
				return acked, err
			}
		}
		ended, err := affected(ctx, q, sqlEndEdgesAttempt, args...)
		if err != nil || ended == 0 {
			return acked, err
		}
	}
	return acked, nil
}

// AckAll removes those of ids that worker holds on any queue, and counts them. ids is a
// JSON array, as the caller of the SQL function wrote it.
func (Jobs) AckAll(ctx context.Context, q Querier, ids, worker string, now int64) (int, error) {
	want := math.MaxInt
	var list []json.RawMessage
	if json.Unmarshal([]byte(ids), &list) == nil {
		want = len(list)
	}
	return ackAll.run(ctx, q, want, ids, worker, now)
}

// AckMany removes those of ids that worker holds on queue, and counts them.
func (Jobs) AckMany(ctx context.Context, q Querier, queue string, ids []int64, worker string, now int64) (int, error) {
	return ackMany.run(ctx, q, len(ids), idList(ids), worker, now, queue)
}

// AckManyAlone is AckMany of those that none waits for, without a transaction around it. It tells whether there may be
// others among ids.
func (j Jobs) AckManyAlone(ctx context.Context, q Querier, queue string, ids []int64, worker string, now int64) (n int, others bool, err error) {
	n, err = ackMany.alone(ctx, q, len(ids), idList(ids), worker, now, queue)
	if err == nil && n < len(ids) {
		others, err = j.HasEdges(ctx, q)
	}
	return n, others, err
}

// By primary key.
const sqlHeld = `SELECT attempts FROM _honker_live WHERE id = ?1 AND worker_id = ?2`

// Held returns the claim by which worker holds a job, lapsed or not. It is for a caller
// that knows no attempt, such as honker's SQL functions, and is good only within the
// transaction that settles by it.
func (Jobs) Held(ctx context.Context, q Querier, id int64, worker string) (c row.Claim, found bool, err error) {
	c = row.Claim{ID: id, Worker: worker}
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
func (j Jobs) Retry(ctx context.Context, q Querier, c row.Claim, runAt int64, cause string, now int64) (held, dead bool, err error) {
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
func (Jobs) DeadLetter(ctx context.Context, q Querier, c row.Claim, cause string, now int64) (bool, error) {
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
func (Jobs) PutBack(ctx context.Context, q Querier, c row.Claim, runAt, now int64) (bool, error) {
	n, err := affected(ctx, q, sqlPutBack, c.ID, c.Worker, c.Attempt, now, runAt)
	return n > 0, err
}

// By primary key.
const sqlExtend = `UPDATE _honker_live SET claim_expires_at = ?5` + whereClaim + ` AND state = 'processing'`

// Extend makes a claim last until expires, which may be earlier than before; false when it
// no longer holds.
func (Jobs) Extend(ctx context.Context, q Querier, c row.Claim, expires, now int64) (bool, error) {
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
