package jobs

import (
	"context"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// Cancelling a running job deletes it immediately, and its worker notices that the row is gone. The handler
// may still run for a while, so in a queue with limits a row in _honkerx_cancelled keeps the job's slot.
// Other bindings delete the job's row as they do for an ack, so a job that they cancel gives up its slot
// immediately.

// cancelled returns the query for the number of cancelled jobs that still occupy a slot in queue at nowMS.
// If key is not empty, only jobs with that key count. The arguments are SQL expressions.
func cancelled(queue, key, nowMS string) string {
	of := `z.queue = ` + queue
	if key != "" {
		of += ` AND z.key = ` + key
	}
	return `(SELECT count(*) FROM _honkerx_cancelled AS z WHERE ` + of + ` AND z.until_ms > ` + nowMS + `)`
}

// firstPlace returns the query for the second at which the first slot held by a cancelled job in queue
// expires or has expired. It is NULL if there is none.
func firstPlace(queue string) string {
	return `SELECT min(z.until_ms) / 1000 FROM _honkerx_cancelled AS z WHERE z.queue = ` + queue
}

// unfitted returns a condition on a row of _honkerx_queues. It is true if a claim must first adapt jobs to
// changed limits, or delete slots that expired by the second ?2. Only a queue with limits can have such
// slots.
func unfitted(queue string) string {
	return `(fit_job IS NOT NULL OR ` + hasPlaces + `
      AND EXISTS (SELECT 1 FROM _honkerx_cancelled AS z WHERE z.queue = ` + queue + ` AND z.until_ms <= ?2 * 1000))`
}

// hasPlaces is a condition on a row of _honkerx_queues: the queue's cancelled jobs may keep their slots. If
// running is set these are all running jobs, and otherwise the running jobs with a key.
const hasPlaces = `coalesce(running, per_key, in_order) IS NOT NULL`

// keepingPlaces returns the statement that keeps the slots of the running jobs selected by where, in queues
// with limits. It must run before the jobs are deleted. A slot expires after the last second of the claim,
// and at the end of the year 9999 if the claim has no limit. now is an SQL expression.
func keepingPlaces(where, now string) string {
	return `INSERT OR REPLACE INTO _honkerx_cancelled (job_id, queue, key, worker, attempt, until_ms)
SELECT l.id, l.queue, s.key, ifnull(l.worker_id, ''), CAST(l.attempts AS INTEGER), (min(CAST(l.claim_expires_at AS INTEGER), 253402300798) + 1) * 1000
FROM _honker_live AS l CROSS JOIN _honkerx_queues AS q ON q.queue = l.queue
LEFT JOIN _honkerx_job AS s ON s.job_id = l.id AND s.key IS NOT NULL
WHERE l.id IN (SELECT id FROM _honker_live` + where + `) AND l.state = 'processing' AND l.claim_expires_at >= ` + now + `
  AND (q.running IS NOT NULL OR s.key IS NOT NULL AND coalesce(q.per_key, q.in_order) IS NOT NULL)`
}

// These statements use the primary keys.
var (
	sqlKeepPlace     = keepingPlaces(whereJobOf, "?3")
	sqlKeepPlaceOf   = keepingPlaces(` WHERE id = ?1`, "?2")
	sqlKeepPlaceMany = keepingPlaces(whereCancelled, "?3")
)

// These statements use the primary key. A worker holds at most one slot per job.
const (
	sqlFreePlace   = `DELETE FROM _honkerx_cancelled WHERE job_id = ?1 AND worker = ?2 AND attempt = ?3`
	sqlRenewPlaces = `UPDATE _honkerx_cancelled SET until_ms = max(until_ms, ?4)
WHERE job_id IN (SELECT value FROM json_each(?1)) AND worker = ?2 AND until_ms > ?3`
)

// These statements use _honkerx_cancelled_key.
const (
	sqlDropPlacesOver = `DELETE FROM _honkerx_cancelled WHERE queue = ?1 AND until_ms <= ?2 * 1000`
	sqlCountPlaces    = `SELECT count(*) FROM _honkerx_cancelled WHERE queue = ?1 AND until_ms > ?2 * 1000`
)

// dropPlace deletes a cancelled job's slot after its handler has returned.
func (Jobs) dropPlace(ctx context.Context, q row.Querier, c row.Claim) error {
	_, err := q.ExecContext(ctx, sqlFreePlace, c.ID, c.Worker, c.Attempt)
	return err
}

// renewPlaces extends the slots that worker still holds for cancelled jobs among ids. They expire together
// with a claim that expires at expires. Both times are in Unix seconds.
func (Jobs) renewPlaces(ctx context.Context, q row.Querier, ids []int64, worker string, now, expires int64) error {
	_, err := q.ExecContext(ctx, sqlRenewPlaces, rows.IDList(ids), worker, now*1000, (expires+1)*1000)
	return err
}

// Places returns the number of cancelled jobs that still occupy a slot in queue.
func (Limits) Places(ctx context.Context, q row.Querier, queue string, now time.Time) (n int64, err error) {
	_, err = rows.One(ctx, q, sqlCountPlaces, []any{queue, now.Unix()}, &n)
	return n, err
}
