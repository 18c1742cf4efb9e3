package honkertest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// part is the number of jobs or events that a statement reads.
const part = 1000

// liveAndDead selects the jobs that are not done.
var liveAndDead = row.JobSelect{Phases: row.StatsPhases}

// readJobs returns the jobs selected by sel, sorted by ID, as q sees them.
func readJobs(ctx context.Context, e *engine.Engine, q engine.Querier, sel row.JobSelect) (jobs []honker.JobInfo, err error) {
	now := e.Now()
	for r := (row.ListRequest{JobSelect: sel, Order: row.OldestFirst, Limit: part, Sorted: part}); ; {
		p, err := e.Stores.Operators.List(ctx, q, r, now)
		if err != nil {
			return nil, err
		}
		for i := range p.Places {
			if job, selected := p.Jobs[i]; selected {
				jobs = append(jobs, engine.View().Job(job, now, e.Codec).(honker.JobInfo))
			}
		}
		if p.Ended || len(p.Places) == 0 {
			return jobs, nil
		}
		r.After, r.Plan = &p.Places[len(p.Places)-1], p.Plan
	}
}

// readWaiting returns the jobs of queue that wait to be claimed.
func readWaiting(ctx context.Context, e *engine.Engine, q engine.Querier, queue string) ([]honker.JobInfo, error) {
	jobs, err := readJobs(ctx, e, q, row.JobSelect{Queues: []string{queue},
		Phases: []row.Phase{row.PhaseReady, row.PhaseScheduled, row.PhaseHeld, row.PhaseExpired}})
	return slices.DeleteFunc(jobs, func(j honker.JobInfo) bool { return j.State == honker.StateProcessing }), err
}

// findJob returns a live or dead job, or nil if there is none.
func findJob(ctx context.Context, db *honker.DB, id int64) (*honker.JobInfo, error) {
	job, err := db.Job(ctx, id)
	if errors.Is(err, honker.ErrNotFound) {
		return nil, nil
	}
	return job, err
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
