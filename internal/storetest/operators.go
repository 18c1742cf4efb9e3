package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

func operators(t *testing.T, open func(t *testing.T) *Fixture) {
	t.Run("ListsAreComplete", func(t *testing.T) { listsComplete(t, open(t)) })
	t.Run("ListsWhileJobsChange", func(t *testing.T) { listsOfChanging(t, open(t)) })
	t.Run("CountsAndHeads", func(t *testing.T) { countsAndHeads(t, open(t)) })
	t.Run("CancelAndWaiters", func(t *testing.T) { cancelAndWaiters(t, open) })
	t.Run("DiscardAndWaiters", func(t *testing.T) { discardAndWaiters(t, open) })
	t.Run("Requeue", func(t *testing.T) { requeues(t, open(t)) })
	t.Run("RunNow", func(t *testing.T) { runsNow(t, open(t)) })
	t.Run("Bury", func(t *testing.T) { buries(t, open) })
	t.Run("ExplainAgreesWithClaims", func(t *testing.T) { explainAgrees(t, open, true) })
	t.Run("ExplainWithoutLimits", func(t *testing.T) { explainAgrees(t, open, false) })
	t.Run("PhasesAgree", func(t *testing.T) { phasesAgree(t, open(t)) })
	t.Run("Filters", func(t *testing.T) { filters(t, open(t)) })
}

// opsJob is a job to be added by these tests.
type opsJob struct {
	queue, key string
	priority   int64
	delay      time.Duration
	after      []int64
}

// opsAdd adds a job at start.
func (d *Fixture) opsAdd(t *testing.T, j opsJob) (id int64) {
	t.Helper()
	in := row.Insert{Queue: cmp.Or(j.queue, "mails"), Payloads: []string{`{"n":1}`}, Priority: j.priority, MaxAttempts: 3, Key: j.key}
	if len(j.after) > 0 {
		in.Links = &row.Links{Jobs: j.after}
	}
	now := start
	if j.delay < 0 {
		now = start.Add(j.delay) // a job can't become ready before it is added
	} else {
		in.RunAt = start.Add(j.delay)
	}
	return d.insert(t, now, in).IDs[0]
}

// opsClaim claims up to n jobs of queue at now for a minute, in q's transaction.
func (d *Fixture) opsClaim(ctx context.Context, q engine.Querier, queue string, n int, now time.Time) (ids []int64, err error) {
	c := &row.ClaimRequest{Lanes: row.InOrder(queue), Worker: "w", N: n, Lease: time.Minute}
	claimed, err := d.Stores.Jobs.Step(ctx, q, row.Step{Claim: c}, now)
	for _, j := range claimed.Jobs {
		ids = append(ids, j.ID)
	}
	return ids, err
}

// opsTake is opsClaim in a separate transaction.
func (d *Fixture) opsTake(t *testing.T, queue string, n int, now time.Time) (ids []int64) {
	t.Helper()
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
		ids, err = d.opsClaim(ctx, q, queue, n, now)
		return err
	})
	return ids
}

// opsDie claims the next job of queue and dead-letters it at now.
func (d *Fixture) opsDie(t *testing.T, queue string, now time.Time) (id int64) {
	t.Helper()
	ids := d.opsTake(t, queue, 1, now)
	require.Len(t, ids, 1)
	j, _ := d.find(t, ids[0])
	end := &row.Settlement{Claim: claimOf(&j), Queue: queue, Outcome: row.Died, Error: "no luck"}
	d.settleJobs(t, now, end)
	require.Equal(t, row.Died, end.Became)
	return ids[0]
}

// Counts counts each job in its phase and stops at the limit. Heads returns the queues that have jobs, and their
// times.
func countsAndHeads(t *testing.T, d *Fixture) {
	for range 5 {
		d.opsAdd(t, opsJob{delay: -time.Second})
	}
	d.opsAdd(t, opsJob{delay: time.Hour})
	d.opsDie(t, "mails", start)
	d.opsTake(t, "mails", 1, start)
	d.opsAdd(t, opsJob{queue: "later", delay: time.Minute})
	d.read(t, func(ctx context.Context, q engine.Querier) error {
		for limit, ready := range map[int64]row.Count{2: {N: 2, More: true}, 3: {N: 3}, 4: {N: 3}} {
			got, cost, err := d.Stores.Operators.Counts(ctx, q, row.JobSelect{Phases: row.StatsPhases}, limit, start)
			require.NoError(t, err)
			require.Positive(t, cost)
			one := row.Count{N: 1}
			require.Equal(t, row.QueueCounts{Ready: ready, Running: one, Scheduled: one, Dead: one}, got["mails"])
			require.Equal(t, row.QueueCounts{Scheduled: one}, got["later"])
		}
		got, _, err := d.Stores.Operators.Counts(ctx, q, row.JobSelect{Queues: []string{"mails"}, Phases: []row.Phase{row.PhaseRunning}}, 9, start.Add(2*time.Minute))
		require.NoError(t, err)
		require.Zero(t, got["mails"].Running, "the claim has lapsed")
		require.NotContains(t, got, "later", "it has no job in the phase")
		heads, err := d.Stores.Operators.Heads(ctx, q, nil, start)
		require.NoError(t, err)
		require.Len(t, heads, 2)
		require.Equal(t, "later", heads[0].Queue)
		require.True(t, heads[0].Ready.IsZero())
		require.Equal(t, start.Add(time.Minute).Unix(), heads[0].NextAt.Unix())
		require.Equal(t, start.Add(-time.Second).Unix(), heads[1].Ready.Unix())
		named, err := d.Stores.Operators.Heads(ctx, q, []string{"later"}, start)
		require.Equal(t, heads[:1], named)
		names, listErr := d.Stores.Operators.Queues(ctx, q)
		require.NoError(t, listErr)
		require.ElementsMatch(t, []string{"later", "mails"}, names)
		return err
	})
}

// opsState returns a job's state: "live", "held", "processing", "dead" or "gone".
func (d *Fixture) opsState(t *testing.T, id int64) (state string) {
	t.Helper()
	state = "gone"
	if j, found := d.find(t, id); found {
		state = j.State
	}
	return state
}

func opsIDs(of []row.Change) (ids []int64) {
	for _, c := range of {
		ids = append(ids, c.ID)
	}
	return slices.Sorted(slices.Values(ids))
}

// CancelMany removes live jobs, and running jobs only on request. Waiting jobs are released, are removed, or protect
// the job that they are waiting for. A cancel that is rolled back leaves all jobs in place.
func cancelAndWaiters(t *testing.T, open func(t *testing.T) *Fixture) {
	for _, w := range []row.Waiters{row.ReleaseWaiters, row.DropWaiters, row.KeepWaiters} {
		t.Run(fmt.Sprint(w), func(t *testing.T) {
			d := open(t)
			running := d.opsAdd(t, opsJob{priority: 9})
			require.Equal(t, []int64{running}, d.opsTake(t, "mails", 1, start))
			awaited, free := d.opsAdd(t, opsJob{}), d.opsAdd(t, opsJob{})
			waiter := d.opsAdd(t, opsJob{after: []int64{awaited}})
			require.Equal(t, row.Held, d.opsState(t, waiter))
			c := row.CancelJobs{IDs: []int64{running, awaited, free, 999}, Waiters: w}
			d.rollBack(t, func(ctx context.Context, q engine.Querier) error {
				_, err := d.Stores.Operators.CancelMany(ctx, q, c, start)
				return err
			})
			require.Equal(t, "pending", d.opsState(t, free), "rolled back")
			cancel := func() (out row.Removed) {
				d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
					out, err = d.Stores.Operators.CancelMany(ctx, q, c, start)
					return err
				})
				return out
			}
			out := cancel()
			require.Equal(t, "processing", d.opsState(t, running), "its claim is valid")
			switch w {
			case row.ReleaseWaiters:
				require.Equal(t, []int64{awaited, free}, opsIDs(out.Jobs))
				require.Equal(t, "pending", d.opsState(t, waiter), "the cancelled job counts as done")
			case row.DropWaiters:
				require.Equal(t, []int64{awaited, free}, opsIDs(out.Jobs))
				require.Equal(t, []int64{waiter}, opsIDs(out.Waiters))
				require.Equal(t, "gone", d.opsState(t, waiter))
			case row.KeepWaiters:
				require.Equal(t, []int64{free}, opsIDs(out.Jobs))
				require.Equal(t, row.Held, d.opsState(t, waiter))
				require.Equal(t, "pending", d.opsState(t, awaited))
			}
			again := cancel()
			require.Empty(t, again.Jobs, "once")
			c.Running = true
			require.Equal(t, []int64{running}, opsIDs(cancel().Jobs))
		})
	}
}

// Discard removes only dead jobs, and treats waiting jobs in the same ways as CancelMany.
func discardAndWaiters(t *testing.T, open func(t *testing.T) *Fixture) {
	for _, w := range []row.Waiters{row.ReleaseWaiters, row.DropWaiters, row.KeepWaiters} {
		t.Run(fmt.Sprint(w), func(t *testing.T) {
			d := open(t)
			awaited := d.opsAdd(t, opsJob{})
			waiter := d.opsAdd(t, opsJob{after: []int64{awaited}})
			require.Equal(t, awaited, d.opsDie(t, "mails", start))
			free := d.opsAdd(t, opsJob{})
			require.Equal(t, free, d.opsDie(t, "mails", start))
			live := d.opsAdd(t, opsJob{})
			d.read(t, func(ctx context.Context, q engine.Querier) error {
				waiters, err := d.Stores.Operators.Waiters(ctx, q, []int64{awaited})
				require.Equal(t, []int64{waiter}, waiters)
				return err
			})
			var out row.Removed
			d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
				out, err = d.Stores.Operators.Discard(ctx, q, []int64{awaited, free, live}, w)
				return err
			})
			require.Equal(t, "pending", d.opsState(t, live))
			switch w {
			case row.KeepWaiters:
				require.Equal(t, []int64{free}, opsIDs(out.Jobs))
				require.Equal(t, row.Held, d.opsState(t, waiter))
			case row.ReleaseWaiters:
				require.Equal(t, []int64{awaited, free}, opsIDs(out.Jobs))
				require.Equal(t, "pending", d.opsState(t, waiter))
			case row.DropWaiters:
				require.Equal(t, []int64{awaited, free}, opsIDs(out.Jobs))
				require.Equal(t, []int64{waiter}, opsIDs(out.Waiters))
				require.Equal(t, "gone", d.opsState(t, waiter))
			}
		})
	}
}

// A requeued job keeps its ID, gets its full number of attempts again, and runs at the given time, rounded up.
// Requeueing a job that is not dead changes nothing.
func requeues(t *testing.T, d *Fixture) {
	id := d.opsAdd(t, opsJob{})
	requeue := func(r row.Requeue) (out row.Requeued) {
		d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
			out, err = d.Stores.Operators.Requeue(ctx, q, r, start)
			return err
		})
		return out
	}
	require.Equal(t, row.Requeued{Queue: "mails", Live: true}.Done, requeue(row.Requeue{ID: id}).Done, "it lives")
	require.Equal(t, id, d.opsDie(t, "mails", start))
	require.Equal(t, row.Requeued{Queue: "mails", Done: true}, requeue(row.Requeue{ID: id, RunAt: start.Add(time.Nanosecond)}))
	require.Empty(t, d.opsTake(t, "mails", 1, start.Add(d.Resolution-1)), "not before its time")
	require.False(t, requeue(row.Requeue{ID: id}).Done, "once")
	require.Equal(t, id, d.opsDie(t, "mails", start.Add(time.Second)))
	payload := `{"n":2}`
	require.Equal(t, row.Requeued{Queue: "other", Done: true}, requeue(row.Requeue{ID: id, Queue: "other", Attempts: 1, Payload: &payload}))
	d.read(t, func(ctx context.Context, q engine.Querier) error {
		j, found, err := d.Stores.Jobs.Find(ctx, q, id, "")
		require.True(t, found)
		require.EqualValues(t, payload, j.Payload)
		require.EqualValues(t, 2, j.Attempts, "attempts fence claims, so they continue")
		require.EqualValues(t, 3, j.MaxAttempts)
		return err
	})
	require.Zero(t, requeue(row.Requeue{ID: 999}))
}

// RunNow makes scheduled jobs due and leaves all others alone.
func runsNow(t *testing.T, d *Fixture) {
	scheduled, ready := d.opsAdd(t, opsJob{delay: time.Hour}), d.opsAdd(t, opsJob{delay: -time.Second})
	var changed []row.Change
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
		changed, err = d.Stores.Operators.RunNow(ctx, q, []int64{scheduled, ready, 999}, start)
		return err
	})
	require.Equal(t, []row.Change{{ID: scheduled, Queue: "mails"}}, changed)
	require.Equal(t, []int64{ready, scheduled}, d.opsTake(t, "mails", 9, start))
}

// In small random states, claims take the jobs that come next according to their explanations, and Ahead is their
// position.
func explainAgrees(t *testing.T, open func(t *testing.T) *Fixture, limited bool) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	turns, kept, full := 0, 0, 0
	if !limited {
		full = 1 // no key is full
	}
	for round := 0; round < 12 || turns*kept*full == 0 && round < 200; round++ { // until each case has occurred
		d := open(t)
		var limits row.QueueLimits
		if limited {
			limits = row.QueueLimits{Running: random.Int64N(4), PerKey: random.Int64N(3), InOrder: random.IntN(3) == 0}
			if random.IntN(4) == 0 {
				limits.Rate = row.StartRate{N: 1, Per: time.Minute, Burst: 2 + random.Int64N(3)}
			}
			if random.IntN(4) == 0 {
				limits.KeyRate = row.StartRate{N: 1, Per: time.Minute, Burst: 1 + random.Int64N(2)}
			}
		}
		d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
			_, err := d.Stores.Limits.Set(ctx, q, "mails", limits)
			if limited && random.IntN(6) == 0 {
				_, pauseErr := d.Stores.Pauses.Set(ctx, q, "mails", "k", row.Pause{Since: start}, start)
				err = errors.Join(err, pauseErr)
			}
			return err
		})
		var ids []int64
		for range 10 {
			j := opsJob{key: []string{"", "k", "l"}[random.IntN(3)], priority: random.Int64N(2), delay: time.Duration(random.IntN(3)-1) * time.Minute}
			if len(ids) > 0 && random.IntN(5) == 0 {
				j.after = []int64{ids[random.IntN(len(ids))]}
			}
			ids = append(ids, d.opsAdd(t, j))
			if random.IntN(4) == 0 {
				for _, id := range d.opsTake(t, "mails", 1, start) {
					if random.IntN(2) == 0 {
						j, _ := d.find(t, id)
						d.settleJobs(t, start, &row.Settlement{Claim: claimOf(&j), Queue: "mails", Outcome: row.Acked})
						ids = slices.DeleteFunc(ids, func(of int64) bool { return of == id })
					}
				}
			}
		}
		now := start
		if random.IntN(3) == 0 {
			now = start.Add(2 * time.Minute) // all claims have lapsed
		}
		highest := d.opsAdd(t, opsJob{queue: "other"})
		var claimed []int64
		d.rollBack(t, func(ctx context.Context, q engine.Querier) error {
			for {
				got, err := d.opsClaim(ctx, q, "mails", 1, now)
				if err != nil || len(got) == 0 {
					return err
				}
				claimed = append(claimed, got...)
			}
		})
		d.read(t, func(ctx context.Context, q engine.Querier) error {
			all, err := d.Stores.Operators.Explain(ctx, q, append(ids, 999), row.ExplainRequest{MaxAhead: 100, MaxJobs: 100}, now)
			require.NoError(t, err)
			require.False(t, all[len(ids)].Found)
			require.Equal(t, highest, all[len(ids)].Highest)
			for i, ex := range all[:len(ids)] {
				require.True(t, ex.Found)
				require.Equal(t, ids[i], ex.Job.ID)
				place := slices.Index(claimed, ids[i])
				require.Equal(t, place >= 0, opsInTurn(&ex, now), "job %d, claims take %v: %+v %+v", ids[i], claimed, ex, limits)
				if place >= 0 {
					require.Equal(t, row.Count{N: int64(place)}, ex.Forecast.Ahead, "job %d, claims take %v", ids[i], claimed)
					turns++
				} else {
					kept++
				}
				if ex.Forecast.KeyFull && len(ex.OfKey.Running) == 0 {
					full++ // only once the jobs ahead have started
				}
			}
			queue, err := d.Stores.Operators.ExplainQueue(ctx, q, "mails", row.ExplainRequest{MaxAhead: 100, MaxJobs: 100}, now)
			if len(claimed) > 0 {
				require.Equal(t, claimed[0], queue.First)
			}
			require.Equal(t, limits, queue.Queue.Limits)
			return err
		})
	}
	require.Positive(t, turns)
	require.Positive(t, kept)
	require.Positive(t, full)
}

// opsInTurn reports whether a claim takes the job now, after those ahead of it.
func opsInTurn(ex *row.Explained, now time.Time) bool {
	s, waits := ex.Forecast, ex.Job.State == row.Held && !ex.Freed && !ex.Side.Held
	due := ex.Job.Phase(now) != row.PhaseRunning && !ex.Job.RunAt.After(now) && !waits
	return due && !s.QueueFull && !s.RateSpent && !s.KeyFull && s.KeyStart.IsZero() && s.First == 0 && s.KeyPause == nil && ex.Queue.Pause == nil
}
