package store

import (
	"context"

	"github.com/honker-go/honker/internal/row"
)

// A seek per queue, over the queues with waiting, running and held jobs. SELECT DISTINCT would read
// every job.
var sqlQueues = `WITH RECURSIVE
  ` + waitingSpan.names("waiting") + `,
  ` + claimedSpan.names("running") + `,
  ` + heldSpan.names("held") + `
SELECT queue FROM waiting WHERE queue IS NOT NULL UNION SELECT queue FROM running WHERE queue IS NOT NULL
UNION SELECT queue FROM held WHERE queue IS NOT NULL`

// Queues returns the queues that have live jobs.
func (Jobs) Queues(ctx context.Context, q row.Querier) ([]string, error) {
	return texts(ctx, q, sqlQueues)
}

// The statement reads every waiting job of the queue, so callers should run it without the write
// lock. An index on expires_at would make every job more expensive for the sake of a rare sweep.
var sqlExpired = `SELECT id` + whereExpired + ` UNION ALL SELECT id` + whereExpiredLapsed + ` UNION ALL SELECT id` + whereExpiredHeld + ` LIMIT ?3 + 0`

// By primary key.
var (
	whereExpiredIDs = ` FROM _honker_live WHERE id IN (SELECT value FROM json_each(?1)) AND expires_at <= ?2
  AND (state = 'pending' OR state = 'processing' AND claim_expires_at < ?2
    OR state = 'held' AND ` + heldToStart + `)`

	sqlDeadLetterExpiredIDs = intoDead + `'` + row.ReasonExpired + `', created_at, ?2` + whereExpiredIDs
)

const (
	whereOverResults = ` FROM _honker_results WHERE expires_at <= ?1 AND NOT ` + isWanted

	sqlOverResults = `SELECT job_id` + whereOverResults + ` LIMIT ?2 + 0`
	sqlDropResults = `DELETE` + whereOverResults + ` AND job_id IN (SELECT value FROM json_each(?2))`

	whereOverPlaces = ` FROM _honkerx_cancelled WHERE until_ms <= ?1 * 1000`

	sqlOverPlaces = `SELECT job_id` + whereOverPlaces + ` LIMIT ?2 + 0`
	sqlDropPlaces = `DELETE` + whereOverPlaces + ` AND job_id IN (SELECT value FROM json_each(?2))`

	whereOverBatches = ` FROM _honkerx_batches AS b WHERE done_ms < ?1 * 1000
  AND NOT EXISTS (SELECT 1 FROM _honkerx_after AS a WHERE a.job_id = 0 AND a.batch = b.id)`

	sqlOverBatches = `SELECT id` + whereOverBatches + ` LIMIT ?2 + 0`
	sqlDropBatches = `DELETE` + whereOverBatches + ` AND id IN (SELECT value FROM json_each(?2))`
)
