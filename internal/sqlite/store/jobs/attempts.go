package jobs

import (
	"context"
	"database/sql"
	_ "embed"
	"encoding/json"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// Bounds on a job's attempt history.
const (
	keptAttempts = 20
	keptLogs     = 256 << 10 // bytes of logs, over all attempts of a job
)

// These statements use the primary key.
const (
	// The rows are passed as a single JSON array, so that one statement inserts a whole batch. OR REPLACE is
	// needed because an application may have reused an id and its attempt numbers.
	sqlAddAttempts = `INSERT OR REPLACE INTO _honkerx_attempts (job_id, attempt, worker, start_ms, ran_ms, error, log)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, nullif(value ->> 6, '') FROM json_each(?1)`

	sqlDropOldAttempts = `DELETE FROM _honkerx_attempts AS a WHERE job_id IN (SELECT value FROM json_each(?1)) AND attempt <= (
  SELECT attempt FROM _honkerx_attempts WHERE job_id = a.job_id ORDER BY attempt DESC LIMIT 1 OFFSET ?2 + 0)`

	sqlDropOldLogs = `UPDATE _honkerx_attempts AS a SET log = NULL WHERE job_id IN (SELECT value FROM json_each(?1)) AND log IS NOT NULL
  AND ?2 < (SELECT sum(length(CAST(log AS BLOB))) FROM _honkerx_attempts WHERE job_id = a.job_id AND attempt >= a.attempt)`

	sqlAttempts = `SELECT attempt, worker, start_ms, ran_ms, error, log FROM _honkerx_attempts WHERE job_id = ?1 ORDER BY attempt`
)

//go:embed attempts.sql
var attemptsDDL string

var attemptTriggers = rows.SplitDDL(attemptsDDL)

// AddAttempts records failed attempts. It must run in the transaction that settles them. For each job it
// keeps the newest keptAttempts attempts, and keptLogs bytes of logs.
func (Jobs) AddAttempts(ctx context.Context, q row.Querier, failed []row.Attempt) error {
	if len(failed) == 0 {
		return nil
	}
	if err := ensureTriggers(ctx, q, "_honkerx_attempts_gone", attemptTriggers...); err != nil {
		return err
	}
	values := make([][7]any, len(failed))
	var many, logged []int64
	for i, a := range failed {
		values[i] = [7]any{a.Job, a.N, a.Worker, a.Start.UnixMilli(), a.Ran.Milliseconds(), a.Error, a.Log}
		if a.N > keptAttempts {
			many = append(many, a.Job)
		}
		if a.Log != "" && a.N > 1 {
			logged = append(logged, a.Job)
		}
	}
	list, err := json.Marshal(values)
	if err != nil {
		return err
	}
	if _, err := q.ExecContext(ctx, sqlAddAttempts, string(list)); err != nil {
		return err
	}
	if many != nil {
		if _, err := q.ExecContext(ctx, sqlDropOldAttempts, rows.IDList(many), keptAttempts); err != nil {
			return err
		}
	}
	if logged != nil {
		_, err = q.ExecContext(ctx, sqlDropOldLogs, rows.IDList(logged), keptLogs)
	}
	return err
}

// Attempts returns a job's failed attempts, oldest first.
func (Jobs) Attempts(ctx context.Context, q row.Querier, id int64) (all []row.Attempt, err error) {
	err = rows.Each(ctx, q, sqlAttempts, func(r *sql.Rows) error {
		a := row.Attempt{Job: id}
		err := r.Scan((*rows.Number)(&a.N), &a.Worker, (*rows.Milli)(&a.Start), (*rows.SpanMilli)(&a.Ran), (*rows.Text)(&a.Error), (*rows.Text)(&a.Log))
		all = append(all, a)
		return err
	}, id)
	return all, err
}
