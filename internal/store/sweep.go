package store

import "context"

// One seek per queue: the pending ones, and those that have only jobs in flight.
const sqlQueues = `WITH RECURSIVE
  waiting(queue) AS (
    SELECT (SELECT min(queue) FROM _honker_live INDEXED BY _honkerx_live_pending WHERE state = 'pending')
    UNION ALL
    SELECT (SELECT min(queue) FROM _honker_live INDEXED BY _honkerx_live_pending WHERE state = 'pending' AND queue > w.queue)
    FROM waiting AS w WHERE w.queue IS NOT NULL),
  running(queue) AS (
    SELECT (SELECT min(queue) FROM _honker_live INDEXED BY _honker_live_processing_deadline WHERE state = 'processing')
    UNION ALL
    SELECT (SELECT min(queue) FROM _honker_live INDEXED BY _honker_live_processing_deadline WHERE state = 'processing' AND queue > r.queue)
    FROM running AS r WHERE r.queue IS NOT NULL)
SELECT queue FROM waiting WHERE queue IS NOT NULL UNION SELECT queue FROM running WHERE queue IS NOT NULL`

// Queues lists the queues that have live jobs.
func (Jobs) Queues(ctx context.Context, q Querier) ([]string, error) {
	return texts(ctx, q, sqlQueues)
}

// Reads all that waits on the queue, so not under the write lock. An index would cost
// every job.
const sqlExpired = `SELECT id` + whereExpired + ` LIMIT ?3 + 0`

// Expired returns up to limit jobs of queue that wait and were to start by now.
func (Jobs) Expired(ctx context.Context, q Querier, queue string, now int64, limit int) ([]int64, error) {
	return returnedIDs(ctx, q, sqlExpired, 0, queue, now, limit)
}

// By primary key.
const (
	whereExpiredIDs = ` FROM _honker_live WHERE id IN (SELECT value FROM json_each(?1)) AND state = 'pending' AND expires_at <= ?2`

	sqlBuryExpiredIDs = intoDead + `'` + ReasonExpired + `', created_at, ?2` + whereExpiredIDs
	sqlDropExpiredIDs = `DELETE` + whereExpiredIDs
)

// DeadLetterExpired moves those of ids to the dead that still wait and have expired.
func (Jobs) DeadLetterExpired(ctx context.Context, q Querier, ids []int64, now int64) (int, error) {
	n, err := affected(ctx, q, sqlBuryExpiredIDs, idList(ids), now)
	if err == nil && n > 0 {
		_, err = q.ExecContext(ctx, sqlDropExpiredIDs, idList(ids), now)
	}
	return n, err
}

const (
	whereOverResults = ` FROM _honker_results WHERE expires_at <= ?1`

	sqlOverResults  = `SELECT job_id` + whereOverResults + ` LIMIT ?2 + 0`
	sqlDropResults  = `DELETE` + whereOverResults + ` AND job_id IN (SELECT value FROM json_each(?2))`
	sqlOverWindows  = `SELECT rowid` + whereOverWindows + ` LIMIT ?2 + 0`
	sqlDropWindows  = `DELETE` + whereOverWindows + ` AND rowid IN (SELECT value FROM json_each(?2))`
	sqlOldMessages  = `SELECT id` + whereOldMessages + ` LIMIT ?2 + 0`
	sqlDropMessages = `DELETE` + whereOldMessages + ` AND id IN (SELECT value FROM json_each(?2))`

	whereOldMessages = ` FROM _honker_notifications WHERE created_at < ?1`

	// A window says not how long it is: it is over when a later one has begun. Two limits
	// may share a name, so not before it is old.
	whereOverWindows = ` FROM _honker_rate_limits AS w WHERE window_start < ?1
  AND EXISTS (SELECT 1 FROM _honker_rate_limits AS later WHERE later.name = w.name AND later.window_start > w.window_start)`
)

// Sweep is a kind of rows that time makes useless. Found reads the table; Drop takes the
// write lock for a few.
type Sweep struct{ find, drop string }

// The sweeps; each compares with a unix second.
var (
	SweepResults  = Sweep{sqlOverResults, sqlDropResults}  // that expire by then
	SweepWindows  = Sweep{sqlOverWindows, sqlDropWindows}  // of rate limits, that began before and are over
	SweepMessages = Sweep{sqlOldMessages, sqlDropMessages} // sent before
)

// Found returns up to limit rows that the sweep takes.
func (s Sweep) Found(ctx context.Context, q Querier, unix int64, limit int) ([]int64, error) {
	return returnedIDs(ctx, q, s.find, 0, unix, limit)
}

// Drop deletes those of ids that the sweep takes still, and counts them.
func (s Sweep) Drop(ctx context.Context, q Querier, unix int64, ids []int64) (int, error) {
	return affected(ctx, q, s.drop, unix, idList(ids))
}
