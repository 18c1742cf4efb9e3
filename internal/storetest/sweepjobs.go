package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// sweepsPart tests that a sweep of a part takes n rows at the time at, and none at the time early. kept must pass as
// long as the rows exist: it is called before the sweep, after an early Take and after a rollback. sweepsPart returns
// the outcome of the sweep, after which Find must find nothing.
func (d *Fixture) sweepsPart(t *testing.T, s engine.Sweep, p row.Part, early, at time.Time, n int, kept func()) row.Swept {
	t.Helper()
	require.Empty(t, d.seek(t, s, p, early))
	ids := d.seek(t, s, p, at)
	require.NotEmpty(t, ids)
	kept()
	require.Zero(t, d.take(t, s, p, ids, early).N, "they are not due yet")
	kept()
	d.rollBack(t, func(ctx context.Context, q engine.Querier) error {
		out, err := s.Take(ctx, q, p, ids, at, 100)
		require.Equal(t, n, out.N)
		return err
	})
	kept()
	require.ElementsMatch(t, ids, d.seek(t, s, p, at))
	out := d.take(t, s, p, ids, at)
	require.Equal(t, n, out.N)
	require.Empty(t, d.seek(t, s, p, at))
	require.Zero(t, d.take(t, s, p, ids, at).N)
	return out
}

// requireStates checks the jobs' states.
func (d *Fixture) requireStates(t *testing.T, want string, ids ...int64) {
	t.Helper()
	for _, id := range ids {
		require.Equal(t, want, d.stateOf(t, id), "job %d", id)
	}
}

// partNames returns the names of a sweep's parts.
func (d *Fixture) partNames(t *testing.T, s engine.Sweep, at time.Time) (names []string) {
	t.Helper()
	for _, p := range d.parts(t, s, at) {
		names = append(names, p.Name)
	}
	return names
}

// partOf returns a queue's part, which must exist.
func (d *Fixture) partOf(t *testing.T, s engine.Sweep, queue string, at time.Time) (part row.Part) {
	t.Helper()
	require.Contains(t, d.partNames(t, s, at), queue)
	for _, p := range d.parts(t, s, at) {
		if p.Name == queue {
			part = p
		}
	}
	return part
}

// The sweep of a queue makes jobs with lapsed claims claimable, and dead-letters those without attempts left. Valid
// claims and other queues stay as they are.
func sweepOverdue(t *testing.T, d *Fixture) {
	var spent, again, elsewhere []int64
	for _, queue := range []string{"a", "b"} {
		in := plain()
		in.Queue, in.MaxAttempts = queue, 1
		spent = append(spent, d.insert(t, start, in).IDs...)
		in.MaxAttempts = 2
		again = append(again, d.insert(t, start, in).IDs...)
		request := &row.ClaimRequest{Lanes: row.InOrder(queue), Worker: "w", N: 2, Lease: jobLease}
		require.Len(t, d.step(t, start, row.Step{Claim: request}).Jobs, 2)
	}
	elsewhere = append(spent[1:], again[1])
	valid := d.add(t, start)
	d.claimJobs(t, start.Add(5*time.Second), "v", 1)
	waits := d.add(t, start)

	s := d.Stores.Sweeps.Overdue
	at := start.Add(jobLease + time.Second)
	require.ElementsMatch(t, []string{"a", "b"}, d.partNames(t, s, at))
	out := d.sweepsPart(t, s, d.partOf(t, s, "a", at), at.Add(-time.Second), at, 1, func() { d.requireStates(t, "processing", spent[0], again[0]) })
	require.Len(t, out.Dead, 1)
	require.Equal(t, []any{spent[0], int64(1), "w", row.ReasonExhausted},
		[]any{out.Dead[0].ID, out.Dead[0].Attempts, out.Dead[0].Worker, out.Dead[0].Reason})
	d.requireStates(t, "dead", spent[0])
	d.requireStates(t, "pending", again[0], waits)
	d.requireStates(t, "processing", append(elsewhere, valid)...)
	require.ElementsMatch(t, []int64{again[0], waits}, d.claimIDs(t, at, 9))
}

// The sweep of a queue dead-letters jobs that have expired: those that are waiting for any reason, and those with
// lapsed claims. A running job doesn't expire, because it started in time.
func sweepExpired(t *testing.T, d *Fixture) {
	d.setLimits(t, row.QueueLimits{PerKey: 1})
	expiring := func(key string, links *row.Links, expires time.Duration) int64 {
		in := plain()
		in.Key, in.Links, in.ExpiresIn = key, links, expires
		return d.insert(t, start, in).IDs[0]
	}
	claimOne := func(lease time.Duration) {
		request := &row.ClaimRequest{Lanes: row.InOrder("a"), Worker: "w", N: 1, Lease: lease}
		require.Len(t, d.step(t, start, row.Step{Claim: request}).Jobs, 1)
	}
	runs := expiring("k", nil, 10*time.Second)
	claimOne(time.Minute)
	lapsed := expiring("", nil, 10*time.Second)
	claimOne(5 * time.Second)
	ofKey := expiring("k", nil, 10*time.Second)
	require.Empty(t, d.claimIDs(t, start, 1))
	waits := expiring("", nil, 10*time.Second)
	after := expiring("", &row.Links{Jobs: []int64{runs}}, 10*time.Second)
	later := expiring("", nil, 11*time.Second)
	never := d.add(t, start)
	in := plain()
	in.Queue, in.ExpiresIn = "b", 10*time.Second
	other := d.insert(t, start, in).IDs[0]
	d.requireStates(t, row.Held, ofKey, after)

	s := d.Stores.Sweeps.Expired
	at := start.Add(10 * time.Second)
	part := d.partOf(t, s, "a", at)
	require.ElementsMatch(t, []int64{lapsed, ofKey, waits, after}, d.seek(t, s, part, at))
	d.read(t, func(ctx context.Context, q engine.Querier) error {
		some, err := s.Find(ctx, q, part, at, 2)
		require.Len(t, some, 2)
		return err
	})
	out := d.sweepsPart(t, s, part, at.Add(-time.Second), at, 4, func() {
		d.requireStates(t, row.Held, ofKey, after)
		d.requireStates(t, "pending", waits)
		d.requireStates(t, "processing", lapsed)
	})
	require.Len(t, out.Dead, 4)
	for _, death := range out.Dead {
		require.Equal(t, row.ReasonExpired, death.Reason)
		require.Equal(t, death.ID == lapsed, death.Worker == "w", "%+v", death)
	}
	d.requireStates(t, "dead", lapsed, ofKey, waits, after)
	d.requireStates(t, "processing", runs)
	d.requireStates(t, "pending", later, never, other)
}

// Unique keys are swept once their Keep time has passed, unless a job still holds them.
func sweepKeys(t *testing.T, d *Fixture) {
	for key, keep := range map[string]time.Duration{"over": time.Minute, "over too": time.Minute, "later": time.Hour} {
		d.place(t, start, row.Unique{Keys: []string{key}, Keep: keep})
		d.end(t, start, d.claimJobs(t, start, "w", 1)[0], row.Acked)
	}
	d.place(t, start, row.Unique{Keys: []string{"live"}, Keep: time.Minute})
	at := start.Add(time.Minute)
	sweepsOnce(t, d, d.Stores.Sweeps.Keys, at, 2)
	require.Equal(t, row.PlacedExisting, d.place(t, at, row.Unique{Keys: []string{"later"}}).Result)
	require.Equal(t, row.PlacedExisting, d.place(t, at, row.Unique{Keys: []string{"live"}}).Result)
	require.Equal(t, row.PlacedNew, d.place(t, at, row.Unique{Keys: []string{"over"}}).Result)
}

// Cancelled jobs' slots are swept when their claims would have ended. The sweep releases jobs that are waiting for
// them.
func sweepPlaces(t *testing.T, d *Fixture) {
	d.setLimits(t, row.QueueLimits{PerKey: 1})
	ids := d.addKeys(t, start, "k", "l")
	d.claimIDs(t, start, 1)
	d.claimIDs(t, start.Add(5*time.Second), 1)
	waits := d.addKeys(t, start, "k")[0]
	require.Empty(t, d.claimIDs(t, start.Add(5*time.Second), 9))
	for _, id := range ids {
		d.cancelJob(t, start.Add(5*time.Second), id)
	}
	require.Empty(t, d.claimIDs(t, start.Add(5*time.Second), 9))
	d.requireStates(t, row.Held, waits)
	at := start.Add(jobLease + time.Second)
	sweepsOnce(t, d, d.Stores.Sweeps.Places, at, 1)
	d.read(t, func(ctx context.Context, q engine.Querier) error {
		n, err := d.Stores.Limits.Places(ctx, q, "a", at)
		require.EqualValues(t, 1, n)
		return err
	})
	require.True(t, d.queueReady(t, at))
	require.Equal(t, []int64{waits}, d.claimIDs(t, at, 9))
}

// A queue is a part from the time its limits change until all its jobs have been adjusted. The sweep releases jobs
// that were held, a few at a time.
func sweepFits(t *testing.T, d *Fixture) {
	s := d.Stores.Sweeps.Fits
	d.setLimits(t, row.QueueLimits{PerKey: 1})
	require.Empty(t, d.partNames(t, s, start), "no job was held before")
	ids := d.addKeys(t, start, "k", "k", "k", "l", "l")
	require.Len(t, d.claimIDs(t, start, 9), 2)
	d.requireStates(t, row.Held, ids[1], ids[2], ids[4])
	d.setLimits(t, row.QueueLimits{})
	require.Equal(t, []string{"a"}, d.partNames(t, s, start))
	part := d.partOf(t, s, "a", start)
	require.Empty(t, d.seek(t, s, row.Part{Name: "b"}, start))
	work := d.seek(t, s, part, start)
	require.NotEmpty(t, work)
	d.rollBack(t, func(ctx context.Context, q engine.Querier) error {
		for range 20 {
			if _, err := s.Take(ctx, q, part, work, start, 100); err != nil {
				return err
			}
		}
		return nil
	})
	d.requireStates(t, row.Held, ids[1], ids[2], ids[4])
	require.Equal(t, work, d.seek(t, s, part, start))
	rounds := 0
	for more := true; more; rounds++ {
		var out row.Swept
		d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
			out, err = s.Take(ctx, q, part, work, start, 1)
			return err
		})
		require.Empty(t, out.Dead)
		more = out.More
		require.Less(t, rounds, 100, "the sweep does not end")
	}
	require.Greater(t, rounds, 1)
	require.Empty(t, d.seek(t, s, part, start))
	require.Empty(t, d.partNames(t, s, start))
	d.requireStates(t, "pending", ids[1], ids[2], ids[4])
}

// retainJobs sets a queue's retention.
func (d *Fixture) retainJobs(t *testing.T, r row.QueueRetention) {
	t.Helper()
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
		_, err := d.Stores.Retentions.SetQueue(ctx, q, r)
		return err
	})
}

// ended ends n of queue "a"'s jobs in the given way, a second apart, and returns them.
func (d *Fixture) ended(t *testing.T, n int, outcome row.Outcome) (ids []int64) {
	t.Helper()
	for i := range n {
		now := start.Add(time.Duration(i) * time.Second)
		id := d.add(t, now)
		j := d.claimJobs(t, now, "w", 1)
		require.Equal(t, []int64{id}, jobIDs(j))
		d.end(t, now, j[0], outcome)
		ids = append(ids, id)
	}
	return ids
}

// Done or dead jobs that exceed the number or age that their queue keeps are swept, oldest first. A job's age counts
// from the second in which it ended.
func sweepEnded(t *testing.T, d *Fixture) {
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	for _, c := range []struct {
		outcome  row.Outcome
		state    string
		sweep    engine.Sweep
		of       func(r row.Retention) row.QueueRetention
		keepNone bool // without a limit, the queue keeps no jobs
	}{
		{row.Acked, "done", d.Stores.Sweeps.Done, func(r row.Retention) row.QueueRetention { return row.QueueRetention{Queue: "a", Done: r} }, true},
		{row.Died, "dead", d.Stores.Sweeps.Dead, func(r row.Retention) row.QueueRetention { return row.QueueRetention{Queue: "a", Dead: r} }, false},
	} {
		s := c.sweep
		d.retainJobs(t, c.of(row.Retention{MaxCount: 5}))
		ids := d.ended(t, 6, c.outcome)
		d.requireStates(t, c.state, ids...)
		part := d.partOf(t, s, "a", at(6))
		require.Equal(t, ids[:1], d.seek(t, s, part, at(6)))
		d.rollBack(t, func(ctx context.Context, q engine.Querier) error {
			out, err := s.Take(ctx, q, part, ids, at(6), 100)
			require.Equal(t, 1, out.N)
			return err
		})
		d.requireStates(t, c.state, ids...)
		require.Equal(t, 1, d.take(t, s, part, ids, at(6)).N, "the other ids are kept")
		require.Empty(t, d.seek(t, s, part, at(6)))
		require.Zero(t, d.take(t, s, part, ids, at(6)).N)
		require.Empty(t, d.stateOf(t, ids[0]))
		d.requireStates(t, c.state, ids[1:]...)

		d.retainJobs(t, c.of(row.Retention{MaxAge: 10 * time.Second}))
		require.Empty(t, d.seek(t, s, d.partOf(t, s, "a", at(11)), at(11)), "it is ten seconds old")
		part = d.partOf(t, s, "a", at(13))
		require.Equal(t, ids[1:3], d.seek(t, s, part, at(13)))
		require.Equal(t, 2, d.take(t, s, part, ids[1:3], at(13)).N)
		d.retainJobs(t, c.of(row.Retention{MaxAge: time.Hour, MaxCount: 2}))
		require.Equal(t, ids[3:4], d.seek(t, s, d.partOf(t, s, "a", at(13)), at(13)))

		d.retainJobs(t, row.QueueRetention{Queue: "a"})
		if !c.keepNone {
			require.NotContains(t, d.partNames(t, s, at(13)), "a", "all dead jobs are kept")
			continue
		}
		part = d.partOf(t, s, "a", at(13))
		require.Equal(t, ids[3:], d.seek(t, s, part, at(13)))
		require.Equal(t, 3, d.take(t, s, part, ids[3:], at(13)).N)
		require.NotContains(t, d.partNames(t, s, at(13)), "a")
	}
}

// A dead job that other jobs are waiting for is kept.
func sweepDeadAwaited(t *testing.T, d *Fixture) {
	d.retainJobs(t, row.QueueRetention{Queue: "a", Dead: row.Retention{MaxCount: 1}})
	ids := d.ended(t, 3, row.Died)
	waiter := d.after(t, row.Links{Jobs: ids[:1]})
	s := d.Stores.Sweeps.Dead
	part := d.partOf(t, s, "a", start)
	require.Equal(t, ids[1:2], d.seek(t, s, part, start))
	require.Equal(t, 1, d.take(t, s, part, ids, start).N)
	d.requireStates(t, "dead", ids[0], ids[2])
	d.cancelJob(t, start, waiter)
	require.Equal(t, ids[:1], d.seek(t, s, part, start))
}
