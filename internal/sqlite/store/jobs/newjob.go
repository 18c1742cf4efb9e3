package jobs

import (
	"context"
	"slices"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// NewJob is a job to be inserted, without its payload.
type NewJob struct {
	Queue       string
	Priority    int64
	RunAt       int64
	MaxAttempts int64
	CreatedAt   int64
	ExpiresAt   int64  // 0 means never
	Headers     string // see Side; InsertClaimed returns it
}

// newJobOf returns the job that in inserts at now. Times are rounded up to whole seconds, so that nothing happens
// earlier than requested.
func newJobOf(in *row.Insert, now time.Time) NewJob {
	n := NewJob{
		Queue: in.Queue, Priority: in.Priority, MaxAttempts: in.MaxAttempts, CreatedAt: now.Unix(), RunAt: engine.UnixAfter(now, in.Delay),
		Headers: in.Headers,
	}
	if in.Delay <= 0 && in.RunAt.After(now) {
		n.RunAt = engine.UnixUp(in.RunAt)
	}
	switch {
	case in.ExpiresIn > 0:
		n.ExpiresAt = engine.UnixAfter(now, in.ExpiresIn)
	case !in.ExpiresAt.IsZero():
		n.ExpiresAt = max(1, engine.UnixUp(in.ExpiresAt)) // 0 would mean never
	}
	return n
}

// Side holds the job attributes that honker's common columns have no room for. A plain job has none of them and needs
// no side row.
type Side struct {
	Key     string // key that the queue's limits apply to
	Headers string // JSON object
}

// none reports whether s is empty.
func (s Side) none() bool { return s == Side{} }

// Unique holds the options of an enqueue with a unique key.
//
// A key belongs to a job and then, when that job ends, to the job that waits for it, if any. No other job can take the
// key before UntilMS, even if both are gone. A store must have a single row per key and a single writer at a time, so
// that the second of two enqueues always finds the first one's row.
type Unique struct {
	Key      string
	Started  bool  // release the key when the job is first claimed, not when it ends
	UntilMS  int64 // keep the key at least until then; 0 for no minimum
	Conflict row.Conflict
	MaxMS    int64      // in a conflict: maximum delay of RunAt after the key was taken, in milliseconds; 0 for no maximum
	Links    *row.Links // in a conflict: dependencies to add to the job; see addWaits; nil for none
	NowMS    int64
}

// These values are stored with a job and determine when it releases its key.
const (
	untilFinished = 0 // when it ends
	untilStarted  = 1 // when it is first claimed
	hasStarted    = 2 // already released by a first claim that was later returned, which the attempts do not show
)

// until returns the stored value for u, untilStarted if Started is set.
func (u Unique) until() int64 {
	if u.Started {
		return untilStarted
	}
	return untilFinished
}

// Insert adds in's jobs. Jobs that only have values for their columns are rows of a single table.
func (j Jobs) Insert(ctx context.Context, q row.Querier, in *row.Insert, now time.Time) (out row.Inserted, err error) {
	if in.Links != nil {
		if err := j.checkLinks(ctx, q, in.Queue, in.Key, in.Links); err != nil {
			return out, err
		}
	}
	n := newJobOf(in, now)
	if in.Offer != nil {
		if err := j.handOver(ctx, q, in, n, now, &out); err != nil {
			return out, err
		}
	}
	if in.Unique != nil {
		return out, j.insertUniques(ctx, q, in, n, now, &out)
	}
	ids, err := j.InsertMany(ctx, q, n, in.Payloads[len(out.IDs):])
	if out.IDs == nil {
		out.IDs = ids // the usual case
	} else {
		out.IDs = append(out.IDs, ids...)
	}
	if err != nil || in.Key == "" && in.Headers == "" && in.Links == nil {
		return out, err
	}
	if err := j.SetSides(ctx, q, in.Queue, Side{Key: in.Key, Headers: in.Headers}, out.IDs); err != nil || in.Links == nil {
		return out, err
	}
	return out, j.AddLinks(ctx, q, in.Links, out.IDs)
}

// handOver inserts the first of in's jobs as claimed by its Offer and adds them to out.
//
// An application's trigger on the table of jobs may change a row after its INSERT, too late for a handler that already
// has the job. No jobs are handed over if there is such a trigger. Nor is a job that releases its key when it is first
// claimed, because a trigger on claims does that.
func (j Jobs) handOver(ctx context.Context, q row.Querier, in *row.Insert, n NewJob, now time.Time, out *row.Inserted) error {
	if in.Unique != nil && in.Unique.Started {
		return nil
	}
	if foreign, err := j.ForeignTriggers(ctx, q); err != nil || foreign {
		return err
	}
	if others, err := j.anyReady(ctx, q, in.Offer.Queues, now); err != nil || others {
		return err
	}
	expires := now.Unix() + engine.Seconds(in.Offer.Lease)
	for i, payload := range in.Payloads[:min(len(in.Payloads), in.Offer.N)] {
		var u *Unique
		if in.Unique != nil {
			of := uniqueOf(in, i, now)
			u = &of
		}
		job, err := j.InsertClaimed(ctx, q, n, payload, u, in.Offer.Worker, expires)
		if err != nil || job == nil { // not inserted: another job is due and comes first, or holds the key
			return err
		}
		out.Claimed = append(out.Claimed, job)
		out.IDs = append(out.IDs, job.ID)
		if u != nil {
			if err := j.place(ctx, q, in, row.Placed{ID: job.ID, Result: row.PlacedNew}, out); err != nil {
				return err
			}
		}
	}
	return nil
}

// anyReady reports whether a claim on any of queues would find something to do.
func (j Jobs) anyReady(ctx context.Context, q row.Querier, queues []string, now time.Time) (bool, error) {
	if len(queues) == 0 {
		return false, nil
	}
	states, err := j.States(ctx, q, queues, false, now)
	return slices.ContainsFunc(states, func(s row.QueueState) bool { return s.Ready }), err
}

// insertUniques adds the jobs of in that are not yet in out, if their keys are free. It treats the others as in requests.
func (j Jobs) insertUniques(ctx context.Context, q row.Querier, in *row.Insert, n NewJob, now time.Time, out *row.Inserted) error {
	for i := len(out.IDs); i < len(in.Payloads); i++ {
		p, err := j.InsertUnique(ctx, q, n, in.Payloads[i], uniqueOf(in, i, now))
		if err != nil {
			return err
		}
		out.IDs = append(out.IDs, p.ID)
		if err := j.place(ctx, q, in, p, out); err != nil {
			return err
		}
	}
	return nil
}

// place completes a job with a unique key and adds its outcome to out.
func (j Jobs) place(ctx context.Context, q row.Querier, in *row.Insert, p row.Placed, out *row.Inserted) error {
	out.Places = append(out.Places, p)
	return j.complete(ctx, q, in, p)
}

// complete writes the side row and the links of a job with a unique key. A replaced job keeps its limits key, gets the
// headers that belong to its new arguments, and waits for the additional jobs.
func (j Jobs) complete(ctx context.Context, q row.Querier, in *row.Insert, p row.Placed) (err error) {
	switch p.Result {
	case row.PlacedNew, row.PlacedAgain:
		err = j.setSide(ctx, q, in.Queue, Side{Key: in.Key, Headers: in.Headers}, p.ID)
		if err == nil && in.Links != nil {
			err = j.AddLinks(ctx, q, in.Links, []int64{p.ID})
		}
	case row.PlacedReplaced:
		err = j.replaceSide(ctx, q, p.Of.ID, in.Headers)
		if err == nil && in.Links != nil {
			err = j.addWaits(ctx, q, in.Links, p.ID)
		}
	}
	return err
}

// uniqueOf returns the options for in's i-th job at now.
func uniqueOf(in *row.Insert, i int, now time.Time) Unique {
	u := Unique{
		Key: in.Unique.Keys[i], Started: in.Unique.Started, Conflict: in.Unique.Conflict, Links: in.Links, NowMS: now.UnixMilli(),
	}
	if in.Unique.Keep > 0 {
		u.UntilMS = engine.DeadlineMS(now, in.Unique.Keep)
	}
	if in.Unique.MaxDelay > 0 {
		u.MaxMS = engine.DeadlineMS(time.UnixMilli(0), in.Unique.MaxDelay)
	}
	return u
}
