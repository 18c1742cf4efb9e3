package storetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// addKeys adds a job for each of keys to queue "a".
func (d *Fixture) addKeys(t *testing.T, now time.Time, keys ...string) (ids []int64) {
	t.Helper()
	for _, key := range keys {
		in := plain()
		in.Key = key
		ids = append(ids, d.insert(t, now, in).IDs...)
	}
	return ids
}

// claimIDs claims up to n jobs of queue "a" and returns their IDs.
func (d *Fixture) claimIDs(t *testing.T, now time.Time, n int) []int64 {
	t.Helper()
	return jobIDs(d.claimJobs(t, now, "w", n))
}

// At most Running of a queue's jobs hold valid claims, with or without a key. A lapsed claim does not count. Other
// queues have their own limits.
func runningLimit(t *testing.T, d *Fixture) {
	d.setLimits(t, row.QueueLimits{Running: 2})
	ids := d.addKeys(t, start, "", "k", "", "k")
	first := d.claimJobs(t, start, "w", 9)
	require.Equal(t, ids[:2], jobIDs(first))
	require.False(t, d.queueReady(t, start))
	require.Empty(t, d.claimJobs(t, start, "other", 9))
	d.inQueues(t, 3, "b")
	require.Equal(t, "bbb", queuesOf(d.step(t, start, row.Step{Claim: &row.ClaimRequest{Lanes: row.InOrder("a", "b"), Worker: "w", N: 9, Lease: jobLease}}).Jobs))
	d.end(t, start, first[0], row.Acked)
	require.True(t, d.queueReady(t, start))
	require.Equal(t, ids[2:3], d.claimIDs(t, start, 9))
	require.Empty(t, d.claimIDs(t, start.Add(jobLease), 9), "the last second of the claims")
	require.Equal(t, ids[1:3], d.claimIDs(t, start.Add(jobLease+time.Second), 9))
}

// At most PerKey of a key's jobs run. The others are held, in order of priority, time and ID, and don't keep other jobs
// waiting. When a job ends, the next job with its key is released, and no others.
func perKeyLimit(t *testing.T, d *Fixture) {
	d.setLimits(t, row.QueueLimits{PerKey: 2})
	ids := d.addKeys(t, start, "k", "k", "k", "k", "l", "")
	claimed := d.claimJobs(t, start, "w", 4)
	require.Equal(t, []int64{ids[0], ids[1], ids[4], ids[5]}, jobIDs(claimed))
	require.Empty(t, d.claimIDs(t, start, 4))
	require.False(t, d.queueReady(t, start))
	urgent := plain()
	urgent.Key, urgent.Priority = "k", 9
	next := d.insert(t, start, urgent).IDs[0]
	require.Empty(t, d.claimIDs(t, start, 4))
	require.Equal(t, []string{row.Held, row.Held, row.Held}, []string{d.stateOf(t, ids[2]), d.stateOf(t, ids[3]), d.stateOf(t, next)})
	d.end(t, start, claimed[2], row.Acked)
	require.Empty(t, d.claimIDs(t, start, 4), "a job of another key has ended")
	for i, outcome := range []row.Outcome{row.Acked, row.Died} {
		d.end(t, start, claimed[i], outcome)
		require.True(t, d.queueReady(t, start))
		require.Equal(t, []int64{next, ids[2]}[i:i+1], d.claimIDs(t, start, 4))
	}
}

// A job that is waiting for its next attempt gives up its key's slot to the next job.
func keyPassedOn(t *testing.T, d *Fixture) {
	d.setLimits(t, row.QueueLimits{PerKey: 1})
	for _, outcome := range []row.Outcome{row.Retried, row.Snoozed} {
		ids := d.addKeys(t, start, "k", "k")
		j := d.claimJobs(t, start, "w", 9)
		require.Equal(t, ids[:1], jobIDs(j))
		require.Equal(t, row.Held, d.stateOf(t, ids[1]))
		d.settleJobs(t, start, &row.Settlement{Claim: claimOf(j[0]), Queue: "a", Outcome: outcome, Delay: time.Minute, Error: "why"})
		require.True(t, d.queueReady(t, start), "%s", outcome)
		require.Equal(t, ids[1:], d.claimIDs(t, start, 9), "%s", outcome)
		for _, id := range ids {
			d.cancelJob(t, start, id)
		}
		d.end(t, start, &row.Job{ID: ids[1], Queue: "a", WorkerID: "w", Attempts: 1}, row.Cancelled)
	}
}

// With InOrder, only a key's oldest live job runs, regardless of priority. While it waits for its next attempt, the
// later jobs wait too. If it dies, they can run.
func jobsInOrder(t *testing.T, d *Fixture) {
	d.setLimits(t, row.QueueLimits{InOrder: true})
	in := plain()
	in.Key, in.Delay = "k", 5*time.Second
	first := d.insert(t, start, in).IDs[0]
	in.Delay, in.Priority = 0, 9
	second := d.insert(t, start, in).IDs[0]
	other := d.addKeys(t, start, "l")[0]
	require.Equal(t, []int64{other}, d.claimIDs(t, start, 9))
	now := start.Add(5 * time.Second)
	j := d.claimJobs(t, now, "w", 9)
	require.Equal(t, []int64{first}, jobIDs(j))
	d.settleJobs(t, now, &row.Settlement{Claim: claimOf(j[0]), Queue: "a", Outcome: row.Retried, Delay: 3 * time.Second, Error: "why"})
	require.Empty(t, d.claimIDs(t, now, 9))
	now = now.Add(3 * time.Second)
	j = d.claimJobs(t, now, "w", 9)
	require.Equal(t, []int64{first}, jobIDs(j))
	require.Empty(t, d.claimIDs(t, now, 9))
	d.end(t, now, j[0], row.Died)
	require.Equal(t, []int64{second}, d.claimIDs(t, now, 9))
}

// A rate lets Burst jobs start at once, and then a single job in each interval. Every attempt counts as a start.
// States reports when the next job may start.
func startRate(t *testing.T, d *Fixture) {
	d.setLimits(t, row.QueueLimits{Rate: row.StartRate{N: 2, Per: 10 * time.Second, Burst: 3}})
	ids := d.addKeys(t, start, "", "k", "", "", "", "", "")
	got := d.claimJobs(t, start, "w", 9)
	require.Equal(t, ids[:3], jobIDs(got))
	require.False(t, d.queueReady(t, start))
	d.read(t, func(ctx context.Context, q engine.Querier) error {
		all, err := d.Stores.Jobs.States(ctx, q, []string{"a"}, true, start)
		require.True(t, all[0].Start.Equal(start.Add(5*time.Second)), "%+v", all[0])
		require.True(t, all[0].Limited)
		return err
	})
	d.end(t, start, got[0], row.Retried)
	require.Empty(t, d.claimIDs(t, start.Add(4999*time.Millisecond), 9))
	require.Equal(t, ids[:1], d.claimIDs(t, start.Add(5*time.Second), 9))
	require.Empty(t, d.claimIDs(t, start.Add(5*time.Second), 9))
	require.Equal(t, ids[3:4], d.claimIDs(t, start.Add(10*time.Second), 9))
	for _, j := range []int64{ids[1], ids[2], ids[0], ids[3]} {
		d.cancelJob(t, start.Add(10*time.Second), j)
	}
	require.Len(t, d.claimIDs(t, start.Add(time.Hour), 9), 3, "the burst has come back, and no more")
}

// A key's rate spaces out the starts of its jobs and doesn't delay any other jobs.
func keyStartRate(t *testing.T, d *Fixture) {
	d.setLimits(t, row.QueueLimits{KeyRate: row.StartRate{N: 1, Per: 10 * time.Second, Burst: 2}})
	ids := d.addKeys(t, start, "k", "k", "k", "k", "l", "")
	started := make(map[int64]int)
	for second := range 25 {
		for _, id := range d.claimIDs(t, start.Add(time.Duration(second)*time.Second), 9) {
			if _, again := started[id]; !again {
				started[id] = second
			}
		}
		for id := range started {
			d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
				_, err := d.Stores.Jobs.Cancel(ctx, q, "a", id, start)
				return err
			})
		}
	}
	require.Equal(t, map[int64]int{ids[0]: 0, ids[1]: 0, ids[2]: 10, ids[3]: 20, ids[4]: 0, ids[5]: 0}, started)
}

// Starts in a queue with a rate match a model, for random claims and times. The model accumulates the starts that the
// rate has allowed since the last claim, up to Burst.
func ratedClaimsOfModel(t *testing.T, d *Fixture) {
	rng := random(t)
	const every = 200 // milliseconds
	now, burst, tokens := start, int64(3), int64(3*every)
	limits := row.QueueLimits{Rate: row.StartRate{N: 5, Per: time.Second, Burst: burst}, Running: 1000}
	d.setLimits(t, limits)
	waiting := []int64{}
	started, short := 0, 0
	for step := range 300 {
		switch rng.IntN(3) {
		case 0:
			in := plain()
			in.Payloads = slices.Repeat([]string{`{}`}, 1+rng.IntN(4))
			waiting = append(waiting, d.insert(t, now, in).IDs...)
		case 1:
			passed := rng.Int64N(6) * 50
			now = now.Add(time.Duration(passed) * time.Millisecond)
			tokens = min(burst*every, tokens+passed)
		case 2:
			n := min(1+rng.IntN(4), len(waiting))
			want := min(int64(n), tokens/every)
			got := d.claimJobs(t, now, "w", n)
			require.Equal(t, waiting[:want], jobIDs(got), "step %d at %v", step, now.Sub(start))
			waiting, tokens = waiting[want:], tokens-want*every
			for _, j := range got {
				d.end(t, now, j, row.Acked)
				started++
			}
			if want < int64(n) {
				short++
			}
		}
	}
	require.NotZero(t, started)
	require.NotZero(t, short)
}

// A job that is cancelled while it is running keeps its slot until its worker settles it, or until its claim would have
// ended. Renew keeps the slot, and no other worker can free it. A queue without limits has no slots.
func placesOfCancelled(t *testing.T, d *Fixture) {
	places := func(now time.Time) (n int64) {
		d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
			n, err = d.Stores.Limits.Places(ctx, q, "a", now)
			return err
		})
		return n
	}
	for _, c := range []struct {
		key    string
		limits row.QueueLimits
	}{{"", row.QueueLimits{Running: 1}}, {"k", row.QueueLimits{PerKey: 1}}, {"k", row.QueueLimits{InOrder: true}}} {
		d.setLimits(t, row.QueueLimits{})
		d.fit(t, start)
		free := d.addKeys(t, start, c.key)[0]
		d.claimIDs(t, start, 1)
		d.cancelJob(t, start, free)
		require.Zero(t, places(start), "there were no limits")

		d.setLimits(t, c.limits)
		ids := d.addKeys(t, start, c.key, c.key)
		j := d.claimJobs(t, start, "w", 9)
		require.Equal(t, ids[:1], jobIDs(j))
		d.cancelJob(t, start, ids[0])
		require.EqualValues(t, 1, places(start))
		require.Empty(t, d.claimIDs(t, start, 9), "%+v", c)
		for _, s := range []*row.Settlement{
			{Claim: row.Claim{ID: ids[0], Worker: "other", Attempt: 1}, Queue: "a", Outcome: row.Acked},
			{Claim: row.Claim{ID: ids[0], Worker: "w", Attempt: 2}, Queue: "a", Outcome: row.Acked},
			{Claim: claimOf(j[0]), Queue: "a", Outcome: row.Acked, Running: true},
		} {
			d.settleJobs(t, start, s)
			require.EqualValues(t, 1, places(start), "%+v", s)
		}
		d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
			kept, err := d.Stores.Jobs.Renew(ctx, q, row.Renewal{Worker: "w", IDs: ids[:1], Lease: jobLease}, start.Add(5*time.Second))
			require.Empty(t, kept)
			return err
		})
		require.Empty(t, d.claimIDs(t, start.Add(jobLease+5*time.Second), 9))
		require.EqualValues(t, 1, places(start.Add(jobLease+5*time.Second)))
		require.Zero(t, places(start.Add(jobLease+6*time.Second)))
		d.end(t, start, j[0], row.Cancelled)
		require.Zero(t, places(start))
		j = d.claimJobs(t, start, "w", 9)
		require.Equal(t, ids[1:], jobIDs(j), "%+v", c)
		d.cancelJob(t, start, ids[1])
		last := d.addKeys(t, start, c.key)
		now := start.Add(jobLease + time.Second)
		require.Empty(t, d.claimIDs(t, now.Add(-time.Second), 9))
		require.Equal(t, last, d.claimIDs(t, now, 9), "the place has ended")
		d.cancelJob(t, start, last[0])
		d.end(t, start, &row.Job{ID: last[0], Queue: "a", WorkerID: "w", Attempts: 1}, row.Cancelled)
	}
}

// Lower limits don't stop any running jobs. They apply to the next claim, even before the jobs have been adjusted.
func limitsLowered(t *testing.T, d *Fixture) {
	ids := d.addKeys(t, start, "k", "k", "k", "k", "l")
	running := d.claimJobs(t, start, "w", 3)
	for _, l := range []row.QueueLimits{{Running: 2}, {PerKey: 2, Running: 4}, {InOrder: true, Running: 3}} {
		d.setLimits(t, l)
		for range 2 {
			got := d.claimIDs(t, start, 9)
			require.NotContains(t, got, ids[3], "%+v", l)
			d.fit(t, start)
		}
	}
	for _, j := range running {
		require.Equal(t, "processing", d.stateOf(t, j.ID))
		require.Equal(t, row.Acked, d.end(t, start, j, row.Acked).Became)
	}
	require.Equal(t, ids[3:4], d.claimIDs(t, start, 9))
}

// Raising or removing limits releases jobs that were held, no later than the sweep that adjusts the jobs.
func limitsLifted(t *testing.T, d *Fixture) {
	for _, c := range []struct {
		was, is row.QueueLimits
		more    int // jobs that may start under the new limits
	}{
		{row.QueueLimits{PerKey: 1}, row.QueueLimits{}, 3},
		{row.QueueLimits{PerKey: 1}, row.QueueLimits{PerKey: 3}, 2},
		{row.QueueLimits{InOrder: true}, row.QueueLimits{}, 3},
		{row.QueueLimits{InOrder: true}, row.QueueLimits{PerKey: 2}, 1},
		{row.QueueLimits{PerKey: 1}, row.QueueLimits{InOrder: true}, 0},
		{row.QueueLimits{Running: 1}, row.QueueLimits{Running: 2}, 1},
	} {
		d.setLimits(t, c.was)
		d.fit(t, start)
		ids := d.addKeys(t, start, "k", "k", "k", "k")
		running := d.claimJobs(t, start, "w", 9)
		require.Equal(t, ids[:1], jobIDs(running), "%+v", c)
		d.setLimits(t, c.is)
		d.fit(t, start)
		require.True(t, c.more == 0 || d.queueReady(t, start), "%+v", c)
		require.Equal(t, ids[1:1+c.more], d.claimIDs(t, start, 9), "%+v", c)
		for _, id := range ids {
			d.cancelJob(t, start, id)
			d.end(t, start, &row.Job{ID: id, Queue: "a", WorkerID: "w", Attempts: 1}, row.Cancelled)
		}
	}
}

// Changing the rate for keys resets it, and releases jobs to which the old rate had assigned a start.
func keyRateChanged(t *testing.T, d *Fixture) {
	for _, rate := range []row.StartRate{{}, {N: 10, Per: time.Second, Burst: 3}} {
		d.setLimits(t, row.QueueLimits{KeyRate: row.StartRate{N: 1, Per: time.Hour, Burst: 1}})
		ids := d.addKeys(t, start, "k", "k", "k")
		require.Equal(t, ids[:1], d.claimIDs(t, start, 9))
		require.Empty(t, d.claimIDs(t, start, 9))
		d.setLimits(t, row.QueueLimits{KeyRate: rate})
		d.fit(t, start)
		require.Equal(t, ids[1:], d.claimIDs(t, start, 9), "%+v", rate)
		for _, id := range ids {
			d.cancelJob(t, start, id)
		}
	}
}
