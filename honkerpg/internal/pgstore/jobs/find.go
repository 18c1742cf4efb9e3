package jobs

import (
	"context"
	"database/sql"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

// stateNames are the names of job.state.
var stateNames = [...]string{"pending", "processing", row.Held, row.Held}

// stored scans a job whose columns may all be NULL.
type stored struct {
	id, state, priority, attempts, most, batch                                       sql.NullInt64
	queue, payload, worker, lastError, uniqueKey, key, headers, progress, checkpoint sql.NullString
	runAt, lease, created, expires, died, done, started                              sql.NullTime
}

// live returns the destinations of the columns of a live job, in the order of liveColumns.
func (s *stored) live() []any {
	return []any{&s.id, &s.queue, &s.state, &s.payload, &s.priority, &s.runAt, &s.worker, &s.lease,
		&s.attempts, &s.most, &s.created, &s.expires, &s.lastError, &s.uniqueKey, &s.key, &s.headers, &s.batch}
}

// job returns the job, which is zero if there is none.
func (s *stored) job() row.Job {
	if !s.id.Valid {
		return row.Job{}
	}
	j := row.Job{
		Fine: true, ID: s.id.Int64, Queue: s.queue.String, Payload: s.payload.String, Priority: s.priority.Int64, RunAt: pgsql.Instant(s.runAt),
		Attempts: s.attempts.Int64, MaxAttempts: s.most.Int64, CreatedAt: pgsql.Instant(s.created), ExpiresAt: pgsql.Instant(s.expires),
		LastError: s.lastError.String, DiedAt: pgsql.Instant(s.died), DoneAt: pgsql.Instant(s.done), Unique: s.uniqueKey.String,
		Key: s.key.String, Headers: s.headers.String, Batch: s.batch.Int64, Progress: s.progress.String, Checkpoint: s.checkpoint.String,
	}
	switch {
	case s.died.Valid:
		j.State = "dead"
	case s.done.Valid:
		j.State, j.WorkerID = "done", s.worker.String
	default:
		j.State = stateNames[s.state.Int64]
	}
	if j.State == "processing" {
		j.WorkerID, j.ClaimExpiresAt, j.StartedAt = s.worker.String, pgsql.Instant(s.lease), pgsql.Instant(s.started)
	}
	return j
}

// sqlFind is a single statement, because a job may move to another table between two statements.
const sqlFind = `SELECT f.* FROM (
  SELECT j.id, j.queue, j.state, j.payload, j.priority, j.run_at, j.worker, j.lease_until, j.attempts, j.max_attempts, j.created_at,
    j.expires_at, j.last_error, j.unique_key, j.key, j.headers, j.batch, s.progress, s.checkpoint, NULL::timestamptz, NULL::timestamptz,
    CASE WHEN ` + isStart + ` THEN s.started_at END
  FROM honker.job j LEFT JOIN honker.side s ON s.job_id = j.id WHERE j.id = $1
  UNION ALL SELECT id, queue, 0, payload, priority, run_at, NULL, NULL, attempts, max_attempts, created_at,
    NULL, last_error, unique_key, key, headers, batch, progress, checkpoint, died_at, NULL, NULL FROM honker.dead WHERE id = $1
  UNION ALL SELECT id, queue, 0, payload, priority, run_at, worker, NULL, attempts, max_attempts, created_at,
    expires_at, last_error, unique_key, key, headers, batch, progress, NULL, NULL, done_at, NULL FROM honker.done WHERE id = $1
) f WHERE $2::text = '' OR f.queue = $2 LIMIT 1`

// Find implements engine.JobStore.
func (s Jobs) Find(ctx context.Context, q row.Querier, id int64, queue string) (row.Job, bool, error) {
	var j stored
	found, err := pgsql.One(ctx, q, s.SQL(sqlFind), []any{pgsql.Replan, id, queue}, append(j.live(), &j.progress, &j.checkpoint, &j.died, &j.done, &j.started)...)
	return j.job(), found, err
}

const sqlBase = `SELECT coalesce(base, 0) FROM honker.job WHERE id = $1`

// Base implements engine.JobStore.
func (s Jobs) Base(ctx context.Context, q row.Querier, id int64) (base int64, err error) {
	_, err = pgsql.One(ctx, q, s.SQL(sqlBase), []any{pgsql.Replan, id}, &base)
	return base, err
}

// ListedColumns are the columns of the view listed that ScanListed reads.
const ListedColumns = `id, queue, state, payload, priority, run_at, worker, lease_until, attempts, max_attempts, created_at, expires_at,
  last_error, unique_key, key, headers, batch, progress, died_at, done_at, started_at`

// ScanListed scans a job of a list, without its checkpoint.
func ScanListed(r *sql.Rows) (row.Job, error) {
	var j stored
	err := r.Scan(append(j.live(), &j.progress, &j.died, &j.done, &j.started)...)
	return j.job(), err
}
