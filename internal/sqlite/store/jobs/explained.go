package jobs

import (
	"cmp"
	"context"
	"time"

	"github.com/honker-go/honker/internal/row"
)

// Explain describes how the next claims treat each of the jobs ids, in the order of ids.
func (j Jobs) Explain(ctx context.Context, q row.Querier, ids []int64, r row.ExplainRequest, now time.Time) ([]row.Explained, error) {
	x := newExplainer(r, now)
	all := make([]row.Explained, len(ids))
	for i, id := range ids {
		var err error
		if all[i], err = x.job(ctx, q, id); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// ExplainQueue describes the next claims on queue.
func (j Jobs) ExplainQueue(ctx context.Context, q row.Querier, queue string, r row.ExplainRequest, now time.Time) (ex row.ExplainedQueue, err error) {
	x := newExplainer(r, now)
	o, err := x.forecast(ctx, q, queue)
	if err != nil {
		return ex, err
	}
	first, waits, n, err := o.first(ctx, q)
	if err != nil {
		return ex, err
	}
	ex.Queue, ex.Ahead, ex.First = o.QueueForecast, n, first
	if o.Running > 0 {
		if ex.Running, err = x.occupants(ctx, q, o, ""); err != nil {
			return ex, err
		}
	}
	id := cmp.Or(first, waits)
	if id == 0 {
		return ex, nil
	}
	head, err := x.job(ctx, q, id)
	if err != nil {
		return ex, err
	}
	ex.Head = &head
	if n != (row.Count{}) {
		return ex, nil
	}
	next, err := j.NextClaimAt(ctx, q, queue, now.UnixMilli())
	ex.Next = row.Instant(next)
	return ex, err
}

// explainer explains jobs within a single call. It reads each queue's state only once.
type explainer struct {
	row.ExplainRequest
	now       time.Time
	forecasts map[string]*forecast // by queue
}

func newExplainer(r row.ExplainRequest, now time.Time) *explainer {
	return &explainer{r, now, make(map[string]*forecast)}
}

func (x *explainer) forecast(ctx context.Context, q row.Querier, queue string) (o *forecast, err error) {
	if o := x.forecasts[queue]; o != nil {
		return o, nil
	}
	if o, err = newForecast(ctx, q, queue, x.MaxAhead, x.now.UnixMilli()); err == nil {
		x.forecasts[queue] = o
	}
	return o, err
}

// job explains the live, dead or done job with the given id.
func (x *explainer) job(ctx context.Context, q row.Querier, id int64) (ex row.Explained, err error) {
	job, found, err := find(ctx, q, id, "")
	if err != nil {
		return ex, err
	}
	ex.Job, ex.Found = job.Job, found
	switch {
	case !ex.Found:
		ex.Highest, err = highest(ctx, q)
	case x.waits(&ex.Job):
		err = x.waiting(ctx, q, &ex, job.Times.RunAt)
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

// waiting explains a job that waits for a claim. runAt is its time as stored.
func (x *explainer) waiting(ctx context.Context, q row.Querier, ex *row.Explained, runAt int64) (err error) {
	if ex.Side, err = jobSideOf(ctx, q, ex.Job.ID); err != nil {
		return err
	}
	o, err := x.forecast(ctx, q, ex.Job.Queue)
	if err != nil {
		return err
	}
	ex.Queue = o.QueueForecast
	if ex.Job.State == row.Held {
		if err := x.edges(ctx, q, o, ex); err != nil {
			return err
		}
	}
	if runAt > o.now {
		ex.Forecast, err = o.lasting(ctx, q, ex.Job)
	} else {
		ex.Forecast, err = o.of(ctx, q, ex.Job, runAt, ex.Side)
	}
	if err == nil && ex.Forecast.QueueFull {
		ex.Running, err = x.occupants(ctx, q, o, "")
	}
	if err == nil && ex.Forecast.KeyFull {
		ex.OfKey, err = x.occupants(ctx, q, o, ex.Job.Key)
	}
	return err
}

// edges reads the jobs and batches that a held job waits for, unless the next claim releases the job.
func (x *explainer) edges(ctx context.Context, q row.Querier, o *forecast, ex *row.Explained) (err error) {
	if ex.Freed = o.freed[ex.Job.ID]; ex.Freed {
		return nil
	}
	if ex.Edges, err = openEdges(ctx, q, ex.Job.ID, x.MaxJobs+1); err != nil {
		return err
	}
	for _, e := range ex.Edges {
		if e.Job != 0 {
			continue
		}
		b, _, err := Batches{}.Get(ctx, q, e.Batch, x.now)
		if err != nil {
			return err
		}
		ids, err := Batches{}.Members(ctx, q, e.Batch, b.Dead > 0, x.MaxJobs)
		if err != nil {
			return err
		}
		ex.Batches = append(ex.Batches, row.EdgeBatch{Batch: b, Jobs: ids})
	}
	return nil
}

// occupants returns the jobs that count toward a queue's limit, or toward a key's limit.
func (x *explainer) occupants(ctx context.Context, q row.Querier, o *forecast, key string) (by row.Occupants, err error) {
	if by.Running, err = runningJobs(ctx, q, o.Name, key, o.now, x.MaxJobs); err != nil || o.Cancelled == 0 {
		return by, err
	}
	by.Cancelled, err = cancelledJobs(ctx, q, o.Name, key, o.now, x.MaxJobs)
	return by, err
}
