package store

import (
	"context"
	"database/sql"
	"math"

	"github.com/honker-go/honker/internal/row"
)

// keepsDone is the condition that the queue of a live job keeps those that are done. The first part is
// computed once for a statement, by a seek in an index that is nearly always empty; only in a file with such a
// queue is the second one asked of each job.
const keepsDone = `(EXISTS (SELECT 1 FROM _honkerx_queues AS a INDEXED BY _honkerx_queues_done WHERE a.done_count IS NOT NULL)
    AND EXISTS (SELECT 1 FROM _honkerx_queues AS k WHERE k.queue = _honker_live.queue AND k.done_count IS NOT NULL))`

// keeping is the ack of jobs of queues that keep them, at the unix second now, an SQL expression: the
// insert removes the live rows. It is one statement, so it needs no transaction around it. A queue that has
// ceased to keep jobs since the statement before it has found that it does keeps this one more.
func keeping(now, where string) string {
	return `INSERT INTO _honkerx_done (job_id, queue, payload, priority, run_at, worker_id, attempts, max_attempts, created_at,
  expires_at, done_ms, last_error, base, unique_key, headers, key, batch, progress)
SELECT id, _honker_live.queue, payload, _honker_live.priority, _honker_live.run_at, worker_id, attempts, max_attempts, created_at,
  expires_at, ` + now + ` * 1000, last_error, base, unique_key, headers, key, batch, progress
FROM _honker_live LEFT JOIN _honkerx_job AS s ON s.job_id = _honker_live.id` + where + ` AND NOT ` + isAwaited + `
  AND EXISTS (SELECT 1 FROM _honkerx_queues AS k WHERE k.queue = _honker_live.queue AND k.done_kept IS NOT NULL)`
}

// By primary keys. The arguments are those of the acks.
var (
	sqlKeep        = keeping("?4", whereClaim)
	sqlKeepAttempt = keeping("?4", whereAttempt)
	sqlKeepAll     = keeping("?3", whereAll)
	sqlKeepMany    = keeping("?3", whereMany)
)

// By primary key.
const (
	sqlFindDone = `SELECT job_id, queue, payload, priority, run_at, worker_id, attempts, max_attempts, created_at, expires_at,
  done_ms, last_error, unique_key, key, headers, batch, progress FROM _honkerx_done WHERE job_id = ?1`
	sqlGetDone = sqlFindDone + ` AND queue = ?2`
)

// FindDone reads a job of any queue that is done and was kept.
func (Jobs) FindDone(ctx context.Context, q Querier, id int64) (row.Job, bool, error) {
	return getDone(ctx, q, sqlFindDone, id)
}

// GetDone reads a job of queue that is done and was kept.
func (Jobs) GetDone(ctx context.Context, q Querier, queue string, id int64) (row.Job, bool, error) {
	return getDone(ctx, q, sqlGetDone, id, queue)
}

func getDone(ctx context.Context, q Querier, query string, args ...any) (job row.Job, found bool, err error) {
	job.State = "done"
	found, err = one(ctx, q, query, args, &job.ID, &job.Queue, &job.Payload, (*number)(&job.Priority), (*number)(&job.RunAt),
		(*text)(&job.WorkerID), (*number)(&job.Attempts), (*number)(&job.MaxAttempts), (*number)(&job.CreatedAt), (*number)(&job.ExpiresAt),
		(*number)(&job.DoneMS), (*text)(&job.LastError), (*text)(&job.Unique), (*text)(&job.Key), (*text)(&job.Headers),
		(*number)(&job.Batch), (*text)(&job.Progress))
	return job, found, err
}

// By primary keys.
const sqlSameJob = `SELECT 'live' FROM _honker_live WHERE id = ?1 AND queue = ?2 AND created_at = ?3 AND payload = ?4
UNION ALL SELECT 'dead' FROM _honker_dead WHERE id = ?1 AND queue = ?2 AND created_at = ?3 AND payload = ?4
UNION ALL SELECT 'done' FROM _honkerx_done WHERE job_id = ?1 AND queue = ?2 AND created_at = ?3 AND payload = ?4`

// Same tells where in the file the job is that has the id, queue, payload and time of creation of j: it is
// "live", "dead" or "done", and empty where there is none.
func (Jobs) Same(ctx context.Context, q Querier, j row.Job) (where string, err error) {
	_, err = one(ctx, q, sqlSameJob, []any{j.ID, j.Queue, j.CreatedAt, j.Payload}, &where)
	return where, err
}

// By primary key.
const (
	sqlSetQueueRetention = `INSERT INTO _honkerx_queues (queue, done_count, done_age_ms, done_kept, dead_count, dead_age_ms)
VALUES (?1, ?2, ?3, iif(?2 IS NULL, NULL, (SELECT count(*) FROM _honkerx_done WHERE queue = ?1)), ?4, ?5)
ON CONFLICT (queue) DO UPDATE SET done_count = excluded.done_count, done_age_ms = excluded.done_age_ms,
  done_kept = ifnull(done_kept, excluded.done_kept), dead_count = excluded.dead_count, dead_age_ms = excluded.dead_age_ms
WHERE done_count IS NOT excluded.done_count OR done_age_ms IS NOT excluded.done_age_ms
  OR dead_count IS NOT excluded.dead_count OR dead_age_ms IS NOT excluded.dead_age_ms`

	queueRetention       = `SELECT queue, done_count, done_age_ms, dead_count, dead_age_ms FROM _honkerx_queues WHERE `
	sqlGetQueueRetention = queueRetention + `queue = ?1`
	sqlQueueRetentions   = queueRetention + `done_kept > 0 OR dead_count > 0 OR dead_age_ms > 0`
)

// SetQueue sets how much of a queue is kept. It writes nothing, and returns false, where that is so already.
func (Retentions) SetQueue(ctx context.Context, q Querier, r row.QueueRetention) (changed bool, err error) {
	var doneCount, doneAge any
	if r.Done.Bounded() {
		doneCount, doneAge = r.Done.MaxCount, r.Done.MaxAgeMS
	}
	n, err := affected(ctx, q, sqlSetQueueRetention, r.Queue, doneCount, doneAge, nullable(r.Dead.MaxCount), nullable(r.Dead.MaxAgeMS))
	return n > 0, err
}

// GetQueue returns how much of a queue is kept.
func (Retentions) GetQueue(ctx context.Context, q Querier, queue string) (row.QueueRetention, error) {
	r := row.QueueRetention{Queue: queue}
	all, err := queueRetentions(ctx, q, sqlGetQueueRetention, queue)
	if len(all) > 0 {
		r = all[0]
	}
	return r, err
}

// Queues returns how much is kept of the queues that have something to trim: dead jobs, if there is a
// bound of them, or jobs that are done.
func (Retentions) Queues(ctx context.Context, q Querier) ([]row.QueueRetention, error) {
	return queueRetentions(ctx, q, sqlQueueRetentions)
}

func queueRetentions(ctx context.Context, q Querier, query string, args ...any) (all []row.QueueRetention, err error) {
	err = each(ctx, q, query, func(rows *sql.Rows) error {
		var r row.QueueRetention
		err := rows.Scan(&r.Queue, (*number)(&r.Done.MaxCount), (*number)(&r.Done.MaxAgeMS), (*number)(&r.Dead.MaxCount), (*number)(&r.Dead.MaxAgeMS))
		all = append(all, r)
		return err
	}, args...)
	return all, err
}

// Kept are the jobs of a queue that are done or dead, in the order in which they have become that.
type Kept struct {
	rank, over, drop string
	second           int64 // in the unit of their times
}

// By the indexes on queue and time; what was found is dropped by primary key.
const (
	sqlDoneRank = `SELECT done_ms, job_id FROM _honkerx_done WHERE queue = ?1 ORDER BY done_ms DESC, job_id DESC LIMIT 1 OFFSET ?2 + 0`
	sqlDoneOver = `SELECT job_id FROM _honkerx_done WHERE queue = ?1 AND done_ms <= ?2 AND (done_ms < ?2 OR job_id <= ?3)
ORDER BY done_ms, job_id LIMIT ?4 + 0`
	sqlDropDone = `DELETE FROM _honkerx_done WHERE job_id IN (SELECT value FROM json_each(?4))
  AND +queue = ?1 AND (+done_ms < ?2 OR +done_ms = ?2 AND job_id <= ?3)`

	// One that others wait for stays.
	noWaiter    = ` AND NOT EXISTS (SELECT 1 FROM _honkerx_after AS a WHERE a.job_id = _honker_dead.id)`
	sqlDeadRank = `SELECT died_at, id FROM _honker_dead WHERE queue = ?1 ORDER BY died_at DESC, id DESC LIMIT 1 OFFSET ?2 + 0`
	sqlDeadOver = `SELECT id FROM _honker_dead WHERE queue = ?1 AND died_at <= ?2 AND (died_at < ?2 OR id <= ?3)` + noWaiter + `
ORDER BY died_at, id LIMIT ?4 + 0`
	sqlDropDeadJobs = `DELETE FROM _honker_dead WHERE id IN (SELECT value FROM json_each(?4))
  AND +queue = ?1 AND (+died_at < ?2 OR +died_at = ?2 AND id <= ?3)` + noWaiter
)

var (
	KeptDone = Kept{sqlDoneRank, sqlDoneOver, sqlDropDone, 1000}
	KeptDead = Kept{sqlDeadRank, sqlDeadOver, sqlDropDeadJobs, 1}
)

// Everything is the Cutoff behind which nothing is kept.
var Everything = row.Cutoff{At: math.MaxInt64, ID: math.MaxInt64}

// Cutoff returns what r gives up of queue at the unix second now. The age is rounded up to seconds,
// since a job has ended no later than its second says. It reads as many rows as are kept by count.
func (k Kept) Cutoff(ctx context.Context, q Querier, queue string, r row.Retention, now int64) (c row.Cutoff, err error) {
	c = row.Cutoff{At: math.MinInt64, ID: math.MinInt64}
	if r.MaxAgeMS > 0 {
		c = row.Cutoff{At: (now-(r.MaxAgeMS+999)/1000)*k.second - 1, ID: math.MaxInt64}
	}
	if r.MaxCount == 0 {
		return c, nil
	}
	var last row.Cutoff
	found, err := one(ctx, q, k.rank, []any{queue, r.MaxCount}, (*number)(&last.At), (*number)(&last.ID))
	if found && (last.At > c.At || last.At == c.At && last.ID > c.ID) {
		c = last
	}
	return c, err
}

// Over returns up to limit of the jobs of queue up to c, the oldest first.
func (k Kept) Over(ctx context.Context, q Querier, queue string, c row.Cutoff, limit int) ([]int64, error) {
	return returnedIDs(ctx, q, k.over, 0, queue, c.At, c.ID, limit)
}

// Drop deletes those of ids that are still up to c, and counts them.
func (k Kept) Drop(ctx context.Context, q Querier, queue string, c row.Cutoff, ids []int64) (int, error) {
	return affected(ctx, q, k.drop, queue, c.At, c.ID, idList(ids))
}
