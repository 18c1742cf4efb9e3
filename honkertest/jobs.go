package honkertest

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker"
)

// These statements read the tables directly, as docs/file-format.md permits. They can therefore run
// in the test's own transaction and cover all queues.
const (
	selectLive = `SELECT l.id, l.queue, l.payload, l.state, l.priority, l.attempts, l.max_attempts, coalesce(l.worker_id, ''),
  coalesce(s.last_error, ''), coalesce(s.unique_key, ''), coalesce(s.key, ''), coalesce(s.headers, ''), l.created_at, l.run_at, coalesce(l.expires_at, 0), coalesce(l.claim_expires_at, 0), 0
FROM _honker_live AS l LEFT JOIN _honkerx_job AS s ON s.job_id = l.id `

	selectDead = `SELECT d.id, d.queue, d.payload, 'dead', d.priority, d.attempts, d.max_attempts, '',
  coalesce(d.last_error, ''), coalesce(s.unique_key, ''), coalesce(s.key, ''), coalesce(s.headers, ''), d.created_at, d.run_at, 0, 0, d.died_at
FROM _honker_dead AS d LEFT JOIN _honkerx_dead_job AS s ON s.job_id = d.id `

	allLive    = selectLive + `ORDER BY l.id`
	allDead    = selectDead + `ORDER BY d.id`
	allWaiting = selectLive + `WHERE l.state <> 'processing' ORDER BY l.id`
	waitingOf  = selectLive + `WHERE l.state <> 'processing' AND l.queue = ?1 ORDER BY l.id`
)

// readJobs returns the jobs selected by query, which must begin with selectLive or selectDead.
func readJobs(ctx context.Context, on honker.Tx, query string, args ...any) (jobs []honker.JobInfo, err error) {
	now := time.Now()
	err = each(ctx, on, query, func(rows *sql.Rows) error {
		var j honker.JobInfo
		var state string
		var payload, headers []byte
		var created, runAt, expires, claimExpires, died int64
		err := rows.Scan(&j.ID, &j.Queue, &payload, &state, &j.Priority, &j.Attempts, &j.MaxAttempts, &j.WorkerID,
			&j.LastError, &j.Unique, &j.Key, &headers, &created, &runAt, &expires, &claimExpires, &died)
		j.Payload = json.RawMessage(payload)
		_ = json.Unmarshal(headers, &j.Headers) // ignore headers written in another format by another program
		j.CreatedAt, j.RunAt, j.ExpiresAt = instant(created), instant(runAt), instant(expires)
		j.ClaimExpiresAt, j.DiedAt = instant(claimExpires), instant(died)
		j.State, j.Phase = phaseOf(state, &j, now)
		jobs = append(jobs, j)
		return err
	}, args...)
	return jobs, err
}

// phaseOf returns a job's state and phase, as a claim at time now would see them.
func phaseOf(stored string, j *honker.JobInfo, now time.Time) (honker.State, honker.Phase) {
	over := !j.ExpiresAt.IsZero() && j.ExpiresAt.Unix() <= now.Unix()
	spent := j.Attempts >= j.MaxAttempts
	switch stored {
	case "held":
		return honker.StatePending, honker.PhaseHeld
	case "dead":
		return honker.StateDead, honker.PhaseDead
	case "processing":
		switch {
		case j.ClaimExpiresAt.Unix() >= now.Unix():
			return honker.StateProcessing, honker.PhaseRunning
		case over || spent:
			return honker.StateProcessing, honker.PhaseExpired
		}
		return honker.StateProcessing, honker.PhaseLapsed
	}
	switch {
	case over:
		return honker.StatePending, honker.PhaseExpired
	case j.RunAt.Unix() > now.Unix():
		return honker.StatePending, honker.PhaseScheduled
	case spent:
		return honker.StatePending, honker.PhaseExpired
	}
	return honker.StatePending, honker.PhaseReady
}

// findJob returns a live or dead job, or nil if there is none.
func findJob(ctx context.Context, db *honker.DB, id int64) (*honker.JobInfo, error) {
	job, err := db.Job(ctx, id)
	if errors.Is(err, honker.ErrNotFound) {
		return nil, nil
	}
	return job, err
}

// instant converts Unix seconds to a time. 0 stands for the zero time.
func instant(unix int64) time.Time {
	if unix == 0 {
		return time.Time{}
	}
	return time.Unix(unix, 0)
}

// each calls scan for each row of a query.
func each(ctx context.Context, on honker.Tx, query string, scan func(*sql.Rows) error, args ...any) error {
	rows, err := on.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// number returns the integer selected by query, or 0 if it selects no rows.
func number(ctx context.Context, on honker.Tx, query string, args ...any) (n int64, err error) {
	err = each(ctx, on, query, func(rows *sql.Rows) error { return rows.Scan(&n) }, args...)
	return n, err
}

// change runs a statement that changes at most one row and reports whether it did.
func change(ctx context.Context, on honker.Tx, statement string, args ...any) (changed bool, err error) {
	res, err := on.ExecContext(ctx, statement, args...)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}

// describe returns a one-line description of a job for failure messages.
func describe(j *honker.JobInfo) string {
	text := fmt.Sprintf("job %d of %q, %s: %.300s", j.ID, j.Queue, j.Phase, j.Payload)
	if j.Phase == honker.PhaseScheduled {
		text += ", due " + j.RunAt.UTC().Format(time.RFC3339)
	}
	if j.LastError != "" {
		text += fmt.Sprintf(", last error %.200q", j.LastError)
	}
	return text
}
