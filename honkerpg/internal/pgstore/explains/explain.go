// Package explains contains the statements that tell why jobs wait.
package explains

import (
	"cmp"
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/jobs"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

// Explains contains the statements that predict claims.
type Explains struct{ pgsql.Schema }

// Explain implements engine.OperatorStore.
func (s Explains) Explain(ctx context.Context, q row.Querier, ids []int64, r row.ExplainRequest, now time.Time) ([]row.Explained, error) {
	x := s.explainer(q, r, now)
	all := make([]row.Explained, len(ids))
	for i, id := range ids {
		var err error
		if all[i], err = x.job(ctx, id); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// ExplainQueue implements engine.OperatorStore.
func (s Explains) ExplainQueue(ctx context.Context, q row.Querier, queue string, r row.ExplainRequest, now time.Time) (ex row.ExplainedQueue, err error) {
	x := s.explainer(q, r, now)
	o, err := x.forecast(ctx, queue)
	if err != nil {
		return ex, err
	}
	first, waits, n, err := o.first(ctx)
	if err != nil {
		return ex, err
	}
	ex.Queue, ex.Ahead, ex.First = o.QueueForecast, n, first
	if o.Running > 0 {
		if ex.Running, err = x.occupants(ctx, o, ""); err != nil {
			return ex, err
		}
	}
	id := cmp.Or(first, waits)
	if id == 0 {
		return ex, nil
	}
	head, err := x.job(ctx, id)
	if err != nil {
		return ex, err
	}
	ex.Head = &head
	if n == (row.Count{}) {
		ex.Next, err = jobs.Jobs{Schema: s.Schema}.NextClaim(ctx, q, queue, now)
	}
	return ex, err
}

// explainer explains jobs within a single call. It reads each queue's state only once.
type explainer struct {
	row.ExplainRequest
	reader
	forecasts map[string]*forecast // by queue
}

// reader reads a schema as of a time.
type reader struct {
	pgsql.Schema
	q   row.Querier
	now time.Time
}

func (r reader) each(ctx context.Context, query string, f func(rows *sql.Rows) error, args ...any) error {
	return pgsql.Each(ctx, r.q, r.SQL(query), f, args...)
}

func (r reader) one(ctx context.Context, query string, args []any, dest ...any) error {
	_, err := pgsql.One(ctx, r.q, r.SQL(query), args, dest...)
	return err
}

func (r reader) ids(ctx context.Context, query string, args ...any) ([]int64, error) {
	return pgsql.IDs(ctx, r.q, r.SQL(query), args...)
}

func (s Explains) explainer(q row.Querier, r row.ExplainRequest, now time.Time) *explainer {
	return &explainer{r, reader{s.Schema, q, pgsql.Stamp(now)}, make(map[string]*forecast)}
}

func (x *explainer) forecast(ctx context.Context, queue string) (o *forecast, err error) {
	if o := x.forecasts[queue]; o != nil {
		return o, nil
	}
	if o, err = x.newForecast(ctx, queue, x.MaxAhead); err == nil {
		x.forecasts[queue] = o
	}
	return o, err
}

const sqlHighest = `SELECT coalesce(pg_sequence_last_value('honker.job_id_seq'), 0)`

// job explains the live, dead or done job with the given id.
func (x *explainer) job(ctx context.Context, id int64) (ex row.Explained, err error) {
	ex.Job, ex.Found, err = jobs.Jobs{Schema: x.Schema}.Find(ctx, x.q, id, "")
	switch {
	case err != nil:
	case !ex.Found:
		err = x.one(ctx, sqlHighest, nil, &ex.Highest)
	case x.waits(&ex.Job):
		err = x.waiting(ctx, &ex)
	}
	return ex, err
}

// waits reports whether a job waits for a claim and can still run.
func (x *explainer) waits(j *row.Job) bool {
	switch j.Phase(x.now) {
	case row.PhaseRunning, row.PhaseDead, row.PhaseDone:
		return false
	}
	return (j.ExpiresAt.IsZero() || j.ExpiresAt.After(x.now)) && j.Attempts < j.MaxAttempts
}

// waiting explains a job that waits for a claim.
func (x *explainer) waiting(ctx context.Context, ex *row.Explained) (err error) {
	if ex.Side, err = x.side(ctx, ex.Job.ID); err != nil {
		return err
	}
	o, err := x.forecast(ctx, ex.Job.Queue)
	if err != nil {
		return err
	}
	ex.Queue = o.QueueForecast
	if ex.Job.State == row.Held {
		if err := x.edges(ctx, o, ex); err != nil {
			return err
		}
	}
	if ex.Job.RunAt.After(x.now) {
		ex.Forecast, err = o.lasting(ctx, &ex.Job)
	} else {
		ex.Forecast, err = o.of(ctx, &ex.Job, ex.Side)
	}
	if err == nil && ex.Forecast.QueueFull {
		ex.Running, err = x.occupants(ctx, o, "")
	}
	if err == nil && ex.Forecast.KeyFull {
		ex.OfKey, err = x.occupants(ctx, o, ex.Job.Key)
	}
	return err
}

// sqlSide finds the job that holds the unique key of a job by the edge to it.
const sqlSide = `SELECT j.state = 2, coalesce((SELECT e.parent FROM honker.edge e WHERE e.waiter = j.id AND e.batch = -1 AND e.state = 0), 0)
FROM honker.job j WHERE j.id = $1`

// side returns the parts of a job's state that explain why it waits.
func (x *explainer) side(ctx context.Context, id int64) (s row.JobSide, err error) {
	err = x.one(ctx, sqlSide, []any{id}, &s.Held, &s.After)
	return s, err
}

// The edges of a waiter have its id first in the primary key. The edge to the holder of a unique key is not among them.
const sqlOpenEdges = `(SELECT parent, batch, true FROM honker.edge WHERE waiter = $1 AND batch <> -1 AND state = 2 ORDER BY parent, batch LIMIT $2)
UNION ALL (SELECT parent, batch, false FROM honker.edge WHERE waiter = $1 AND batch <> -1 AND state = 0 ORDER BY parent, batch LIMIT $2)`

// edges reads the jobs and batches that a held job waits for, unless the next claim releases the job.
func (x *explainer) edges(ctx context.Context, o *forecast, ex *row.Explained) error {
	if ex.Freed = o.freed[ex.Job.ID]; ex.Freed {
		return nil
	}
	err := x.each(ctx, sqlOpenEdges, func(r *sql.Rows) error {
		var e row.Edge
		err := r.Scan(&e.Job, &e.Batch, &e.Dead)
		ex.Edges = append(ex.Edges, e)
		return err
	}, ex.Job.ID, x.MaxJobs+1)
	if err != nil {
		return err
	}
	batches := jobs.Batches{Schema: x.Schema}
	for _, e := range ex.Edges {
		if e.Job != 0 {
			continue
		}
		b, _, err := batches.Get(ctx, x.q, e.Batch, x.now)
		if err != nil {
			return err
		}
		ids, err := batches.Members(ctx, x.q, e.Batch, b.Dead > 0, x.MaxJobs)
		if err != nil {
			return err
		}
		ex.Batches = append(ex.Batches, row.EdgeBatch{Batch: b, Jobs: ids})
	}
	return nil
}

const (
	sqlRunningJobs   = `SELECT honker.running_jobs($1, $2, $3, $4)`
	sqlCancelledJobs = `SELECT honker.cancelled_jobs($1, $2, $3, $4)`
)

// occupants returns the jobs that count toward a queue's limit, or toward a key's limit.
func (x *explainer) occupants(ctx context.Context, o *forecast, key string) (by row.Occupants, err error) {
	k := sql.NullString{String: key, Valid: key != ""}
	if by.Running, err = x.ids(ctx, sqlRunningJobs, o.Name, k, x.MaxJobs, x.now); err != nil || o.Cancelled == 0 {
		return by, err
	}
	by.Cancelled, err = x.ids(ctx, sqlCancelledJobs, o.Name, k, x.MaxJobs, x.now)
	return by, err
}
