package jobs

import (
	"context"
	"database/sql"
	"math"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// keepsDone is the condition that a live job's queue keeps finished jobs. SQLite evaluates the first part once per
// statement, with a seek in an index that is nearly always empty. It evaluates the second part for each job, but
// only in a file with such a queue.
const keepsDone = `(EXISTS (SELECT 1 FROM _honkerx_queues AS a INDEXED BY _honkerx_queues_done WHERE a.done_count IS NOT NULL)
    AND EXISTS (SELECT 1 FROM _honkerx_queues AS k WHERE k.queue = _honker_live.queue AND k.done_count IS NOT NULL))`

// keeping returns the ack for jobs whose queues keep finished jobs. It inserts the rows of finished jobs, and a
// trigger on the insert deletes the live rows, so a single statement suffices without a transaction. now is an SQL
// expression for the current second. If a queue stops keeping jobs after another statement has found keepsDone
// true and before this one runs, one job too many is kept.
func keeping(now, where string) string {
	return `INSERT INTO _honkerx_done (job_id, queue, payload, priority, run_at, worker_id, attempts, max_attempts, created_at,
  expires_at, done_ms, last_error, base, unique_key, headers, key, batch, progress)
SELECT id, _honker_live.queue, payload, _honker_live.priority, _honker_live.run_at, worker_id, attempts, max_attempts, created_at,
  expires_at, ` + now + ` * 1000, last_error, base, unique_key, headers, key, batch, progress
FROM _honker_live LEFT JOIN _honkerx_job AS s ON s.job_id = _honker_live.id` + where + ` AND NOT ` + isAwaited + `
  AND EXISTS (SELECT 1 FROM _honkerx_queues AS k WHERE k.queue = _honker_live.queue AND k.done_kept IS NOT NULL)`
}

// These statements use the primary keys. They have the same parameters as the acks.
var (
	sqlKeep        = keeping("?4", whereClaim)
	sqlKeepAttempt = keeping("?4", whereAttempt)
	sqlKeepAll     = keeping("?3", whereAll)
	sqlKeepMany    = keeping("?3", whereMany)
)

// These statements use the primary key.
const (
	sqlFindDone = `SELECT job_id, queue, payload, priority, run_at, worker_id, attempts, max_attempts, created_at, expires_at,
  done_ms, last_error, unique_key, key, headers, batch, progress FROM _honkerx_done WHERE job_id = ?1`
	sqlGetDone = sqlFindDone + ` AND queue = ?2`
)

func getDone(ctx context.Context, q row.Querier, query string, args ...any) (job Stored, found bool, err error) {
	job.State = "done"
	found, err = rows.One(ctx, q, query, args, &job.ID, &job.Queue, &job.Payload, (*rows.Number)(&job.Priority), (*rows.Second)(&job.RunAt),
		(*rows.Text)(&job.WorkerID), (*rows.Number)(&job.Attempts), (*rows.Number)(&job.MaxAttempts), (*rows.Second)(&job.CreatedAt), (*rows.Second)(&job.ExpiresAt),
		(*rows.Milli)(&job.DoneAt), (*rows.Text)(&job.LastError), (*rows.Text)(&job.Unique), (*rows.Text)(&job.Key), (*rows.Text)(&job.Headers),
		(*rows.Number)(&job.Batch), (*rows.Text)(&job.Progress))
	return job, found, err
}

// sqlSameJob uses the primary keys.
const sqlSameJob = `SELECT 'live' FROM _honker_live WHERE id = ?1 AND queue = ?2 AND created_at = ?3 AND payload = ?4
UNION ALL SELECT 'dead' FROM _honker_dead WHERE id = ?1 AND queue = ?2 AND created_at = ?3 AND payload = ?4
UNION ALL SELECT 'done' FROM _honkerx_done WHERE job_id = ?1 AND queue = ?2 AND created_at = ?3 AND payload = ?4`

// Same reports where the file has a job with the given id, queue, creation time and payload: "live", "dead"
// or "done". It returns "" if there is no such job.
func (Jobs) Same(ctx context.Context, q row.Querier, id int64, queue string, created time.Time, payload string) (where string, err error) {
	_, err = rows.One(ctx, q, sqlSameJob, []any{id, queue, created.Unix(), payload}, &where)
	return where, err
}

// These statements use the primary key.
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

// QueueRetentions contains the statements for queue retentions, which are columns of _honkerx_queues.
type QueueRetentions struct{}

// SetQueue sets a queue's retention. If it is unchanged, SetQueue writes nothing and returns false.
func (QueueRetentions) SetQueue(ctx context.Context, q row.Querier, r row.QueueRetention) (changed bool, err error) {
	var doneCount, doneAge any
	if r.Done.Bounded() {
		doneCount, doneAge = r.Done.MaxCount, rows.AgeMS(r.Done.MaxAge)
	}
	n, err := rows.Affected(ctx, q, sqlSetQueueRetention, r.Queue, doneCount, doneAge, rows.Nullable(r.Dead.MaxCount), rows.Nullable(rows.AgeMS(r.Dead.MaxAge)))
	return n > 0, err
}

// Queues returns a queue's retention, or nothing if none was set. If queue is empty, it returns the retention of
// every queue that may have jobs to trim: queues with finished jobs, and queues with a bound on dead jobs.
func (QueueRetentions) Queues(ctx context.Context, q row.Querier, queue string) ([]row.QueueRetention, error) {
	if queue == "" {
		return queueRetentions(ctx, q, sqlQueueRetentions)
	}
	return queueRetentions(ctx, q, sqlGetQueueRetention, queue)
}

func queueRetentions(ctx context.Context, q row.Querier, query string, args ...any) (all []row.QueueRetention, err error) {
	err = rows.Each(ctx, q, query, func(rs *sql.Rows) error {
		var r row.QueueRetention
		var done, dead int64
		err := rs.Scan(&r.Queue, (*rows.Number)(&r.Done.MaxCount), (*rows.Number)(&done), (*rows.Number)(&r.Dead.MaxCount), (*rows.Number)(&dead))
		r.Done.MaxAge, r.Dead.MaxAge = row.Milliseconds(done), row.Milliseconds(dead)
		all = append(all, r)
		return err
	}, args...)
	return all, err
}

// Kept contains the statements that trim a queue's finished or dead jobs, in the order in which they ended.
type Kept struct {
	rank, over, drop string
	second           int64 // number of time units per second in the table
}

// These statements use the indexes on queue and time. The deletes use primary keys.
const (
	sqlDoneRank = `SELECT done_ms, job_id FROM _honkerx_done WHERE queue = ?1 ORDER BY done_ms DESC, job_id DESC LIMIT 1 OFFSET ?2 + 0`
	sqlDoneOver = `SELECT job_id FROM _honkerx_done WHERE queue = ?1 AND done_ms <= ?2 AND (done_ms < ?2 OR job_id <= ?3)
ORDER BY done_ms, job_id LIMIT ?4 + 0`
	sqlDropDone = `DELETE FROM _honkerx_done WHERE job_id IN (SELECT value FROM json_each(?4))
  AND +queue = ?1 AND (+done_ms < ?2 OR +done_ms = ?2 AND job_id <= ?3)`

	// Dead jobs that others wait for are kept.
	noWaiter    = ` AND NOT EXISTS (SELECT 1 FROM _honkerx_after AS a WHERE a.job_id = _honker_dead.id)`
	sqlDeadRank = `SELECT died_at, id FROM _honker_dead WHERE queue = ?1 ORDER BY died_at DESC, id DESC LIMIT 1 OFFSET ?2 + 0`
	sqlDeadOver = `SELECT id FROM _honker_dead WHERE queue = ?1 AND died_at <= ?2 AND (died_at < ?2 OR id <= ?3)` + noWaiter + `
ORDER BY died_at, id LIMIT ?4 + 0`
	sqlDropDeadJobs = `DELETE FROM _honker_dead WHERE id IN (SELECT value FROM json_each(?4))
  AND +queue = ?1 AND (+died_at < ?2 OR +died_at = ?2 AND id <= ?3)` + noWaiter
)

// The jobs that retention can trim. Finished jobs' times are in milliseconds, and dead jobs' times in seconds.
var (
	KeptDone = Kept{sqlDoneRank, sqlDoneOver, sqlDropDone, 1000}
	KeptDead = Kept{sqlDeadRank, sqlDeadOver, sqlDropDeadJobs, 1}
)

// Cutoff returns queue's newest job that r does not keep at the second now. The age is rounded up to whole
// seconds, because times are recorded to the second and no job may be dropped early. With r.MaxCount set, the cost
// is proportional to it.
func (k Kept) Cutoff(ctx context.Context, q row.Querier, queue string, r row.Retention, now int64) (c row.Cutoff, err error) {
	if r.MaxAge > 0 {
		c = row.Cutoff{At: k.time((now-engine.Seconds(r.MaxAge))*k.second - 1), ID: math.MaxInt64}
	}
	if r.MaxCount == 0 {
		return c, nil
	}
	var at, id rows.Number
	found, err := rows.One(ctx, q, k.rank, []any{queue, r.MaxCount}, &at, &id)
	oldest, oldestID := k.stored(c)
	if found && (int64(at) > oldest || int64(at) == oldest && int64(id) > oldestID) {
		c = row.Cutoff{At: k.time(int64(at)), ID: int64(id)}
	}
	return c, err
}

// time converts a stored time. Unlike row.Instant it accepts any value, because stored must return the same value.
func (k Kept) time(at int64) time.Time {
	if k.second == 1 {
		return time.Unix(at, 0)
	}
	return time.UnixMilli(at)
}

// stored returns c as the stored time and id of a row.
func (k Kept) stored(c row.Cutoff) (at, id int64) {
	switch {
	case c.At.IsZero() && c.ID == 0:
		return math.MinInt64, math.MinInt64
	case c == row.Everything:
		return math.MaxInt64, math.MaxInt64
	case k.second == 1:
		return c.At.Unix(), c.ID
	}
	return c.At.UnixMilli(), c.ID
}

// parts returns a part for each queue that may have jobs to trim at a time. A queue without a bound on done jobs
// keeps none.
func (k Kept) parts(ctx context.Context, q row.Querier, at time.Time) ([]row.Part, error) {
	queues, err := QueueRetentions{}.Queues(ctx, q, "")
	parts := make([]row.Part, len(queues))
	for i, r := range queues {
		parts[i] = row.Part{Name: r.Queue, Through: row.Everything}
		keep, all := r.Done, r.Done == row.Retention{}
		if k == KeptDead {
			keep, all = r.Dead, false
		}
		if err != nil || all {
			continue
		}
		parts[i].Through, err = k.Cutoff(ctx, q, r.Queue, keep, at.Unix())
	}
	return parts, err
}

// find returns up to limit of the queue's jobs up to and including part.Through, oldest first.
func (k Kept) find(ctx context.Context, q row.Querier, part row.Part, _ time.Time, limit int) ([]int64, error) {
	at, id := k.stored(part.Through)
	return rows.ReturnedIDs(ctx, q, k.over, 0, part.Name, at, id, limit)
}

// take deletes the jobs among ids that are still at or before part.Through.
func (k Kept) take(ctx context.Context, q row.Querier, part row.Part, ids []int64, _ time.Time, _ int) (row.Swept, error) {
	at, id := k.stored(part.Through)
	return rows.Swept(rows.Affected(ctx, q, k.drop, part.Name, at, id, rows.IDList(ids)))
}
