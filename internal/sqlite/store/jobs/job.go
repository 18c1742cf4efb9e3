// Package jobs contains the statements for jobs: enqueuing, claiming and settling, limits, unique keys, edges, dead
// letters and results.
package jobs

import (
	"cmp"
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// Jobs contains the statements for _honker_live, _honker_dead and _honkerx_job.
type Jobs struct{}

const liveTable = `_honker_live`

var sqlInsertJobs = rows.NewInserts(liveTable, `queue, priority, run_at, max_attempts, created_at, expires_at, payload`, 6, 1)

// InsertOne enqueues a job and returns its id.
func (Jobs) InsertOne(ctx context.Context, q row.Querier, n NewJob, payload string) (int64, error) {
	return sqlInsertJobs.One(ctx, q, append(newJobColumns(n), payload)...)
}

// newJobColumns returns the values that are the same for all jobs in an enqueue.
func newJobColumns(n NewJob) []any {
	return append(make([]any, 0, 7), n.Queue, n.Priority, n.RunAt, n.MaxAttempts, n.CreatedAt, rows.Nullable(n.ExpiresAt))
}

// InsertMany enqueues a job for each payload and returns their ids, which increase in the order of
// payloads. All other columns are taken from n. On error it returns the ids of the jobs inserted
// before the failure.
func (Jobs) InsertMany(ctx context.Context, q row.Querier, n NewJob, payloads []string) ([]int64, error) {
	ids := make([]int64, 0, len(payloads))
	row := func(args []any, i int) []any { return append(args, payloads[i]) }
	err := sqlInsertJobs.Run(ctx, q, newJobColumns(n), len(payloads), row, func(first, last int64) {
		for id := first; id <= last; id++ {
			ids = append(ids, id)
		}
	})
	return ids, err
}

// sqlInsertClaimed inserts a job and claims it in the same statement, unless a claim would have
// found another job first. The cheap test for waiting jobs comes before the expensive test because
// usually no job waits. sqlInsertClaimedUnique inserts nothing if another job holds the key.
var (
	sqlInsertClaimed = `INSERT INTO _honker_live
  (queue, created_at, priority, run_at, max_attempts, expires_at, payload, worker_id, claim_expires_at, state, attempts)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 'processing', 1
WHERE NOT EXISTS (SELECT 1 FROM _honkerx_queues WHERE queue = ?1 AND (` + hasLimits + ` OR ` + pauseHolds + `)) AND NOT ` + lapsed("?1") + ` AND (NOT ` + waiting("?1") + `
  OR NOT (` + exhausted("?1") + ` OR EXISTS (` + levels("?1") + ` SELECT 1 FROM ` + due("?1") + `)))`

	sqlInsertClaimedUnique = sqlInsertClaimed + ` AND NOT ` + keyTaken("?1", "?10", "?2", "?11")
)

// InsertClaimed enqueues a job that is due and claims it for worker until expires. The job takes the key of u, which
// is nil for a job without a unique key. InsertClaimed inserts nothing and returns nil if the queue is paused or has
// limits, if another job holds the key, or if a claim by worker would have found another job. n.CreatedAt must be now,
// and n.RunAt must not be later. u.Started must be false.
func (j Jobs) InsertClaimed(ctx context.Context, q row.Querier, n NewJob, payload string, u *Unique, worker string, expires int64) (*row.Job, error) {
	job := &row.Job{
		Queue: n.Queue, State: "processing", Payload: payload, Priority: n.Priority, RunAt: row.Instant(n.RunAt),
		WorkerID: worker, ClaimExpiresAt: row.Instant(expires), Attempts: 1, MaxAttempts: n.MaxAttempts,
		CreatedAt: row.Instant(n.CreatedAt), ExpiresAt: row.Instant(n.ExpiresAt), Headers: n.Headers,
	}
	query := sqlInsertClaimed
	args := append(make([]any, 0, 11), n.Queue, n.CreatedAt, n.Priority, n.RunAt, n.MaxAttempts, rows.Nullable(n.ExpiresAt), payload, worker, expires)
	if u != nil {
		query, args, job.Unique = sqlInsertClaimedUnique, append(args, u.Key, u.NowMS), u.Key
	}
	res, err := q.ExecContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	// If nothing was inserted, LastInsertId returns the id of an earlier insert.
	if r, err := res.RowsAffected(); err != nil || r == 0 {
		return nil, err
	}
	if job.ID, err = res.LastInsertId(); err != nil || u == nil {
		return job, err
	}
	return job, j.takeKey(ctx, q, n.Queue, job.ID, *u)
}

// jobColumns lists the columns that a claim reads. It leaves out values the caller already knows,
// such as the queue and the worker, because each column adds to the cost of a row.
const jobColumns = `id, payload, priority, run_at, attempts, max_attempts, created_at, expires_at`

// Stored is a job together with its live row's stored times. The Job's own times are limited by row.Instant.
type Stored struct {
	row.Job
	Times Times // zero if the job is not live
}

// Times are a live job's times in Unix seconds. 0 means none.
type Times struct{ RunAt, ClaimExpiresAt, CreatedAt, ExpiresAt int64 }

// jobRow scans a claim's rows, which are jobColumns and possibly more columns, into the same variables. A slice of
// pointers per row would cost an allocation per row.
type jobRow struct {
	job        row.Job
	times      Times
	carried    sql.NullString
	into       []any
	outOfRange map[int64]int64 // stored RunAt, by id, of claimed jobs whose time row.Instant has limited; usually nil
}

// newJobRow returns a jobRow for a query without further columns. For a query with further columns, callers append the
// destinations to into.
func newJobRow() *jobRow {
	r := new(jobRow)
	j, at := &r.job, &r.times
	r.into = []any{(*rows.Number)(&j.ID), &j.Payload, (*rows.Number)(&j.Priority), (*rows.Number)(&at.RunAt), (*rows.Number)(&j.Attempts),
		(*rows.Number)(&j.MaxAttempts), (*rows.Number)(&at.CreatedAt), (*rows.Number)(&at.ExpiresAt), (*rows.Text)(&j.LastError), &r.carried}
	return r
}

func (r *jobRow) scan(rs *sql.Rows) (row.Job, error) {
	err := rs.Scan(r.into...)
	job, at := r.job, r.times
	job.RunAt, job.ClaimExpiresAt = row.Instant(at.RunAt), row.Instant(at.ClaimExpiresAt)
	job.CreatedAt, job.ExpiresAt = row.Instant(at.CreatedAt), row.Instant(at.ExpiresAt)
	if r.carried.Valid {
		carry(&job, r.carried.String)
	}
	return job, err
}

// claimed scans a claimed job.
func (r *jobRow) claimed(rs *sql.Rows) (*row.Job, error) {
	job, err := r.scan(rs)
	if at := r.times.RunAt; row.Unix(job.RunAt) != at {
		if r.outOfRange == nil {
			r.outOfRange = make(map[int64]int64)
		}
		r.outOfRange[job.ID] = at
	}
	return &job, err
}

// compare compares jobs returned by r.claimed in claim order, which is determined by the stored times.
func (r *jobRow) compare(a, b *row.Job) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(r.runAt(a), r.runAt(b)), cmp.Compare(a.ID, b.ID))
}

func (r *jobRow) runAt(j *row.Job) int64 {
	if at, ok := r.outOfRange[j.ID]; ok {
		return at
	}
	return row.Unix(j.RunAt)
}

// These statements use the primary key.
var (
	sqlFindJob = `SELECT ` + jobColumns + `, ` + ofSide("last_error") + `, ` + carried + `, state, worker_id, claim_expires_at, queue, ` + ofSide("progress") + `, ` + StartOf("_honker_live") + `
FROM _honker_live WHERE id = ?1`
	sqlGetJob = sqlFindJob + ` AND queue = ?2`
)

// Live reads a live job in any queue. It returns false if there is none.
func (Jobs) Live(ctx context.Context, q row.Querier, id int64) (Stored, bool, error) {
	return getJob(ctx, q, sqlFindJob, id)
}

// Find reads a live, dead or done job in queue, or in any queue if queue is "". It returns false if there is none. It
// looks among the live jobs first and then among the dead and done jobs, the direction in which jobs move, so it does
// not miss a job that moves between two reads. The last read finds a job that was requeued in the meantime.
func (Jobs) Find(ctx context.Context, q row.Querier, id int64, queue string) (row.Job, bool, error) {
	job, found, err := find(ctx, q, id, queue)
	return job.Job, found, err
}

func find(ctx context.Context, q row.Querier, id int64, queue string) (job Stored, found bool, err error) {
	finders := [...]struct {
		find   func(ctx context.Context, q row.Querier, query string, args ...any) (Stored, bool, error)
		of, in string
	}{{getJob, sqlFindJob, sqlGetJob}, {getDead, sqlFindDead, sqlGetDead}, {getDone, sqlFindDone, sqlGetDone}, {getJob, sqlFindJob, sqlGetJob}}
	for _, f := range finders {
		if queue == "" {
			job, found, err = f.find(ctx, q, f.of, id)
		} else {
			job, found, err = f.find(ctx, q, f.in, id, queue)
		}
		if err != nil || found {
			return job, found, err
		}
	}
	return Stored{}, false, nil
}

func getJob(ctx context.Context, q row.Querier, query string, args ...any) (job Stored, found bool, err error) {
	row := newJobRow()
	j := &row.job
	row.into = append(row.into, &j.State, (*rows.Text)(&j.WorkerID), (*rows.Number)(&row.times.ClaimExpiresAt), &j.Queue, (*rows.Text)(&j.Progress), (*rows.Milli)(&j.StartedAt))
	err = rows.Each(ctx, q, query, func(r *sql.Rows) (err error) {
		found = true
		job.Job, err = row.scan(r)
		job.Times = row.times
		return err
	}, args...)
	return job, found, err
}

// Drop removes a live job from any queue, even if it is claimed. In a queue with limits, a job with a claim that is
// valid at the Unix second now keeps its slot until the claim would have expired. Drop returns false if there is no
// such job.
func (Jobs) Drop(ctx context.Context, q row.Querier, id, now int64) (bool, error) {
	if _, err := q.ExecContext(ctx, sqlKeepPlaceOf, id, now); err != nil {
		return false, err
	}
	n, err := rows.Affected(ctx, q, sqlDrop, id)
	return n > 0, err
}

// These statements use the primary key.
const (
	whereJobOf   = ` WHERE id = ?1 AND queue = ?2`
	sqlCancelJob = `DELETE FROM _honker_live` + whereJobOf + ` AND NOT ` + isAwaited
)

// sqlEndEdgesCancel uses the primary keys.
var sqlEndEdgesCancel = endsEdges(whereJobOf)

// Cancel removes a live job from queue, even if it is claimed. In a queue with limits, a job with a valid claim keeps
// its slot until the claim would have expired. Jobs that wait for the cancelled job treat it as done. Cancel returns
// false if there is no such job.
func (Jobs) Cancel(ctx context.Context, q row.Querier, queue string, id int64, now time.Time) (bool, error) {
	if _, err := q.ExecContext(ctx, sqlKeepPlace, id, queue, now.Unix()); err != nil {
		return false, err
	}
	n, err := rows.Affected(ctx, q, sqlCancelJob, id, queue)
	if err != nil || n > 0 {
		return n > 0, err
	}
	ended, err := rows.Affected(ctx, q, sqlEndEdgesCancel, id, queue)
	if err != nil || ended == 0 {
		return false, err
	}
	n, err = rows.Affected(ctx, q, sqlCancelJob, id, queue)
	return n > 0, err
}

// ForeignTriggers reports whether the table of live jobs has a trigger that honker did not create.
func (Jobs) ForeignTriggers(ctx context.Context, q row.Querier) (bool, error) {
	return rows.ForeignTriggers(ctx, q, liveTable)
}
