package jobs

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// These statements use the primary keys and _honkerx_after_waiter.
var (
	sqlDeadJob = `SELECT queue, EXISTS (SELECT 1 FROM _honker_live WHERE id = ?1) FROM _honker_dead WHERE id = ?1`

	// Attempts continue from the previous count because they fence claims. If an attempt number were
	// reused, a worker from before the death could settle the requeued job.
	sqlRequeueJob = `INSERT INTO _honker_live (id, state, queue, payload, priority, run_at, attempts, max_attempts, created_at)
SELECT d.id, iif(` + waits("d.id") + `, 'held', 'pending'), ?2, ifnull(?5, d.payload), d.priority, ?3, CAST(d.attempts AS INTEGER),
  CAST(d.attempts AS INTEGER) + iif(?4 > 0, ?4, max(1, CAST(d.max_attempts AS INTEGER) - ifnull(s.base, 0))), d.created_at
FROM _honker_dead AS d LEFT JOIN _honkerx_dead_job AS s ON s.job_id = d.id WHERE d.id = ?1`

	// A job with a unique key already has its side row. A job with a key starts without a slot.
	sqlRequeueSide = `INSERT INTO _honkerx_job
  (job_id, last_error, base, headers, key, batch, progress, checkpoint, queue, slot)
SELECT d.id, d.last_error, CAST(d.attempts AS INTEGER), s.headers, s.key, s.batch, s.progress, s.checkpoint,
  iif(s.key IS NULL, NULL, l.queue), iif(s.key IS NULL, NULL, 0)
FROM _honker_dead AS d JOIN _honker_live AS l ON l.id = d.id LEFT JOIN _honkerx_dead_job AS s ON s.job_id = d.id WHERE d.id = ?1
ON CONFLICT (job_id) DO UPDATE SET last_error = excluded.last_error, base = excluded.base, headers = excluded.headers,
  key = excluded.key, batch = excluded.batch, progress = excluded.progress, checkpoint = excluded.checkpoint,
  queue = ifnull(queue, excluded.queue), slot = excluded.slot`

	sqlForgetDead = `DELETE FROM _honker_dead WHERE id = ?1`
	sqlJobBase    = `SELECT base FROM _honkerx_job WHERE job_id = ?1`
)

// Requeue makes a dead job pending again under its id, with its unique key if it had a key. If
// another job has taken that key, Requeue changes nothing and sets TakenBy.
func (j Jobs) Requeue(ctx context.Context, q row.Querier, r row.Requeue, now time.Time) (out row.Requeued, err error) {
	found, err := rows.One(ctx, q, sqlDeadJob, []any{r.ID}, &out.Queue, &out.Live)
	if err != nil || !found || out.Live {
		return out, err
	}
	if r.Queue != "" {
		out.Queue = r.Queue
	}
	if err := ensureKeyTriggers(ctx, q, false); err != nil {
		return out, err
	}
	if out.Key, out.TakenBy, err = j.RetakeUnique(ctx, q, r.ID, out.Queue, now.Unix(), now.UnixMilli()); err != nil || out.TakenBy != 0 {
		return out, err
	}
	runAt := now.Unix()
	if !r.RunAt.IsZero() {
		runAt = rows.SecondUp(r.RunAt)
	}
	var payload any // NULL keeps the payload
	if r.Payload != nil {
		payload = *r.Payload
	}
	if _, err := rows.Inserted(ctx, q, sqlRequeueJob, 1, r.ID, out.Queue, runAt, r.Attempts, payload); err != nil {
		return out, err
	}
	for _, query := range []string{sqlRequeueSide, sqlForgetDead} {
		n, err := rows.Affected(ctx, q, query, r.ID)
		if err != nil {
			return out, err
		}
		if n == 0 {
			return out, row.ErrStuck // the job would be in both tables
		}
	}
	out.Done = true
	return out, nil
}

// sqlMarkRequeued uses the primary key. Every requeued job has a side row.
const sqlMarkRequeued = `UPDATE _honkerx_job SET requeue = ?2 WHERE job_id IN (SELECT value FROM json_each(?1))`

// MarkRequeued stores the audit entry of their requeue with the jobs in ids.
func (Jobs) MarkRequeued(ctx context.Context, q row.Querier, ids []int64, entry int64) error {
	_, err := q.ExecContext(ctx, sqlMarkRequeued, rows.IDList(ids), entry)
	return err
}

// Base returns the number of attempts that a live job had when it was last requeued, or 0 if it
// never was.
func (Jobs) Base(ctx context.Context, q row.Querier, id int64) (int64, error) {
	var base rows.Number
	_, err := rows.One(ctx, q, sqlJobBase, []any{id}, &base)
	return int64(base), err
}

// These statements use the primary keys.
const (
	sqlDiscard = `DELETE FROM _honker_dead WHERE id IN (SELECT value FROM json_each(?1))
  AND (?2 OR NOT EXISTS (SELECT 1 FROM _honkerx_after AS a WHERE a.job_id = _honker_dead.id AND a.state = 2)) RETURNING id, queue`

	whereCancelled = ` WHERE id IN (SELECT value FROM json_each(?1)) AND (?2 OR state <> 'processing' OR claim_expires_at < ?3)`
	sqlCancelMany  = `DELETE FROM _honker_live` + whereCancelled + ` RETURNING id, queue`

	sqlRunNow = `UPDATE _honker_live SET run_at = ?2
WHERE id IN (SELECT value FROM json_each(?1)) AND state = 'pending' AND run_at > ?2 RETURNING id, queue`
)

// sqlEndEdgesCancelMany uses the primary keys.
var sqlEndEdgesCancelMany = endsEdges(whereCancelled)

// Discard deletes the dead jobs among ids.
func (j Jobs) Discard(ctx context.Context, q row.Querier, ids []int64, w row.Waiters) (out row.Removed, err error) {
	if w == row.DropWaiters {
		if out.Waiters, err = j.dropWaiters(ctx, q, ids); err != nil {
			return out, err
		}
	}
	out.Jobs, err = changes(ctx, q, sqlDiscard, rows.IDList(ids), w != row.KeepWaiters)
	return out, err
}

// sqlCancellable uses the primary key.
const sqlCancellable = `SELECT id FROM _honker_live` + whereCancelled

// CancelMany deletes the live jobs among c.IDs. Jobs with a valid claim keep their places in queues with
// limits.
func (j Jobs) CancelMany(ctx context.Context, q row.Querier, c row.CancelJobs, now time.Time) (out row.Removed, err error) {
	ids, second := c.IDs, now.Unix()
	switch c.Waiters {
	case row.DropWaiters:
		some, err := rows.ReturnedIDs(ctx, q, sqlCancellable, len(ids), rows.IDList(ids), c.Running, second)
		if err != nil {
			return out, err
		}
		if out.Waiters, err = j.dropWaiters(ctx, q, some); err != nil {
			return out, err
		}
	case row.KeepWaiters:
		if ids, err = j.unawaited(ctx, q, ids); err != nil {
			return out, err
		}
	}
	list := rows.IDList(ids)
	if c.Running {
		if _, err := q.ExecContext(ctx, sqlKeepPlaceMany, list, c.Running, second); err != nil {
			return out, err
		}
	}
	if _, err := q.ExecContext(ctx, sqlEndEdgesCancelMany, list, c.Running, second); err != nil {
		return out, err
	}
	out.Jobs, err = changes(ctx, q, sqlCancelMany, list, c.Running, second)
	return out, err
}

// RunNow makes the scheduled jobs among ids due at now.
func (Jobs) RunNow(ctx context.Context, q row.Querier, ids []int64, now time.Time) ([]row.Change, error) {
	return changes(ctx, q, sqlRunNow, rows.IDList(ids), now.Unix())
}

// These statements use the primary keys.
var (
	sqlBury = intoDead + `coalesce(nullif(` + ofSide("last_error") + `, ''), '` + row.ReasonBuried + `'), created_at, ?3 FROM _honker_live` + whereCancelled + `
RETURNING id, queue, attempts`
	sqlDropBuried = `DELETE FROM _honker_live WHERE id IN (SELECT value FROM json_each(?1))`
)

// Bury moves the live jobs among ids to the dead letters, except those with a valid claim.
func (Jobs) Bury(ctx context.Context, q row.Querier, ids []int64, now time.Time) (dead []row.Death, err error) {
	var died []int64
	err = rows.Each(ctx, q, sqlBury, func(r *sql.Rows) error {
		d := row.Death{Reason: row.ReasonBuried}
		err := r.Scan(&d.ID, &d.Queue, (*rows.Number)(&d.Attempts))
		dead, died = append(dead, d), append(died, d.ID)
		return err
	}, rows.IDList(ids), false, now.Unix())
	if err != nil || len(dead) == 0 {
		return nil, err
	}
	n, err := rows.Affected(ctx, q, sqlDropBuried, rows.IDList(died))
	if err == nil && n != len(dead) {
		return nil, row.ErrStuck // a job would be in both tables
	}
	return dead, err
}

func changes(ctx context.Context, q row.Querier, query string, args ...any) (out []row.Change, err error) {
	err = rows.Each(ctx, q, query, func(r *sql.Rows) error {
		var c row.Change
		err := r.Scan(&c.ID, &c.Queue)
		out = append(out, c)
		return err
	}, args...)
	return out, err
}
