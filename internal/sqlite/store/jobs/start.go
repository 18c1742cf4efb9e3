package jobs

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"slices"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// Starts have a table of their own: claims are faster while _honkerx_job is empty, and a trigger that deletes the row
// with its job would cost every job.
const (
	// sqlSaveStarts uses the primary keys. It skips jobs that are no longer claimed as listed.
	sqlSaveStarts = `INSERT INTO _honkerx_starts (job_id, worker, attempt, start_ms)
SELECT l.id, l.worker_id, l.attempts, p.value ->> 2 FROM json_each(?1) AS p CROSS JOIN _honker_live AS l ON l.id = p.value ->> 0
WHERE l.worker_id = ?2 AND l.attempts = p.value ->> 1 AND l.claim_expires_at >= ?3 AND l.state = 'processing'
ON CONFLICT (job_id) DO UPDATE SET worker = excluded.worker, attempt = excluded.attempt, start_ms = excluded.start_ms`

	// sqlDropStarts walks the table, which holds running jobs and jobs that have ended since the last start.
	sqlDropStarts = `DELETE FROM _honkerx_starts AS s
WHERE NOT EXISTS (SELECT 1 FROM _honker_live AS l WHERE l.id = s.job_id AND ` + isStart + `)`

	// sqlStarted walks the table, without sorting, and reads the jobs by primary key.
	sqlStarted = `SELECT l.queue, l.id, ifnull(l.worker_id, ''), l.attempts, s.start_ms
FROM _honkerx_starts AS s CROSS JOIN _honker_live AS l ON l.id = s.job_id
WHERE (?1 = '' OR l.queue = ?1) AND ` + isStart + ` AND l.claim_expires_at >= ?2
LIMIT 10000`
)

// isStart is the condition that s is the start of the current attempt of the job l. An attempt that was given back
// leaves its number to the next claim, which another worker makes, or the same one after a run_at that follows the start.
const isStart = `l.state = 'processing' AND l.worker_id = s.worker AND l.attempts = s.attempt AND l.run_at * 1000 <= s.start_ms`

// StartOf returns an expression for the start of the current attempt of the job l.
func StartOf(l string) string {
	return `(SELECT s.start_ms FROM _honkerx_starts AS s JOIN _honker_live AS l ON l.id = s.job_id WHERE s.job_id = ` + l + `.id AND ` + isStart + `)`
}

// saveStarts saves the starts of attempts that worker holds by valid claims.
func (Jobs) saveStarts(ctx context.Context, q row.Querier, all []row.StartOf, worker string, now int64) error {
	if len(all) == 0 {
		return nil
	}
	r := make([][3]int64, len(all))
	for i, s := range all {
		r[i] = [3]int64{s.ID, s.Attempt, s.At.UnixMilli()}
	}
	list, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if _, err := q.ExecContext(ctx, sqlDropStarts); err != nil {
		return err
	}
	_, err = q.ExecContext(ctx, sqlSaveStarts, string(list), worker, now)
	return err
}

// Started returns up to 10,000 running jobs of queue whose starts are saved, the longest running first. An empty queue
// means all queues.
func (Jobs) Started(ctx context.Context, q row.Querier, queue string, now time.Time) (all []row.Started, err error) {
	err = rows.Each(ctx, q, sqlStarted, func(r *sql.Rows) error {
		var s row.Started
		err := r.Scan(&s.Queue, &s.ID, &s.Worker, (*rows.Number)(&s.Attempt), (*rows.Milli)(&s.At))
		all = append(all, s)
		return err
	}, queue, now.Unix())
	slices.SortFunc(all, func(a, b row.Started) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.ID, b.ID)) })
	return all, err
}
