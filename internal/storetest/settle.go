package storetest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

func settlements(t *testing.T, open func(t *testing.T) *Fixture) {
	subtests(t, open, map[string]func(t *testing.T, d *Fixture){
		"Fences":            fencesHold,
		"Outcomes":          outcomes,
		"AttemptsKept":      attemptsKept,
		"LostAmongOthers":   lostAmongOthers,
		"SettleBeforeClaim": settleBeforeClaim,
		"Alone":             settledAlone,
		"Results":           results,
		"Progress":          progressOfSettlements,
		"Renew":             renewals,
		"Starts":            starts,
		"Checkpoint":        checkpoints,
		"AckMany":           ackMany,
		"SlowDown":          slowDown,
	})
}

// fate returns a job's fate.
func (d *Fixture) fate(t *testing.T, id int64, now time.Time) (f row.Fate) {
	t.Helper()
	d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
		f, err = d.Stores.Results.Fate(ctx, q, id, now)
		return err
	})
	return f
}

// A claim that isn't valid changes nothing, no matter which verb uses it: the worker or attempt is different, the
// lease has ended, or there is no such job. A claim is valid through the last second of its lease.
func fencesHold(t *testing.T, d *Fixture) {
	result, progress := `1`, &row.Progress{Done: 1}
	type verb = func(c row.Claim, now time.Time) (held bool)
	verbs := map[string]verb{
		"extend": func(c row.Claim, now time.Time) (held bool) {
			d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
				held, err = d.Stores.Jobs.Extend(ctx, q, row.Extension{Claim: c, Lease: time.Hour, Progress: progress}, now)
				return err
			})
			return held
		},
		"checkpoint": func(c row.Claim, now time.Time) (held bool) {
			d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
				held, err = d.Stores.Jobs.Checkpoint(ctx, q, c, `1`, now)
				return err
			})
			return held
		},
	}
	for _, outcome := range []row.Outcome{row.Acked, row.Retried, row.Died, row.Snoozed, row.Released} {
		verbs[string(outcome)] = func(c row.Claim, now time.Time) bool {
			s := &row.Settlement{Claim: c, Queue: "a", Outcome: outcome, Error: "why", Result: &result, Progress: progress, Delay: time.Minute}
			d.settleJobs(t, now, s)
			return s.Became != row.Lost
		}
	}
	now := start
	for name, do := range verbs {
		now = now.Add(24 * time.Hour)
		id := d.add(t, now)
		var j *row.Job
		for _, j = range d.claimJobs(t, now, "w", 100) { // including jobs that other verbs have returned to the queue
			if j.ID == id {
				break
			}
		}
		before, _ := d.find(t, id)
		c, last := claimOf(j), now.Add(jobLease)
		for why, held := range map[string]bool{
			"of another worker":  do(row.Claim{ID: c.ID, Worker: "other", Attempt: c.Attempt}, now),
			"of another attempt": do(row.Claim{ID: c.ID, Worker: c.Worker, Attempt: c.Attempt + 1}, now),
			"of no job":          do(row.Claim{ID: c.ID + 1000, Worker: c.Worker, Attempt: c.Attempt}, now),
			"after its lease":    do(c, last.Add(time.Second)),
		} {
			require.False(t, held, "%s by a claim %s", name, why)
		}
		after, _ := d.find(t, id)
		require.Equal(t, before, after, name)
		require.False(t, d.fate(t, id, now).HasResult, name)
		require.True(t, do(c, last), "%s in the last second of the lease", name)
	}
}

// Each outcome of a claim leaves the expected state. The attempt counts, unless the job was snoozed or released. A job
// that is retried without attempts left dies.
func outcomes(t *testing.T, d *Fixture) {
	now := start.Add(300 * time.Millisecond)
	later := d.up(5300 * time.Millisecond).Sub(start)
	for i, c := range []struct {
		outcome, became row.Outcome
		most            int64
		state           string
		attempts        int64         // for a live job
		due             time.Duration // the same, after start
	}{
		{outcome: row.Acked, became: row.Acked, most: 2},
		{outcome: row.Retried, became: row.Retried, most: 2, state: "pending", attempts: 1, due: later},
		{outcome: row.Retried, became: row.Died, most: 1, state: "dead", attempts: 1},
		{outcome: row.Died, became: row.Died, most: 2, state: "dead", attempts: 1},
		{outcome: row.Snoozed, became: row.Snoozed, most: 1, state: "pending", attempts: 0, due: later},
		{outcome: row.Released, became: row.Released, most: 1, state: "pending", attempts: 0, due: now.Truncate(d.Resolution).Sub(start)},
	} {
		name := fmt.Sprint(i, " ", c.outcome)
		in := plain()
		in.Queue, in.MaxAttempts = name, c.most
		id := d.insert(t, now, in).IDs[0]
		claimed := d.step(t, now, row.Step{Claim: &row.ClaimRequest{Lanes: row.InOrder(name), Worker: "w", N: 1, Lease: jobLease}}).Jobs
		began := now.Add(-2 * time.Second)
		s := &row.Settlement{Claim: claimOf(claimed[0]), Queue: name, Outcome: c.outcome, Delay: 5 * time.Second, Error: "why", Start: began, Ran: time.Second, Log: "log"}
		d.settleJobs(t, now, s)
		require.Equal(t, c.became, s.Became, name)
		require.False(t, s.Gone, name)
		j, found := d.find(t, id)
		require.Equal(t, c.state != "", found, name)
		require.Equal(t, c.state, j.State, name)
		if found {
			require.Equal(t, c.attempts, j.Attempts, name)
		}
		if c.state == "pending" {
			require.Equal(t, start.Add(c.due).UTC(), j.RunAt.UTC(), name)
		}
		failed := c.became == row.Retried || c.became == row.Died
		require.Equal(t, failed, s.Failed(), name)
		if failed {
			require.Equal(t, "why", j.LastError, name)
		}
		if c.became == row.Retried {
			require.True(t, s.RunAt.Equal(start.Add(later)), name)
		}
		d.read(t, func(ctx context.Context, q engine.Querier) error {
			all, err := d.Stores.Operators.Attempts(ctx, q, id)
			if !failed {
				require.Empty(t, all, name)
				return err
			}
			require.Len(t, all, 1, name)
			require.Equal(t, "why", all[0].Error)
			require.Equal(t, "log", all[0].Log)
			require.EqualValues(t, 1, all[0].N)
			return err
		})
		f := d.fate(t, id, now)
		require.Equal(t, c.state == "dead", f.Dead, name)
		require.Equal(t, c.state == "pending", f.Live, name)
		require.True(t, f.Known, name)
	}
}

// The last 20 failed attempts of a job are kept, and the last 256 KiB of their logs.
func attemptsKept(t *testing.T, d *Fixture) {
	in := plain()
	in.MaxAttempts = 100
	id := d.insert(t, start, in).IDs[0]
	log := strings.Repeat("x", 60<<10)
	for n := range 27 {
		j := d.claimJobs(t, start, "w", 1)[0]
		s := &row.Settlement{Claim: claimOf(j), Queue: "a", Outcome: row.Retried, Error: "why", Start: start}
		if n%2 == 0 {
			s.Log = log
		}
		d.settleJobs(t, start, s)
	}
	d.read(t, func(ctx context.Context, q engine.Querier) error {
		all, err := d.Stores.Operators.Attempts(ctx, q, id)
		require.Len(t, all, 20)
		logs := 0
		for i, a := range all {
			require.EqualValues(t, i+8, a.N)
			if a.Log != "" {
				require.GreaterOrEqual(t, a.N, int64(21), "of the last attempts")
				logs++
			}
		}
		require.Equal(t, 4, logs)
		return err
	})
}

// A lost claim doesn't keep other claims from ending. A step without Exact may reject everything instead, and then
// leaves no changes.
func lostAmongOthers(t *testing.T, d *Fixture) {
	in := plain()
	in.Payloads = []string{`1`, `2`, `3`, `4`, `5`}
	ids := d.insert(t, start, in).IDs
	claimed := d.claimJobs(t, start, "w", 5)
	all := make([]*row.Settlement, len(claimed))
	for i, j := range claimed {
		all[i] = &row.Settlement{Claim: claimOf(j), Queue: "a", Outcome: row.Acked}
	}
	all[1].Outcome = row.Released
	d.end(t, start, claimed[2], row.Released) // another step has given it back
	require.Equal(t, ids[2:3], jobIDs(d.claimJobs(t, start, "other", 1)))
	err := d.write(t, func(ctx context.Context, q engine.Querier) error {
		_, err := d.Stores.Jobs.Step(ctx, q, row.Step{Settle: all}, start)
		return err
	})
	if err != nil {
		require.ErrorIs(t, err, row.ErrClaimsLost)
		for _, id := range ids {
			require.Equal(t, "processing", d.stateOf(t, id))
		}
		d.settleJobs(t, start, all...)
	}
	for i, want := range []row.Outcome{row.Acked, row.Released, row.Lost, row.Acked, row.Acked} {
		require.Equal(t, want, all[i].Became, i)
		require.Equal(t, map[row.Outcome]string{row.Acked: "", row.Released: "pending", row.Lost: "processing"}[want], d.stateOf(t, ids[i]))
	}
	require.False(t, all[2].Gone)
}

// A step settles before it claims: a job that returns to the queue may be the first to be claimed.
func settleBeforeClaim(t *testing.T, d *Fixture) {
	first := d.add(t, start)
	j := d.claimJobs(t, start, "w", 1)[0]
	second := d.add(t, start)
	s := &row.Settlement{Claim: claimOf(j), Queue: "a", Outcome: row.Released}
	claim := &row.ClaimRequest{Lanes: row.InOrder("a"), Worker: "w", N: 5, Lease: jobLease}
	require.Equal(t, []int64{first, second}, jobIDs(d.step(t, start, row.Step{Settle: []*row.Settlement{s}, Claim: claim}).Jobs))
}

// A single plain settlement may run without a transaction. If it needs one, it changes nothing.
func settledAlone(t *testing.T, d *Fixture) {
	alone := func(s *row.Settlement) error {
		require.True(t, s.Plain())
		return d.Backend.Write(t.Context(), engine.SingleOp(func(ctx context.Context, q engine.Querier, _ time.Time) error {
			_, err := d.Stores.Jobs.Step(ctx, q, row.Step{Settle: []*row.Settlement{s}, Alone: true}, start)
			return err
		}))
	}
	for _, outcome := range []row.Outcome{row.Released, row.Snoozed, row.Acked} {
		d.add(t, start)
		j := d.claimJobs(t, start, "w", 1)[0]
		s := &row.Settlement{Claim: claimOf(j), Queue: "a", Outcome: outcome}
		require.NoError(t, alone(s))
		require.Equal(t, outcome, s.Became)
		require.NoError(t, alone(s))
		require.Equal(t, row.Lost, s.Became)
		for _, j := range d.claimJobs(t, start, "w", 9) {
			d.end(t, start, j, row.Acked)
		}
	}
	id := d.add(t, start)
	j := d.claimJobs(t, start, "w", 1)[0]
	in := plain()
	in.Links = &row.Links{Jobs: []int64{id}}
	waiter := d.insert(t, start, in).IDs[0]
	s := &row.Settlement{Claim: claimOf(j), Queue: "a", Outcome: row.Acked}
	if err := alone(s); err != nil {
		require.ErrorIs(t, err, row.ErrAwaited)
		require.Equal(t, "processing", d.stateOf(t, id))
		require.Equal(t, row.Held, d.stateOf(t, waiter))
		d.settleJobs(t, start, s)
	}
	require.Equal(t, row.Acked, s.Became)
	require.Equal(t, "pending", d.stateOf(t, waiter))
}

// A job has a result if and only if it is done, for the time given in the settlement. Decided finds both.
func results(t *testing.T, d *Fixture) {
	decided := func(ids ...int64) (found []int64) {
		d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
			found, err = d.Stores.Wake.Results(ctx, q, ids)
			return err
		})
		return found
	}
	result := `{"x":1}`
	now := start.Add(300 * time.Millisecond)
	for _, c := range []struct {
		outcome row.Outcome
		ttl     time.Duration
		until   time.Duration // after start; 0 if the result does not expire
	}{{row.Acked, 1500 * time.Millisecond, 2 * time.Second}, {row.Acked, 0, 0}, {row.Acked, -1, 0}, {outcome: row.Retried}, {outcome: row.Died}, {outcome: row.Released}} {
		id := d.add(t, now)
		require.Empty(t, decided(id, id+1))
		var j *row.Job
		for _, j = range d.claimJobs(t, now, "w", 100) {
			if j.ID == id {
				break
			}
		}
		s := &row.Settlement{Claim: claimOf(j), Queue: "a", Outcome: c.outcome, Result: &result, ResultTTL: c.ttl, Delay: time.Hour}
		d.settleJobs(t, now, s)
		require.Equal(t, c.outcome, s.Became)
		f := d.fate(t, id, now)
		require.Equal(t, c.outcome == row.Acked, f.HasResult, c)
		require.Equal(t, c.outcome == row.Acked || c.outcome == row.Died, len(decided(id)) == 1, c)
		if c.outcome != row.Acked {
			require.Empty(t, f.Result)
			continue
		}
		require.JSONEq(t, result, f.Result)
		if c.until > 0 {
			require.True(t, d.fate(t, id, start.Add(c.until-time.Second)).HasResult)
			require.False(t, d.fate(t, id, start.Add(c.until)).HasResult)
		} else {
			require.True(t, d.fate(t, id, start.Add(1e6*time.Hour)).HasResult)
		}
	}
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
		if err := d.Stores.Results.Save(ctx, q, 1e9, `1`, 0, start); err != nil {
			return err
		}
		return d.Stores.Results.Save(ctx, q, 1e9, `2`, 0, start)
	})
	require.Equal(t, `2`, d.fate(t, 1e9, start).Result, "the second save replaces the first, also without a job")
	require.Equal(t, []int64{1e9}, decided(1e9, 1e9+1), "an id that was never assigned is not decided")
}

// Progress is saved when its claim is renewed, and when a job is settled without being removed.
func progressOfSettlements(t *testing.T, d *Fixture) {
	id := d.add(t, start)
	j := d.claimJobs(t, start, "w", 1)[0]
	saved := func() string {
		j, _ := d.find(t, id)
		return j.Progress
	}
	require.Empty(t, saved())
	var last string
	steps := []func(p *row.Progress){
		func(p *row.Progress) {
			d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
				held, err := d.Stores.Jobs.Extend(ctx, q, row.Extension{Claim: claimOf(j), Lease: jobLease, Progress: p}, start)
				require.True(t, held)
				return err
			})
		},
		func(p *row.Progress) {
			d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
				news := []row.ProgressOf{{ID: id, Attempt: j.Attempts, Progress: *p}, {ID: id, Attempt: j.Attempts + 1}}
				_, err := d.Stores.Jobs.Renew(ctx, q, row.Renewal{Worker: "w", IDs: []int64{id}, Lease: jobLease, Progress: news}, start)
				return err
			})
		},
		func(p *row.Progress) {
			d.settleJobs(t, start, &row.Settlement{Claim: claimOf(j), Queue: "a", Outcome: row.Released, Progress: p})
		},
		func(p *row.Progress) {
			j = d.claimJobs(t, start, "w", 1)[0]
			d.settleJobs(t, start, &row.Settlement{Claim: claimOf(j), Queue: "a", Outcome: row.Died, Progress: p})
		},
	}
	for i, step := range steps {
		step(&row.Progress{Done: int64(i + 1), Total: 9, Note: "n", At: start})
		now := saved()
		require.NotEqual(t, last, now, i)
		var p row.Progress
		require.NoError(t, p.UnmarshalJSON([]byte(now)))
		p.At = p.At.UTC()
		require.Equal(t, row.Progress{Done: int64(i + 1), Total: 9, Note: "n", At: start}, p)
		last = now
	}
}

// Renew never shortens a claim and returns the jobs that are still held. Extend sets the end, earlier or later.
func renewals(t *testing.T, d *Fixture) {
	in := plain()
	in.Payloads = []string{`1`, `2`, `3`}
	ids := d.insert(t, start, in).IDs
	mine := d.claimJobs(t, start, "w", 2)
	d.claimJobs(t, start, "other", 1)
	until := func(id int64) time.Time {
		j, _ := d.find(t, id)
		return j.ClaimExpiresAt
	}
	renew := func(now time.Time, length time.Duration) (kept []int64) {
		d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
			kept, err = d.Stores.Jobs.Renew(ctx, q, row.Renewal{Worker: "w", IDs: append([]int64{1e9}, ids...), Lease: length}, now)
			return err
		})
		return kept
	}
	require.ElementsMatch(t, ids[:2], renew(start, time.Minute))
	require.True(t, until(ids[0]).Equal(start.Add(time.Minute)))
	require.True(t, until(ids[2]).Equal(start.Add(jobLease)))
	renew(start, time.Second)
	require.True(t, until(ids[0]).Equal(start.Add(time.Minute)), "a renewal does not shorten")
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
		held, err := d.Stores.Jobs.Extend(ctx, q, row.Extension{Claim: claimOf(mine[0]), Lease: 2 * time.Second}, start)
		require.True(t, held)
		return err
	})
	require.True(t, until(ids[0]).Equal(start.Add(2*time.Second)))
	require.Equal(t, ids[1:2], renew(start.Add(3*time.Second), time.Minute), "the other claim has lapsed")
}

// A checkpoint is read by the job's next claim, even after its claim has lapsed.
func checkpoints(t *testing.T, d *Fixture) {
	d.add(t, start)
	j := d.claimJobs(t, start, "w", 1)[0]
	require.Empty(t, j.Checkpoint)
	for _, value := range []string{`{"at":1}`, `{"at":2}`} {
		d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
			held, err := d.Stores.Jobs.Checkpoint(ctx, q, claimOf(j), value, start)
			require.True(t, held)
			return err
		})
	}
	j = d.claimJobs(t, start.Add(jobLease+time.Second), "w", 1)[0]
	require.EqualValues(t, 2, j.Attempts)
	require.JSONEq(t, `{"at":2}`, j.Checkpoint)
}

// AckMany acks the jobs that the worker holds in the queue, regardless of their attempts. With Alone, it may skip jobs
// that other jobs are waiting for, and reports that it did.
func ackMany(t *testing.T, d *Fixture) {
	in := plain()
	in.Payloads = []string{`1`, `2`, `3`, `4`}
	ids := d.insert(t, start, in).IDs
	d.claimJobs(t, start, "w", 3)
	d.claimJobs(t, start, "other", 1)
	in = plain()
	in.Links = &row.Links{Jobs: ids[:1]}
	waiter := d.insert(t, start, in).IDs[0]
	ack := func(a row.AckMany) (n int, rest bool) {
		d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
			n, rest, err = d.Stores.Jobs.AckMany(ctx, q, a, start)
			return err
		})
		return n, rest
	}
	n, _ := ack(row.AckMany{Queue: "b", Worker: "w", IDs: ids})
	require.Zero(t, n)
	n, rest := ack(row.AckMany{Queue: "a", Worker: "w", IDs: ids, Alone: true})
	if n < 3 {
		require.Equal(t, 2, n)
		require.True(t, rest)
		require.Equal(t, row.Held, d.stateOf(t, waiter))
		n, rest = ack(row.AckMany{Queue: "a", Worker: "w", IDs: ids})
		require.Equal(t, 1, n)
		require.False(t, rest)
	}
	require.Equal(t, "pending", d.stateOf(t, waiter))
	require.Equal(t, "processing", d.stateOf(t, ids[3]))
}

// A job that is settled with SlowDown pauses its queue until it is due again. The test runs in the past, because a
// database may also compare a pause's end with its own clock.
func slowDown(t *testing.T, d *Fixture) {
	start := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	d.add(t, start)
	other := d.add(t, start)
	j := d.claimJobs(t, start, "w", 1)[0]
	s := &row.Settlement{Claim: claimOf(j), Queue: "a", Outcome: row.Snoozed, Delay: time.Minute, SlowDown: true, Error: "busy"}
	require.False(t, s.Plain())
	d.settleJobs(t, start, s)
	claim := row.Step{Claim: &row.ClaimRequest{Lanes: row.InOrder("a"), Worker: "w", N: 5, Lease: jobLease}}
	c := d.step(t, start.Add(59*time.Second), claim)
	require.Empty(t, c.Jobs)
	require.True(t, c.Paused)
	c = d.step(t, start.Add(time.Minute), claim)
	require.Equal(t, []int64{other, j.ID}, jobIDs(c.Jobs))
	require.False(t, c.Paused)
}
