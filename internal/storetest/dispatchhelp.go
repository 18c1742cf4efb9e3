package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// dispatchTest sends jobs, and calls each of the other methods in a separate transaction. Claims last for a minute.
type dispatchTest struct {
	*Fixture
	t *testing.T
}

func (d *dispatchTest) do(f func(ctx context.Context, q engine.Querier) error) {
	d.t.Helper()
	d.mustWrite(d.t, f)
}

// insert enqueues a job with up to 2 attempts.
func (d *dispatchTest) insert(ctx context.Context, q engine.Querier, queue, payload string) int64 {
	d.t.Helper()
	in := row.Insert{Queue: queue, Payloads: []string{payload}, MaxAttempts: 2}
	out, err := d.Stores.Jobs.Insert(ctx, q, &in, start)
	require.NoError(d.t, err)
	return out.IDs[0]
}

// send sends a job with the fields in s to queue, and copies of it to the queues in twins.
func (d *dispatchTest) send(queue string, s row.Sent, twins ...string) (id int64, copies []int64) {
	d.t.Helper()
	d.do(func(ctx context.Context, q engine.Querier) error {
		require.NoError(d.t, d.Stores.Dispatches.Lock(ctx, q))
		s.ID, s.Queue, copies = d.insert(ctx, q, queue, "{}"), queue, nil
		added, err := d.Stores.Dispatches.Add(ctx, q, s, start)
		require.True(d.t, added)
		for _, twin := range twins {
			copies = append(copies, d.insert(ctx, q, twin, "{}"))
		}
		if err == nil && len(twins) > 0 {
			err = d.Stores.Dispatches.AddTwins(ctx, q, s.ID, copies)
		}
		return err
	})
	return s.ID, copies
}

func (d *dispatchTest) claims(queue string) (jobs []*row.Job) {
	d.t.Helper()
	claim := &row.ClaimRequest{Lanes: row.InOrder(queue), Worker: "worker", N: 1, Lease: time.Minute}
	return d.step(d.t, start, row.Step{Claim: claim}).Jobs
}

// claim claims the only claimable job in queue.
func (d *dispatchTest) claim(queue string) row.Claim {
	d.t.Helper()
	jobs := d.claims(queue)
	require.Len(d.t, jobs, 1)
	return row.Claim{ID: jobs[0].ID, Worker: "worker", Attempt: jobs[0].Attempts}
}

func (d *dispatchTest) ack(c row.Claim) {
	d.t.Helper()
	d.end(c, row.Acked, "")
}

func (d *dispatchTest) retry(c row.Claim, cause string) {
	d.t.Helper()
	d.end(c, row.Retried, cause)
}

// end ends a claim, which must be valid.
func (d *dispatchTest) end(c row.Claim, outcome row.Outcome, cause string) {
	d.t.Helper()
	s := &row.Settlement{Claim: c, Outcome: outcome, Error: cause}
	d.settleJobs(d.t, start, s)
	require.NotEqual(d.t, row.Lost, s.Became)
}

// stop stops a job and cancels its live jobs, as of now.
func (d *dispatchTest) stop(id int64, now time.Time) (live []row.DispatchCopy) {
	d.t.Helper()
	d.do(func(ctx context.Context, q engine.Querier) (err error) {
		live, err = d.Stores.Dispatches.Stop(ctx, q, id, now)
		for _, c := range live {
			_, err := d.Stores.Jobs.Cancel(ctx, q, c.Queue, c.ID, now)
			require.NoError(d.t, err)
		}
		return err
	})
	return live
}

func (d *dispatchTest) endStopped(id int64, now time.Time) {
	d.t.Helper()
	d.do(func(ctx context.Context, q engine.Querier) error {
		return d.Stores.Dispatches.EndStopped(ctx, q, id, now)
	})
}

func (d *dispatchTest) find(id int64, now time.Time) (s row.DispatchStatus, found bool) {
	d.t.Helper()
	d.read(d.t, func(ctx context.Context, q engine.Querier) (err error) {
		s, found, err = d.Stores.Dispatches.Status(ctx, q, "p:", id, now)
		return err
	})
	return s, found
}

func (d *dispatchTest) status(id int64) row.DispatchStatus {
	d.t.Helper()
	s, found := d.find(id, start)
	require.True(d.t, found)
	return s
}

func (d *dispatchTest) copies(id int64) (ids []int64) {
	d.t.Helper()
	d.read(d.t, func(ctx context.Context, q engine.Querier) error {
		all, err := d.Stores.Dispatches.Copies(ctx, q, id, start)
		for _, c := range all {
			ids = append(ids, c.ID)
		}
		return err
	})
	return ids
}

func (d *dispatchTest) original(id int64) (sent int64, queue string, found bool) {
	d.t.Helper()
	d.read(d.t, func(ctx context.Context, q engine.Querier) (err error) {
		sent, queue, found, err = d.Stores.Dispatches.Original(ctx, q, id)
		return err
	})
	return sent, queue, found
}

func (d *dispatchTest) saveResult(id int64, value string, expires time.Time) {
	d.t.Helper()
	d.do(func(ctx context.Context, q engine.Querier) error {
		return d.Stores.Results.Save(ctx, q, id, value, expires.Sub(start), start)
	})
}
