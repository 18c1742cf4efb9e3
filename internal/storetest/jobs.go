package storetest

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// subtests runs tests by name, each on a separate database.
func subtests(t *testing.T, open func(t *testing.T) *Fixture, tests map[string]func(t *testing.T, d *Fixture)) {
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		t.Run(name, func(t *testing.T) { tests[name](t, open(t)) })
	}
}

func jobs(t *testing.T, open func(t *testing.T) *Fixture) {
	subtests(t, open, map[string]func(t *testing.T, d *Fixture){
		"ClaimsBesideAModel":      claimsOfModel,
		"ClaimIsBounded":          claimIsBounded,
		"LanesInOrder":            lanesInOrder,
		"LanesInTurns":            lanesInTurns,
		"LanesInOneOrder":         lanesInOneOrder,
		"SpentAndExpiredNeverRun": neverRun,
		"States":                  statesTellWhen,
		"NextClaim":               nextClaim,
		"PhaseAtLapse":            phaseAtLapse,
		"IdsRise":                 idsRise,
		"InsertedTimes":           insertedTimes,
		"Offers":                  offers,
		"Find":                    findInQueue,
		"Cancel":                  cancelledAreGone,
		"Keys":                    keysOfQueue,
		"RollbackLeavesNothing":   jobsRolledBack,
	})
}

// insert adds in's jobs.
func (d *Fixture) insert(t *testing.T, now time.Time, in row.Insert) row.Inserted {
	t.Helper()
	var out row.Inserted
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
		out, err = d.Stores.Jobs.Insert(ctx, q, &in, now)
		return err
	})
	return out
}

// add adds a plain job to queue "a".
func (d *Fixture) add(t *testing.T, now time.Time) int64 {
	t.Helper()
	return d.insert(t, now, plain()).IDs[0]
}

// plain returns an insert of a plain job.
func plain() row.Insert { return row.Insert{Queue: "a", Payloads: []string{`{}`}, MaxAttempts: 3} }

// jobLease is how long claims last in these tests.
const jobLease = 10 * time.Second

// step runs a step in a separate transaction.
func (d *Fixture) step(t *testing.T, now time.Time, s row.Step) row.Claimed {
	t.Helper()
	var out row.Claimed
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
		out, err = d.Stores.Jobs.Step(ctx, q, s, now)
		return err
	})
	return out
}

// claimJobs claims up to n jobs of queue "a" for a worker.
func (d *Fixture) claimJobs(t *testing.T, now time.Time, worker string, n int) []*row.Job {
	t.Helper()
	return d.step(t, now, row.Step{Claim: &row.ClaimRequest{Lanes: row.InOrder("a"), Worker: worker, N: n, Lease: jobLease}}).Jobs
}

// claimOf returns the claim that holds j.
func claimOf(j *row.Job) row.Claim {
	return row.Claim{ID: j.ID, Worker: j.WorkerID, Attempt: j.Attempts}
}

// settleJobs ends claims in a single step.
func (d *Fixture) settleJobs(t *testing.T, now time.Time, all ...*row.Settlement) {
	t.Helper()
	d.step(t, now, row.Step{Settle: all, Exact: true})
}

// end ends j's claim in the given way and returns the settlement.
func (d *Fixture) end(t *testing.T, now time.Time, j *row.Job, outcome row.Outcome) *row.Settlement {
	t.Helper()
	s := &row.Settlement{Claim: claimOf(j), Queue: j.Queue, Outcome: outcome, Error: "why"}
	d.settleJobs(t, now, s)
	return s
}

// find returns a job in any state.
func (d *Fixture) find(t *testing.T, id int64) (j row.Job, found bool) {
	t.Helper()
	d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
		j, found, err = d.Stores.Jobs.Find(ctx, q, id, "")
		return err
	})
	return j, found
}

// stateOf returns a job's state, or "" if there is no such job.
func (d *Fixture) stateOf(t *testing.T, id int64) string {
	t.Helper()
	j, _ := d.find(t, id)
	return j.State
}

// jobIDs returns the jobs' IDs.
func jobIDs(all []*row.Job) []int64 {
	ids := make([]int64, len(all))
	for i, j := range all {
		ids[i] = j.ID
	}
	return ids
}

// IDs increase in the order of the payloads and from insert to insert, and no ID is reused.
func idsRise(t *testing.T, d *Fixture) {
	in := plain()
	in.Payloads = []string{`1`, `2`, `3`, `4`, `5`}
	first := d.insert(t, start, in).IDs
	require.Len(t, first, 5)
	require.IsIncreasing(t, first)
	for i, id := range first {
		j, _ := d.find(t, id)
		require.Equal(t, in.Payloads[i], j.Payload)
	}
	for _, j := range d.claimJobs(t, start, "w", 5) {
		d.end(t, start, j, row.Acked)
	}
	require.Greater(t, d.add(t, start), first[4])
	in.Payloads = nil
	require.Empty(t, d.insert(t, start, in).IDs)
}

// up returns the time after start, rounded up to the database's resolution.
func (d *Fixture) up(after time.Duration) time.Time {
	return start.Add(after + d.Resolution - 1).Truncate(d.Resolution)
}

// An insert's times are rounded up, so that nothing happens earlier than requested, and a time in the past means now.
func insertedTimes(t *testing.T, d *Fixture) {
	now := start.Add(300 * time.Millisecond)
	for name, c := range map[string]struct {
		edit           func(in *row.Insert)
		runAt, expires time.Duration // after start, before they are rounded; 0 for now, and for none
	}{
		"plain":         {func(*row.Insert) {}, 0, 0},
		"a past time":   {func(in *row.Insert) { in.RunAt = start.Add(-time.Hour) }, 0, 0},
		"a delay":       {func(in *row.Insert) { in.Delay = 1500 * time.Millisecond }, 1800 * time.Millisecond, 0},
		"a time":        {func(in *row.Insert) { in.RunAt = start.Add(2500 * time.Millisecond) }, 2500 * time.Millisecond, 0},
		"an expiry":     {func(in *row.Insert) { in.ExpiresAt = start.Add(2500 * time.Millisecond) }, 0, 2500 * time.Millisecond},
		"a time limit":  {func(in *row.Insert) { in.ExpiresIn = 3 * time.Second }, 0, 3300 * time.Millisecond},
		"a delay first": {func(in *row.Insert) { in.Delay, in.RunAt = time.Second, start.Add(time.Hour) }, 1300 * time.Millisecond, 0},
	} {
		in := plain()
		c.edit(&in)
		j, found := d.find(t, d.insert(t, now, in).IDs[0])
		require.True(t, found, name)
		require.Equal(t, start.Unix(), j.CreatedAt.Unix(), name)
		if c.runAt == 0 {
			require.Equal(t, now.Truncate(d.Resolution).UTC(), j.RunAt.UTC(), name)
		} else {
			require.Equal(t, d.up(c.runAt), j.RunAt.UTC(), name)
		}
		if c.expires == 0 {
			require.Zero(t, j.ExpiresAt, name)
		} else {
			require.Equal(t, d.up(c.expires), j.ExpiresAt.UTC(), name)
		}
	}
}

// Jobs that are handed over are claimed just like any others. An Offer never takes a job out of turn: as long as
// another job is due, all new jobs wait.
func offers(t *testing.T, d *Fixture) {
	in := plain()
	in.Payloads = []string{`1`, `2`, `3`}
	in.Offer = &row.Offer{Worker: "w", N: 2, Lease: jobLease}
	out := d.insert(t, start, in)
	require.Len(t, out.IDs, 3)
	require.IsIncreasing(t, out.IDs)
	require.LessOrEqual(t, len(out.Claimed), 2)
	taken := len(out.Claimed)
	require.Equal(t, out.IDs[:taken], jobIDs(out.Claimed))
	for i, id := range out.IDs {
		j, _ := d.find(t, id)
		if i >= taken {
			require.Equal(t, "pending", j.State)
			continue
		}
		require.Equal(t, "processing", j.State)
		require.Equal(t, "w", j.WorkerID)
		require.EqualValues(t, 1, j.Attempts)
		require.Equal(t, row.Acked, d.end(t, start, out.Claimed[i], row.Acked).Became)
	}
	require.Empty(t, d.insert(t, start, in).Claimed, "a job is due")
	require.Len(t, d.claimJobs(t, start, "w", 100), 6-taken)
	in.Offer.Queues = []string{"a", "b"}
	other := plain()
	other.Queue = "b"
	d.insert(t, start, other)
	require.Empty(t, d.insert(t, start, in).Claimed, "a job of another queue is due")
}

// Find reads live, dead and done jobs, in a given queue or in any queue.
func findInQueue(t *testing.T, d *Fixture) {
	id := d.add(t, start)
	in := func(queue string) (found bool) {
		d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
			_, found, err = d.Stores.Jobs.Find(ctx, q, id, queue)
			return err
		})
		return found
	}
	j := d.claimJobs(t, start, "w", 1)[0]
	for range 2 {
		require.True(t, in(""))
		require.True(t, in("a"))
		require.False(t, in("b"))
		d.end(t, start, j, row.Died)
		require.Equal(t, "dead", d.stateOf(t, id))
	}
	id += 1000
	require.False(t, in(""))
}

// A job can be cancelled whether it is waiting or running, but only in its own queue. It is then gone, and its worker
// finds that the claim is lost and the job is gone.
func cancelledAreGone(t *testing.T, d *Fixture) {
	cancel := func(queue string, id int64) (done bool) {
		d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
			done, err = d.Stores.Jobs.Cancel(ctx, q, queue, id, start)
			return err
		})
		return done
	}
	runs := d.add(t, start)
	j := d.claimJobs(t, start, "w", 1)[0]
	waits := d.add(t, start)
	require.False(t, cancel("b", waits))
	for _, id := range []int64{runs, waits} {
		require.True(t, cancel("a", id))
		require.False(t, cancel("a", id))
		require.Empty(t, d.stateOf(t, id))
	}
	dead := d.add(t, start)
	d.end(t, start, d.claimJobs(t, start, "w", 1)[0], row.Died)
	d.read(t, func(ctx context.Context, q engine.Querier) error {
		gone, err := d.Stores.Jobs.Gone(ctx, q, []int64{runs, waits, dead})
		require.ElementsMatch(t, []int64{runs, waits}, gone, "a dead job is not gone")
		return err
	})
	for _, outcome := range []row.Outcome{row.Acked, row.Retried, row.Released} {
		s := d.end(t, start, j, outcome)
		require.Equal(t, row.Lost, s.Became)
		require.True(t, s.Gone)
	}
	require.Equal(t, row.Cancelled, d.end(t, start, j, row.Cancelled).Became)
}

// Keys counts the jobs for each of a queue's limits keys.
func keysOfQueue(t *testing.T, d *Fixture) {
	in := plain()
	in.Key, in.Payloads = "k", []string{`1`, `2`, `3`}
	d.insert(t, start, in)
	d.add(t, start)
	d.claimJobs(t, start, "w", 1)
	keys := func(queue string) (all []row.KeyStats) {
		d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
			all, err = d.Stores.Jobs.Keys(ctx, q, queue, 10, start)
			return err
		})
		return all
	}
	all := keys("a")
	require.Len(t, all, 1)
	require.True(t, all[0].Oldest.Equal(start))
	all[0].Oldest = time.Time{}
	require.Equal(t, row.KeyStats{Key: "k", Running: 1, Waiting: 2}, all[0])
	require.Empty(t, keys("b"))
}

// A transaction that is rolled back leaves no job, claim, settlement or result behind.
func jobsRolledBack(t *testing.T, d *Fixture) {
	id := d.add(t, start)
	j := d.claimJobs(t, start, "w", 1)[0]
	waits := d.add(t, start)
	before := []row.Job{}
	for _, id := range []int64{id, waits} {
		j, _ := d.find(t, id)
		before = append(before, j)
	}
	result := `1`
	var added int64
	d.rollBack(t, func(ctx context.Context, q engine.Querier) error {
		in := plain()
		in.Key, in.Headers, in.Unique, in.Links = "k", `{"h":"v"}`, &row.Unique{Keys: []string{"u"}}, &row.Links{Jobs: []int64{id}}
		out, err := d.Stores.Jobs.Insert(ctx, q, &in, start)
		require.NoError(t, err)
		added = out.IDs[0]
		s := &row.Settlement{Claim: claimOf(j), Queue: "a", Outcome: row.Acked, Result: &result, Progress: &row.Progress{Done: 1}}
		claim := &row.ClaimRequest{Lanes: row.InOrder("a"), Worker: "w", N: 9, Lease: jobLease}
		claimed, err := d.Stores.Jobs.Step(ctx, q, row.Step{Settle: []*row.Settlement{s}, Claim: claim, Exact: true}, start)
		require.Equal(t, row.Acked, s.Became)
		if d.Later {
			require.Equal(t, []int64{waits}, jobIDs(claimed.Jobs))
		} else {
			require.Equal(t, []int64{waits, added}, jobIDs(claimed.Jobs), "the ack has released the new job")
		}
		return err
	})
	require.Empty(t, d.stateOf(t, added))
	for i, id := range []int64{id, waits} {
		after, _ := d.find(t, id)
		require.Equal(t, before[i], after)
	}
	require.False(t, d.fate(t, id, start).HasResult)
	require.Equal(t, row.PlacedNew, d.place(t, start, row.Unique{Keys: []string{"u"}}).Result, "the key is free")
}
