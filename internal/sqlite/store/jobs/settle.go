package jobs

import (
	"context"
	"encoding/json"
	"math"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// A claim is valid while its row still shows the worker and the attempt, and has not lapsed. A pending row
// has no worker and no deadline, so the condition need not test the state.
const whereClaim = ` WHERE id = ?1 AND worker_id = ?2 AND attempts = ?3 AND claim_expires_at >= ?4`

// These statements use the primary key. The jobs in a batch usually share an attempt number, so that a
// single statement acks them all. honker's ack_batch has no attempt number to fence by.
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

// These statements use the primary keys.
var (
	sqlEndEdges        = endsEdges(whereClaim)
	sqlEndEdgesAttempt = endsEdges(whereAttempt)
	sqlEndEdgesAll     = endsEdges(whereAll)
	sqlEndEdgesMany    = endsEdges(whereMany)
)

// acking holds an ack's statements, which share a condition and arguments. drop and keep each complete the
// ack of their jobs, so an ack of plain jobs needs no transaction. Jobs that others wait for need endEdges
// first.
type acking struct{ drop, keep, endEdges string }

// Acks of a single job, of jobs that share an attempt number, and of jobs with any attempt number in any
// queue or in a given queue.
var (
	ackOne     = acking{sqlAck, sqlKeep, sqlEndEdges}
	ackAttempt = acking{sqlAckAttempt, sqlKeepAttempt, sqlEndEdgesAttempt}
	ackAll     = acking{sqlAckAll, sqlKeepAll, sqlEndEdgesAll}
	ackMany    = acking{sqlAckMany, sqlKeepMany, sqlEndEdgesMany}
)

// run acks up to want jobs and returns how many it removed.
func (a acking) run(ctx context.Context, q row.Querier, want int, args ...any) (int, error) {
	n, err := a.alone(ctx, q, want, args...)
	if err != nil || n >= want {
		return n, err
	}
	ended, err := rows.Affected(ctx, q, a.endEdges, args...)
	if err != nil || ended == 0 {
		return n, err
	}
	more, err := a.alone(ctx, q, want-n, args...)
	return n + more, err
}

// alone is like run but leaves out jobs that others wait for.
func (a acking) alone(ctx context.Context, q row.Querier, want int, args ...any) (int, error) {
	n, err := rows.Affected(ctx, q, a.drop, args...)
	if err != nil || n >= want {
		return n, err
	}
	kept, err := rows.Affected(ctx, q, a.keep, args...)
	return n + kept, err
}

// Ack removes a job that is done. It returns false if the claim is no longer valid.
func (Jobs) Ack(ctx context.Context, q row.Querier, c row.Claim, now int64) (bool, error) {
	n, err := ackOne.run(ctx, q, 1, c.ID, c.Worker, c.Attempt, now)
	return n > 0, err
}

// ackAlone is like Ack but needs no transaction. If other jobs may wait for the job, it returns ErrAwaited
// and changes nothing.
func (j Jobs) ackAlone(ctx context.Context, q row.Querier, c row.Claim, now int64) (bool, error) {
	n, err := ackOne.alone(ctx, q, 1, c.ID, c.Worker, c.Attempt, now)
	if err != nil || n > 0 {
		return n > 0, err
	}
	some, err := j.hasEdges(ctx, q)
	if err == nil && some {
		err = row.ErrAwaited
	}
	return false, err
}

// AckAttempt removes the jobs among ids that worker holds by a valid claim with the given attempt number,
// and returns how many it removed. AckAttemptIDs also returns their ids but costs a third more.
func (Jobs) AckAttempt(ctx context.Context, q row.Querier, ids []int64, worker string, attempt, now int64) (int, error) {
	return ackAttempt.run(ctx, q, len(ids), rows.IDList(ids), worker, attempt, now)
}

// AckAttemptIDs is like AckAttempt but returns the ids of the removed jobs.
func (Jobs) AckAttemptIDs(ctx context.Context, q row.Querier, ids []int64, worker string, attempt, now int64) (acked []int64, err error) {
	args := []any{rows.IDList(ids), worker, attempt, now}
	for range 2 {
		for _, query := range []string{sqlAckAttempt + ` RETURNING id`, sqlKeepAttempt + ` RETURNING job_id`} {
			some, err := rows.ReturnedIDs(ctx, q, query, 0, args...)
			acked = append(acked, some...)
			if err != nil || len(acked) == len(ids) {
				return acked, err
			}
		}
		ended, err := rows.Affected(ctx, q, sqlEndEdgesAttempt, args...)
		if err != nil || ended == 0 {
			return acked, err
		}
	}
	return acked, nil
}

// AckAll removes the jobs among ids that worker holds in any queue, and returns how many it removed. ids is
// a JSON array, as passed to the SQL function.
func (Jobs) AckAll(ctx context.Context, q row.Querier, ids, worker string, now int64) (int, error) {
	want := math.MaxInt
	var list []json.RawMessage
	if json.Unmarshal([]byte(ids), &list) == nil {
		want = len(list)
	}
	return ackAll.run(ctx, q, want, ids, worker, now)
}

// AckMany removes the jobs in a that the worker holds, and returns how many it removed. rest reports
// whether an ack with Alone set may have skipped jobs that others wait for.
func (j Jobs) AckMany(ctx context.Context, q row.Querier, a row.AckMany, now time.Time) (n int, rest bool, err error) {
	if !a.Alone {
		n, err = ackMany.run(ctx, q, len(a.IDs), rows.IDList(a.IDs), a.Worker, now.Unix(), a.Queue)
		return n, false, err
	}
	n, err = ackMany.alone(ctx, q, len(a.IDs), rows.IDList(a.IDs), a.Worker, now.Unix(), a.Queue)
	if err == nil && n < len(a.IDs) {
		rest, err = j.hasEdges(ctx, q)
	}
	return n, rest, err
}

// sqlHeld uses the primary key.
const sqlHeld = `SELECT attempts FROM _honker_live WHERE id = ?1 AND worker_id = ?2`

// Held returns the claim by which worker holds a job, even if it has lapsed. It is for callers that do not
// know the attempt, such as honker's SQL functions. The result is reliable only within the transaction that
// also settles the job.
func (Jobs) Held(ctx context.Context, q row.Querier, id int64, worker string) (c row.Claim, found bool, err error) {
	c = row.Claim{ID: id, Worker: worker}
	found, err = rows.One(ctx, q, sqlHeld, []any{id, worker}, (*rows.Number)(&c.Attempt))
	return c, found, err
}

// sqlRetry uses the primary key.
const sqlRetry = `UPDATE _honker_live
SET state = 'pending', run_at = ?5, worker_id = NULL, claim_expires_at = NULL` + whereClaim + `
  AND state = 'processing' AND attempts < max_attempts`

// honker's tables have no column for the error of an attempt that will be retried.
const sqlSaveError = `INSERT INTO _honkerx_job (job_id, last_error) VALUES (?1, ?2)
ON CONFLICT (job_id) DO UPDATE SET last_error = excluded.last_error`

// Retry makes the job pending again at runAt, or moves it to the dead letters if it has no attempts left.
// held is false if the claim is no longer valid; dead reports that the job was moved.
func (j Jobs) Retry(ctx context.Context, q row.Querier, c row.Claim, runAt int64, cause string, now int64) (held, dead bool, err error) {
	n, err := rows.Affected(ctx, q, sqlRetry, c.ID, c.Worker, c.Attempt, now, runAt)
	if err != nil {
		return false, false, err
	}
	if n == 0 {
		// Either no attempts are left or the claim is not valid. DeadLetter finds out which.
		held, err := j.DeadLetter(ctx, q, c, cause, now)
		return held, held, err
	}
	if cause == "" {
		return true, false, nil
	}
	_, err = q.ExecContext(ctx, sqlSaveError, c.ID, cause)
	return true, false, err
}

// These statements use the primary key.
const (
	sqlDeadLetter = intoDead + `?5, created_at, ?4 FROM _honker_live` + whereClaim
	sqlDrop       = `DELETE FROM _honker_live WHERE id = ?1`
)

// DeadLetter moves the job to _honker_dead. It returns false if the claim is no longer valid.
func (Jobs) DeadLetter(ctx context.Context, q row.Querier, c row.Claim, cause string, now int64) (bool, error) {
	n, err := rows.Affected(ctx, q, sqlDeadLetter, c.ID, c.Worker, c.Attempt, now, cause)
	if err != nil || n == 0 {
		return false, err
	}
	dropped, err := rows.Affected(ctx, q, sqlDrop, c.ID)
	if err == nil && dropped == 0 {
		return false, row.ErrStuck // the job would be in both tables
	}
	return true, err
}

// sqlPutBack uses the primary key. It does not count the attempt.
const sqlPutBack = `UPDATE _honker_live
SET state = 'pending', run_at = max(run_at, ?5), attempts = attempts - 1,
  worker_id = NULL, claim_expires_at = NULL` + whereClaim + ` AND state = 'processing'`

// PutBack makes the job pending again at runAt, or immediately if runAt is 0, and does not count the
// attempt. It returns false if the claim is no longer valid.
func (Jobs) PutBack(ctx context.Context, q row.Querier, c row.Claim, runAt, now int64) (bool, error) {
	n, err := rows.Affected(ctx, q, sqlPutBack, c.ID, c.Worker, c.Attempt, now, runAt)
	return n > 0, err
}

// sqlExtend uses the primary key.
const sqlExtend = `UPDATE _honker_live SET claim_expires_at = ?5` + whereClaim + ` AND state = 'processing'`

// Extend sets the end of a claim, which may be earlier than before. It returns false if the claim is no
// longer valid.
func (j Jobs) Extend(ctx context.Context, q row.Querier, e row.Extension, now time.Time) (bool, error) {
	held, err := j.ExtendUntil(ctx, q, e.Claim, now.Unix()+engine.Seconds(e.Lease), now.Unix())
	if err != nil || !held {
		return held, err
	}
	if !e.Start.IsZero() {
		starts := []row.StartOf{{ID: e.ID, Attempt: e.Attempt, At: e.Start}}
		if err := j.saveStarts(ctx, q, starts, e.Worker, now.Unix()); err != nil {
			return true, err
		}
	}
	if e.Progress == nil {
		return true, nil
	}
	news := []row.ProgressOf{{ID: e.ID, Attempt: e.Attempt, Progress: *e.Progress}}
	return true, j.saveProgress(ctx, q, news, e.Worker, false, now.Unix())
}

// ExtendUntil is like Extend, but takes the second at which the claim ends.
func (Jobs) ExtendUntil(ctx context.Context, q row.Querier, c row.Claim, expires, now int64) (bool, error) {
	n, err := rows.Affected(ctx, q, sqlExtend, c.ID, c.Worker, c.Attempt, now, expires)
	return n > 0, err
}

// sqlRenew uses the primary key. It never shortens a lease, because a handler may have extended its own.
const sqlRenew = `UPDATE _honker_live SET claim_expires_at = max(claim_expires_at, ?4)
WHERE id IN (SELECT value FROM json_each(?1)) AND worker_id = ?2 AND claim_expires_at >= ?3
  AND state = 'processing'
RETURNING id`

// Renew extends claims and returns the ids of the jobs that the worker still holds. The worker has lost the
// claims on all other ids. Cancelled jobs among these keep their slots in queues with limits for as long as
// the claims would have lasted.
func (j Jobs) Renew(ctx context.Context, q row.Querier, r row.Renewal, now time.Time) ([]int64, error) {
	expires := now.Unix() + engine.Seconds(r.Lease)
	kept, err := rows.ReturnedIDs(ctx, q, sqlRenew, len(r.IDs), rows.IDList(r.IDs), r.Worker, now.Unix(), expires)
	if err == nil && len(kept) < len(r.IDs) {
		err = j.renewPlaces(ctx, q, r.IDs, r.Worker, now.Unix(), expires)
	}
	if err == nil {
		err = j.saveStarts(ctx, q, r.Starts, r.Worker, now.Unix())
	}
	if err != nil {
		return nil, err
	}
	return kept, j.saveProgress(ctx, q, r.Progress, r.Worker, false, now.Unix())
}

// sqlGone uses the primary keys.
const sqlGone = `SELECT k.value FROM json_each(?1) AS k
WHERE NOT EXISTS (SELECT 1 FROM _honker_live WHERE id = k.value)
  AND NOT EXISTS (SELECT 1 FROM _honker_dead WHERE id = k.value)`

// Gone returns the jobs among ids that are neither live nor dead.
func (Jobs) Gone(ctx context.Context, q row.Querier, ids []int64) ([]int64, error) {
	return rows.ReturnedIDs(ctx, q, sqlGone, 0, rows.IDList(ids))
}
