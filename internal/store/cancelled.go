package store

import (
	"context"

	"github.com/honker-go/honker/internal/row"
)

// A job that is cancelled while it runs is deleted at once, which is how its worker is told. Its handler may run on for
// a while, so in a queue with limits a row of _honkerx_cancelled keeps its place. Another binding deletes the row of a
// job that it cancels as it does for an ack, so there the place is free at once.

// cancelled is how many cancelled jobs of a queue, or of a key of it unless that is "", still take a place at nowMS. The arguments
// are SQL expressions.
func cancelled(queue, key, nowMS string) string {
	of := `z.queue = ` + queue
	if key != "" {
		of += ` AND z.key = ` + key
	}
	return `(SELECT count(*) FROM _honkerx_cancelled AS z WHERE ` + of + ` AND z.until_ms > ` + nowMS + `)`
}

// firstPlace is the query of the second at which the first of such places of a queue ends, or has ended; NULL for none.
func firstPlace(queue string) string {
	return `SELECT min(z.until_ms) / 1000 FROM _honkerx_cancelled AS z WHERE z.queue = ` + queue
}

// unfitted is the condition on a row of _honkerx_queues that a claim on its queue must first fit jobs to limits that
// have changed, or give up places that have ended by the second ?2. Only a queue with such limits can have places.
func unfitted(queue string) string {
	return `(fit_job IS NOT NULL OR ` + hasPlaces + `
      AND EXISTS (SELECT 1 FROM _honkerx_cancelled AS z WHERE z.queue = ` + queue + ` AND z.until_ms <= ?2 * 1000))`
}

// hasPlaces is the condition on a row of _honkerx_queues that jobs of its queue which are cancelled while they run keep
// their places, if they have a key or the first limit is there.
const hasPlaces = `coalesce(running, per_key, in_order) IS NOT NULL`

// keepingPlaces is the statement that keeps the places of those jobs that the condition where picks and that run, in
// queues with limits. It comes before they are deleted. A claim holds in its last second, and a place until that is over; one for ever
// until the last year that a time has. now is an SQL expression.
func keepingPlaces(where, now string) string {
	return `INSERT OR REPLACE INTO _honkerx_cancelled (job_id, queue, key, worker, attempt, until_ms)
SELECT l.id, l.queue, s.key, ifnull(l.worker_id, ''), CAST(l.attempts AS INTEGER), (min(CAST(l.claim_expires_at AS INTEGER), 253402300798) + 1) * 1000
FROM _honker_live AS l CROSS JOIN _honkerx_queues AS q ON q.queue = l.queue
LEFT JOIN _honkerx_job AS s ON s.job_id = l.id AND s.key IS NOT NULL
WHERE l.id IN (SELECT id FROM _honker_live` + where + `) AND l.state = 'processing' AND l.claim_expires_at >= ` + now + `
  AND (q.running IS NOT NULL OR s.key IS NOT NULL AND coalesce(q.per_key, q.in_order) IS NOT NULL)`
}

// By primary keys.
var (
	sqlKeepPlace     = keepingPlaces(whereJobOf, "?3")
	sqlKeepPlaceOf   = keepingPlaces(` WHERE id = ?1`, "?2")
	sqlKeepPlaceMany = keepingPlaces(whereCancelled, "?3")
)

// By primary key. As with claims, a worker holds one place of a job.
const (
	sqlFreePlace   = `DELETE FROM _honkerx_cancelled WHERE job_id = ?1 AND worker = ?2 AND attempt = ?3`
	sqlRenewPlaces = `UPDATE _honkerx_cancelled SET until_ms = max(until_ms, ?4)
WHERE job_id IN (SELECT value FROM json_each(?1)) AND worker = ?2 AND until_ms > ?3`
)

// By _honkerx_cancelled_key.
const (
	sqlDropPlacesOver = `DELETE FROM _honkerx_cancelled WHERE queue = ?1 AND until_ms <= ?2 * 1000`
	sqlCountPlaces    = `SELECT count(*) FROM _honkerx_cancelled WHERE queue = ?1 AND until_ms > ?2 * 1000`
)

// FreePlace gives up the place that a cancelled job has kept: its handler has returned.
func (Jobs) FreePlace(ctx context.Context, q Querier, c row.Claim) error {
	_, err := q.ExecContext(ctx, sqlFreePlace, c.ID, c.Worker, c.Attempt)
	return err
}

// RenewPlaces lets the places that worker still has for those of ids that were cancelled last as long as a claim until
// expires.
func (Jobs) RenewPlaces(ctx context.Context, q Querier, ids []int64, worker string, now, expires int64) error {
	_, err := q.ExecContext(ctx, sqlRenewPlaces, idList(ids), worker, now*1000, (expires+1)*1000)
	return err
}

// Places counts the places of cancelled jobs of queue that hold at the second now.
func (Limits) Places(ctx context.Context, q Querier, queue string, now int64) (n int64, err error) {
	_, err = one(ctx, q, sqlCountPlaces, []any{queue, now}, &n)
	return n, err
}
