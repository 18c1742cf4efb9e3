package jobs

import (
	"context"
	"database/sql"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// A change of limits affects all of a queue's jobs that have a key. There may now be room for held jobs,
// and starts may be reserved by a rate that no longer exists. Jobs are fitted to the new limits a few at a
// time, in separate transactions. The progress is stored in the queue's row, so the work continues if a
// process dies. SetLimits, every claim on the queue and Maintain each do a part. The limits are enforced in
// the meantime: a job that has not been fitted yet waits.
//
// Jobs are fitted once, in id order. Jobs that have been fitted are held by claims under the new limits.

// These statements use the primary key.
const (
	sqlBeginFit = `UPDATE _honkerx_queues SET fit_job = 0, fit_key = iif(?2, '', fit_key), fit_rate = iif(?2, 1, fit_rate) WHERE queue = ?1`
	sqlFitting  = `SELECT fit_job, fit_key, fit_rate FROM _honkerx_queues WHERE queue = ?1 AND fit_job IS NOT NULL`
	sqlFitKey   = `UPDATE _honkerx_queues SET fit_key = ?2 WHERE queue = ?1`
	sqlFitJob   = `UPDATE _honkerx_queues SET fit_job = ?2 WHERE queue = ?1`
	sqlEndFit   = `UPDATE _honkerx_queues SET fit_job = NULL, fit_key = NULL, fit_rate = NULL WHERE queue = ?1`
)

// sqlAllFitting scans the whole table, which has a row for each queue with settings.
const sqlAllFitting = `SELECT queue FROM _honkerx_queues WHERE fit_job IS NOT NULL`

// beginFit marks the queue for fitting if the old limits may have held jobs, ordered held jobs or reserved
// starts in a way that the new limits would not.
func beginFit(ctx context.Context, q row.Querier, queue string, was, is row.QueueLimits) error {
	rate := was.KeyRate != (row.StartRate{}) && was.KeyRate != is.KeyRate
	if !rate && was.InOrder == is.InOrder && (was.PerKey == 0 || is.PerKey != 0 && is.PerKey <= was.PerKey) {
		return nil
	}
	_, err := q.ExecContext(ctx, sqlBeginFit, queue, rate)
	return err
}

// These statements use the primary keys. Side rows are read in id order, including those of other queues.
const (
	sqlFitKeysTo = `SELECT max(key) FROM (SELECT key FROM _honkerx_keys WHERE queue = ?1 AND key > ?2 ORDER BY key LIMIT ?3 + 0)`
	ofKeysTo     = ` WHERE queue = ?1 AND key > ?2 AND key <= ?3`

	sqlForgetTats = `UPDATE _honkerx_keys SET tat_ms = NULL, next_ms = NULL` + ofKeysTo
	sqlDropKeys   = `DELETE FROM _honkerx_keys` + ofKeysTo + ` AND paused_ms IS NULL`

	sqlFitJobsTo = `SELECT max(job_id) FROM (SELECT job_id FROM _honkerx_job WHERE job_id > ?1 ORDER BY job_id LIMIT ?2 + 0)`
	sqlToFit     = `SELECT job_id FROM _honkerx_job NOT INDEXED WHERE job_id > ?1 AND job_id <= ?2
  AND queue = ?3 AND key IS NOT NULL AND (slot = 2 OR wait IS NOT NULL) ORDER BY job_id LIMIT ?4 + 0`

	ofList = ` IN (SELECT value FROM json_each(?1))`

	sqlDueReserved = `UPDATE _honker_live SET run_at = ?2 WHERE id` + ofList + ` AND state = 'pending' AND run_at > ?2
  AND EXISTS (SELECT 1 FROM _honkerx_job WHERE job_id = _honker_live.id AND wait & 1)`
	sqlNotReserved = `UPDATE _honkerx_job SET wait = nullif(wait & 2, 0) WHERE job_id` + ofList + ` AND wait & 1`
	sqlNotPaused   = `UPDATE _honkerx_job SET wait = nullif(wait & 1, 0) WHERE job_id` + ofList + ` AND wait & 2
  AND NOT EXISTS (SELECT 1 FROM _honkerx_keys AS k WHERE k.queue = _honkerx_job.queue AND k.key = _honkerx_job.key AND k.paused_ms IS NOT NULL)`

	// Without limits all held jobs are released, except jobs whose keys are paused indefinitely.
	sqlLetAllGo = letGoSlots + ` WHERE job_id` + ofList + ` AND slot = 2
  AND NOT EXISTS (SELECT 1 FROM _honkerx_keys AS k WHERE k.queue = _honkerx_job.queue AND k.key = _honkerx_job.key
    AND k.paused_ms IS NOT NULL AND k.until_ms IS NULL)`

	// The order of held jobs; see _honkerx_key_gate.
	sqlOrderByID   = `UPDATE _honkerx_job SET priority = 0, run_at = 0 WHERE job_id` + ofList + ` AND slot = 2 AND (priority <> 0 OR run_at <> 0)`
	sqlOrderByTime = `UPDATE _honkerx_job SET priority = l.priority, run_at = l.run_at FROM _honker_live AS l
WHERE l.id = _honkerx_job.job_id AND _honkerx_job.job_id` + ofList + ` AND slot = 2 AND (_honkerx_job.priority <> l.priority OR _honkerx_job.run_at <> l.run_at)`

	sqlHeldKeysOf = `SELECT key, count(*) FROM _honkerx_job WHERE job_id` + ofList + ` AND slot = 2 GROUP BY key`
	// sqlLetSomeGo uses _honkerx_job_key.
	sqlLetSomeGo = letGoSlots + ` WHERE job_id IN (
  SELECT job_id FROM _honkerx_job INDEXED BY _honkerx_job_key WHERE queue = ?1 AND key = ?2 AND slot = 2
  ORDER BY priority DESC, run_at, job_id LIMIT ?3 + 0)`
)

// Bounds on a single FitSome, because other writers wait in the meantime.
const (
	mostFitted = 256 // changed jobs, with up to three changes each
	passedRows = 16  // side rows read, as a multiple of the jobs to change
)

// FitSome fits up to about n of queue's jobs to its limits at the second now, and reports whether there may
// be more. After the last job it drops the triggers that are no longer needed.
func (ls Limits) FitSome(ctx context.Context, q row.Querier, queue string, n int, now int64) (more bool, err error) {
	var done, rate rows.Number
	var key sql.NullString
	fitting, err := rows.One(ctx, q, sqlFitting, []any{queue}, &done, &key, &rate)
	if err != nil || !fitting {
		return false, err
	}
	n = min(n, mostFitted)
	if key.Valid {
		return true, ls.forgetStarts(ctx, q, queue, key.String, n)
	}
	var end rows.Number
	if _, err := rows.One(ctx, q, sqlFitJobsTo, []any{int64(done), passedRows * n}, &end); err != nil {
		return false, err
	}
	if end == 0 {
		if _, err := q.ExecContext(ctx, sqlEndFit, queue); err != nil {
			return false, err
		}
		return false, fitTriggers(ctx, q)
	}
	jobs, err := rows.ReturnedIDs(ctx, q, sqlToFit, 0, int64(done), int64(end), queue, n)
	if err != nil {
		return false, err
	}
	if len(jobs) == n {
		end = rows.Number(jobs[n-1])
	}
	if len(jobs) > 0 {
		if err := ls.fit(ctx, q, queue, rows.IDList(jobs), rate == 1, now); err != nil {
			return false, err
		}
	}
	_, err = q.ExecContext(ctx, sqlFitJob, queue, int64(end))
	return true, err
}

// forgetStarts resets the rates of up to n keys that follow the key after. It must run before the jobs are
// fitted. Otherwise a job that becomes due would be assigned a start after those of the old rate.
func (Limits) forgetStarts(ctx context.Context, q row.Querier, queue, after string, n int) error {
	var end sql.NullString
	if _, err := rows.One(ctx, q, sqlFitKeysTo, []any{queue, after, n}, &end); err != nil {
		return err
	}
	if end.Valid {
		for _, query := range []string{sqlForgetTats, sqlDropKeys} {
			if _, err := q.ExecContext(ctx, query, queue, after, end.String); err != nil {
				return err
			}
		}
	}
	_, err := q.ExecContext(ctx, sqlFitKey, queue, end) // NULL after the last key
	return err
}

// fit fits jobs, a JSON list of ids. rate reports whether the rate per key has changed.
func (ls Limits) fit(ctx context.Context, q row.Querier, queue, jobs string, rate bool, now int64) error {
	l, err := ls.Get(ctx, q, queue)
	if err != nil {
		return err
	}
	if rate {
		if _, err := q.ExecContext(ctx, sqlDueReserved, jobs, now); err != nil {
			return err
		}
		if _, err := q.ExecContext(ctx, sqlNotReserved, jobs); err != nil {
			return err
		}
	}
	held := sqlLetAllGo
	switch {
	case l.InOrder:
		held = sqlOrderByID
	case l.PerKey > 0:
		held = sqlOrderByTime
	}
	for _, query := range []string{sqlNotPaused, held} {
		if _, err := q.ExecContext(ctx, query, jobs); err != nil {
			return err
		}
	}
	if !l.InOrder && l.PerKey == 0 {
		return nil
	}
	return letFirstGo(ctx, q, queue, jobs, l)
}

// letFirstGo releases the first held jobs of each key in jobs. For a key it releases as many as the limits
// allow in total, but no more than the list contains. These may be too many, but claims hold any jobs that
// cannot run yet.
func letFirstGo(ctx context.Context, q row.Querier, queue, jobs string, l row.QueueLimits) error {
	atOnce := l.PerKey
	if l.InOrder {
		atOnce = 1
	}
	counts := make(map[string]int64)
	err := rows.Each(ctx, q, sqlHeldKeysOf, func(r *sql.Rows) error {
		var key string
		var n int64
		err := r.Scan((*rows.Text)(&key), &n)
		counts[key] = n
		return err
	}, jobs)
	for key, n := range counts {
		if err != nil {
			break
		}
		_, err = q.ExecContext(ctx, sqlLetSomeGo, queue, key, min(n, atOnce))
	}
	return err
}
