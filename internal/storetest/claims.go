package storetest

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// modelJob is a job in the model of claims.
type modelJob struct {
	id, priority     int64
	runAt, heldUntil int64 // Unix seconds
	expiresAt        int64 // 0 for never
	attempts, most   int64
	held             bool
	key              string // limits key; "" for none
}

// Claims match a model, for random jobs, settles and times. A claim takes the jobs that are due, have not expired and
// have attempts left, in order of priority, time and ID. A lapsed claim no longer counts.
func claimsOfModel(t *testing.T, d *Fixture) {
	seed := rand.Uint64()
	defer func() {
		if t.Failed() {
			t.Log("seed", seed)
		}
	}()
	rng := rand.New(rand.NewPCG(seed, 1))
	now := start
	model := make(map[int64]*modelJob)
	var claims []*row.Job
	ended, claimed := 0, 0
	for range 300 {
		switch rng.IntN(5) {
		case 0, 1:
			in := plain()
			in.Priority, in.MaxAttempts = rng.Int64N(3), 1+rng.Int64N(3)
			in.Delay = time.Duration(rng.IntN(5)) * time.Second
			if rng.IntN(4) == 0 {
				in.ExpiresIn = time.Duration(1+rng.IntN(15)) * time.Second
			}
			id := d.insert(t, now, in).IDs[0]
			m := &modelJob{id: id, priority: in.Priority, runAt: now.Add(in.Delay).Unix(), most: in.MaxAttempts}
			if in.ExpiresIn > 0 {
				m.expiresAt = now.Add(in.ExpiresIn).Unix()
			}
			model[id] = m
		case 2:
			now = now.Add(time.Duration(rng.IntN(4)) * time.Second)
		case 3:
			n := 1 + rng.IntN(4)
			got := d.claimJobs(t, now, "w", n)
			require.Equal(t, modelClaim(model, now.Unix(), n), jobIDs(got))
			claims, claimed = append(claims, got...), claimed+len(got)
		case 4:
			if len(claims) == 0 {
				continue
			}
			i := rng.IntN(len(claims))
			j := claims[i]
			claims = slices.Delete(claims, i, i+1)
			m, known := model[j.ID]
			held := known && m.held && m.attempts == j.Attempts && m.heldUntil >= now.Unix()
			outcome := []row.Outcome{row.Acked, row.Retried, row.Died, row.Released, row.Snoozed}[rng.IntN(5)]
			s := &row.Settlement{Claim: claimOf(j), Queue: "a", Outcome: outcome, Delay: time.Duration(rng.IntN(3)) * time.Second}
			d.settleJobs(t, now, s)
			require.Equal(t, held, s.Became != row.Lost, "%+v after %v", m, s)
			if held {
				ended++
				modelSettle(model, m, s, now)
			}
		}
	}
	require.NotZero(t, claimed)
	require.NotZero(t, ended)
}

// modelClaim claims jobs in the model and returns their IDs.
func modelClaim(model map[int64]*modelJob, now int64, n int) []int64 {
	var free []*modelJob
	for _, m := range model {
		if m.held && m.heldUntil >= now || m.runAt > now || m.attempts >= m.most || m.expiresAt != 0 && m.expiresAt <= now {
			continue
		}
		free = append(free, m)
	}
	slices.SortFunc(free, func(a, b *modelJob) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.runAt, b.runAt), cmp.Compare(a.id, b.id))
	})
	ids := make([]int64, 0, n)
	for _, m := range free[:min(n, len(free))] {
		m.held, m.heldUntil = true, now+int64(jobLease/time.Second)
		m.attempts++
		ids = append(ids, m.id)
	}
	return ids
}

// modelSettle ends m's claim.
func modelSettle(model map[int64]*modelJob, m *modelJob, s *row.Settlement, now time.Time) {
	m.held = false
	switch due := now.Add(s.Delay).Unix(); {
	case s.Outcome == row.Acked || s.Outcome == row.Died || s.Outcome == row.Retried && m.attempts >= m.most:
		delete(model, m.id)
	case s.Outcome == row.Retried:
		m.runAt = due
	case s.Outcome == row.Snoozed:
		m.attempts--
		m.runAt = max(m.runAt, due)
	default:
		m.attempts--
	}
}

// A claim takes at most N jobs, or none if N is 0. The jobs have everything they were inserted with.
func claimIsBounded(t *testing.T, d *Fixture) {
	in := plain()
	in.Payloads, in.Priority, in.Key, in.Headers = []string{`1`, `2`, `3`}, 7, "k", `{"h":"v"}`
	ids := d.insert(t, start, in).IDs
	require.Empty(t, d.claimJobs(t, start, "w", 0))
	got := d.claimJobs(t, start, "w", 2)
	require.Equal(t, ids[:2], jobIDs(got))
	j := got[0]
	require.Equal(t, "a", j.Queue)
	require.Equal(t, `1`, j.Payload)
	require.EqualValues(t, 7, j.Priority)
	require.EqualValues(t, 1, j.Attempts)
	require.EqualValues(t, 3, j.MaxAttempts)
	require.Equal(t, "k", j.Key)
	require.JSONEq(t, `{"h":"v"}`, j.Headers)
	require.Equal(t, start.Add(jobLease).Unix(), j.ClaimExpiresAt.Unix())
	require.Equal(t, ids[2:], jobIDs(d.claimJobs(t, start, "w", 1000)))
	require.Empty(t, d.claimJobs(t, start, "w", 1000))
	require.Empty(t, d.step(t, start, row.Step{}).Jobs, "an empty step does nothing")
}

// inQueues adds n jobs to each of queues, alternating between them.
func (d *Fixture) inQueues(t *testing.T, n int, queues ...string) {
	t.Helper()
	for range n {
		for _, queue := range queues {
			in := plain()
			in.Queue = queue
			d.insert(t, start, in)
		}
	}
}

// queuesOf returns the jobs' queues.
func queuesOf(all []*row.Job) (queues string) {
	for _, j := range all {
		queues += j.Queue
	}
	return queues
}

// With InOrder, a later lane is served only when the earlier lanes have nothing to claim.
func lanesInOrder(t *testing.T, d *Fixture) {
	d.inQueues(t, 3, "b", "a", "c")
	request := &row.ClaimRequest{Lanes: row.InOrder("a", "b", "c"), Worker: "w", N: 4, Lease: jobLease}
	require.Equal(t, "aaab", queuesOf(d.step(t, start, row.Step{Claim: request}).Jobs))
	require.Equal(t, "bbcc", queuesOf(d.step(t, start, row.Step{Claim: request}).Jobs))
	require.Equal(t, "c", queuesOf(d.step(t, start, row.Step{Claim: request}).Jobs))
}

// With InOneOrder, lanes are claimed like a single queue: by priority, then by time, then by ID.
func lanesInOneOrder(t *testing.T, d *Fixture) {
	var want []*row.Job
	for i := range 60 {
		in := plain()
		in.Queue = string("abc"[i%3])
		in.Priority = int64(i*7%4) - 1
		in.RunAt = start.Add(time.Duration(i*5%3) * time.Second)
		id := d.insert(t, start, in).IDs[0]
		want = append(want, &row.Job{ID: id, Priority: in.Priority, RunAt: in.RunAt})
	}
	slices.SortFunc(want, func(a, b *row.Job) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.RunAt.Compare(b.RunAt), cmp.Compare(a.ID, b.ID))
	})
	request := &row.ClaimRequest{Lanes: row.InOneOrder("b", "none", "a", "c"), Worker: "w", Lease: jobLease}
	var got []int64
	for _, request.N = range []int{1, 1, 7, 1, 20, 90} {
		got = append(got, jobIDs(d.step(t, start.Add(3*time.Second), row.Step{Claim: request}).Jobs)...)
	}
	require.Equal(t, jobIDs(want), got)
}

// With InTurns, lanes share claims in proportion to their weights, even across claims. A lane that had no jobs doesn't
// make up for it later.
func lanesInTurns(t *testing.T, d *Fixture) {
	d.inQueues(t, 20, "a", "b")
	request := &row.ClaimRequest{Lanes: row.InTurns([]string{"a", "b", "c"}, []int{3, 1, 3}), Worker: "w", N: 4, Lease: jobLease}
	next := func() string {
		c := d.step(t, start, row.Step{Claim: request})
		request.Lanes = c.Lanes
		return queuesOf(c.Jobs)
	}
	count := make(map[rune]int)
	for range 2 {
		for _, queue := range next() {
			count[queue]++
		}
	}
	require.Equal(t, map[rune]int{'a': 6, 'b': 2}, count)
	request.N = 1
	var turns string
	for range 8 {
		turns += next()
	}
	require.Equal(t, 2, strings.Count(turns, "b"), "claims of a single job take turns too: %s", turns)
	request.N = 4
	d.inQueues(t, 4, "c")
	taken := next()
	require.Contains(t, taken, "c")
	require.Contains(t, taken, "a", "c has no claim on the turns that it left out")
}

// A job without attempts left and a job that has expired are never claimed. They die no later than the next sweep
// that finds them, and until then they don't keep other jobs from running.
func neverRun(t *testing.T, d *Fixture) {
	in := plain()
	in.MaxAttempts, in.ExpiresIn = 1, time.Hour
	spent := d.insert(t, start, in).IDs[0]
	require.Equal(t, []int64{spent}, jobIDs(d.claimJobs(t, start, "w", 5)))
	in = plain()
	in.ExpiresIn = 5 * time.Second
	expired := d.insert(t, start, in).IDs[0]
	good := d.add(t, start)
	now := start.Add(jobLease + time.Second)
	require.Equal(t, []int64{good}, jobIDs(d.claimJobs(t, now, "w", 5)))
	require.Empty(t, d.claimJobs(t, now, "w", 5))
	for _, id := range []int64{spent, expired} {
		require.NotEqual(t, "processing", d.stateOf(t, id))
	}
}

// States reports whether a claim would find work and, if not, when it would: when a job is due, or after a claim
// ends.
func statesTellWhen(t *testing.T, d *Fixture) {
	state := func(now time.Time, next bool) (s row.QueueState) {
		d.read(t, func(ctx context.Context, q engine.Querier) error {
			all, err := d.Stores.Jobs.States(ctx, q, []string{"none", "a"}, next, now)
			require.Len(t, all, 2)
			require.Equal(t, "none", all[0].Queue)
			require.False(t, all[0].Ready)
			s = all[1]
			return err
		})
		d.read(t, func(ctx context.Context, q engine.Querier) error {
			only, err := d.Stores.Jobs.States(ctx, q, []string{"a"}, next, now)
			require.Equal(t, s.Ready, only[0].Ready)
			return err
		})
		return s
	}
	require.Equal(t, row.QueueState{Queue: "a"}, state(start, true))
	in := plain()
	in.Delay = 5 * time.Second
	d.insert(t, start, in)
	require.False(t, state(start.Add(4*time.Second), false).Ready)
	require.True(t, state(start, true).Next.Equal(start.Add(5*time.Second)))
	require.True(t, state(start.Add(5*time.Second), false).Ready)
	now := start.Add(5 * time.Second)
	require.Len(t, d.claimJobs(t, now, "w", 1), 1)
	s := state(now, true)
	require.False(t, s.Ready)
	require.True(t, s.Next.Equal(now.Add(jobLease+d.Resolution)), "the first time after the lease")
	require.True(t, state(s.Next, true).Ready)
	d.read(t, func(ctx context.Context, q engine.Querier) error {
		next, err := d.Stores.Jobs.NextClaim(ctx, q, "a", now)
		require.True(t, next.Equal(s.Next))
		return err
	})
}

// NextClaim passes over the claim of a job that must not run again, and over the time of a pause. States does not pass over
// the claim, since a worker wakes to end the job.
func nextClaim(t *testing.T, d *Fixture) {
	next := func(now time.Time) (at time.Time) {
		d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
			at, err = d.Stores.Jobs.NextClaim(ctx, q, "a", now)
			return err
		})
		return at
	}
	in := plain()
	in.MaxAttempts = 1
	d.insert(t, start, in)
	require.Len(t, d.claimJobs(t, start, "w", 1), 1)
	require.True(t, next(start).IsZero(), "it has no attempt left")
	d.add(t, start)
	require.Len(t, d.claimJobs(t, start, "w", 1), 1)
	lapse := start.Add(jobLease + d.Resolution)
	require.True(t, lapse.Equal(next(start)))
	d.pause(t, start, "", time.Time{})
	require.True(t, next(start).IsZero(), "the pause has no end")
	d.pause(t, start, "", start.Add(2*time.Second))
	require.True(t, lapse.Equal(next(start)), "the pause ends before the claim")
	d.pause(t, start, "", start.Add(jobLease+time.Minute))
	require.True(t, start.Add(jobLease+time.Minute).Equal(next(start)), "the claim ends before the pause")
}

// A job is running through the last moment of its lease, and has lapsed right after it, even if the lease ends at a whole
// second.
func phaseAtLapse(t *testing.T, d *Fixture) {
	id := d.add(t, start)
	require.Len(t, d.claimJobs(t, start, "w", 1), 1)
	j, found := d.find(t, id)
	require.True(t, found)
	require.Equal(t, row.PhaseRunning, j.Phase(start.Add(jobLease)))
	require.Equal(t, row.PhaseLapsed, j.Phase(start.Add(jobLease+d.Resolution)))
}
