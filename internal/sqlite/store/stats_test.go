package store_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/jobs"
	"github.com/honker-go/honker/internal/sqlite/store/lists"
)

// The counts match the rows' phases, for a single queue and for all queues.
func TestStats_PhasesOfRows(t *testing.T) {
	met := map[row.Phase]int{}
	eachTable(t, randomTables, func(t *testing.T, tx *sql.Tx, g table) {
		exec(t, tx, `UPDATE _honker_live SET state = 'held' WHERE id % 7 = 3 AND state = 'pending'`)
		exec(t, tx, `INSERT INTO _honker_dead (id, queue, payload) SELECT 1000 + id, queue, '1' FROM _honker_live WHERE id % 3 = 0`)
		want := map[string]*row.QueueStats{}
		for _, r := range liveRows(t, tx) {
			job, found, err := jobs.Jobs{}.Find(ctx, tx, r.ID, "")
			require.NoError(t, err)
			require.True(t, found)
			phase := job.Phase(time.Unix(g.now, 0))
			met[phase]++
			tally(want, job, phase)
		}
		for id := range deadRows(t, tx) {
			job, found, err := jobs.Jobs{}.Find(ctx, tx, id, "")
			require.NoError(t, err)
			require.True(t, found)
			tally(want, job, job.Phase(time.Unix(g.now, 0)))
		}
		all := allStats(t, tx, g.now)
		require.Len(t, all, len(want))
		for _, s := range all {
			next, err := nextClaim(tx, s.Queue, g.now)
			require.NoError(t, err)
			want[s.Queue].NextAt = row.Instant(next)
			require.Equal(t, *want[s.Queue], s, "%v at %d", liveRows(t, tx), g.now)
			require.Equal(t, []row.QueueStats{s}, allStats(t, tx, g.now, s.Queue))
		}
	})
	for _, phase := range []row.Phase{row.PhaseReady, row.PhaseScheduled, row.PhaseRunning, row.PhaseLapsed, row.PhaseHeld, row.PhaseExpired} {
		requireMet(t, met[phase], string(phase))
	}
}

// allStats returns the complete statistics of queues, or of all queues, at the second now.
func allStats(t *testing.T, q row.Querier, now int64, queues ...string) (all []row.QueueStats) {
	t.Helper()
	counts, _, err := lists.Lists{}.Counts(ctx, q, row.JobSelect{Queues: queues}, 1<<40, time.Unix(now, 0))
	require.NoError(t, err)
	heads, err := lists.Lists{}.Heads(ctx, q, queues, time.Unix(now, 0))
	require.NoError(t, err)
	for _, h := range heads {
		all = append(all, h.Stats(counts[h.Queue]))
	}
	return all
}

// tally adds job to its queue's statistics.
func tally(all map[string]*row.QueueStats, job row.Job, phase row.Phase) {
	s := all[job.Queue]
	if s == nil {
		s = &row.QueueStats{Queue: job.Queue}
		all[job.Queue] = s
	}
	switch phase {
	case row.PhaseReady:
		s.Ready.N++
		if at := job.RunAt; s.OldestReady.IsZero() || at.Before(s.OldestReady) {
			s.OldestReady = at
		}
	case row.PhaseScheduled:
		s.Scheduled.N++
	case row.PhaseRunning:
		s.Running.N++
	case row.PhaseLapsed:
		s.Lapsed.N++
	case row.PhaseHeld:
		s.Held.N++
	case row.PhaseExpired:
		s.Expired.N++
	case row.PhaseDead:
		s.Dead.N++
	}
}

// A claim takes exactly the jobs that are ready or lapsed.
func TestPhase_Claim(t *testing.T) {
	eachTable(t, randomTables, func(t *testing.T, tx *sql.Tx, g table) {
		want := []int64{}
		for _, r := range liveRows(t, tx) {
			job, _, err := jobs.Jobs{}.Find(ctx, tx, r.ID, "")
			require.NoError(t, err)
			if phase := job.Phase(time.Unix(g.now, 0)); job.Queue == "a" && (phase == row.PhaseReady || phase == row.PhaseLapsed) {
				want = append(want, job.ID)
			}
		}
		jobs, _, err := claim(tx, "a", "w", -1, g.now, g.now+60)
		require.NoError(t, err)
		require.ElementsMatch(t, want, idsOf(jobs, jobID))
	})
}

// A hundred thousand waiting jobs are counted in an index, without reading their rows.
func TestStats_QuickInBacklog(t *testing.T) {
	if slower > 1 {
		t.Skip("the race detector is slow")
	}
	tx := begin(t, openFresh(t))
	exec(t, tx, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
INSERT INTO _honker_live (queue, priority, run_at, payload) SELECT 'a', i % 3, 1 + i % 2 * 2000000, hex(zeroblob(200)) FROM n`)
	best := time.Hour
	for range 5 {
		began := time.Now()
		all := allStats(t, tx, 1_000_000)
		best = min(best, time.Since(began))
		n := row.Count{N: 50_000}
		require.Equal(t, []row.QueueStats{{Queue: "a", QueueCounts: row.QueueCounts{Ready: n, Scheduled: n}, OldestReady: row.Instant(1), NextAt: row.Instant(2_000_001)}}, all)
	}
	t.Logf("%v", best)
	require.Less(t, best, time.Second)
}

// A list finds the same jobs by a full walk and by the queue and phase indexes, regardless of the rows' state, and
// all of these jobs are in the requested phases.
func TestJobList_CollectWalks(t *testing.T) {
	phases := []row.Phase{row.PhaseReady, row.PhaseScheduled, row.PhaseRunning, row.PhaseLapsed, row.PhaseHeld, row.PhaseExpired}
	met := 0
	eachTable(t, randomTables/8, func(t *testing.T, tx *sql.Tx, g table) {
		exec(t, tx, `UPDATE _honker_live SET state = 'held' WHERE id % 7 = 3 AND state = 'pending'`)
		exec(t, tx, `INSERT INTO _honker_dead (id, queue, payload) SELECT id, queue, '1' FROM _honker_live WHERE id % 3 = 0`)
		for mask := range 1 << len(phases) {
			s := row.JobSelect{Queues: []string{"a"}, Phases: []row.Phase{}}
			for i, p := range phases {
				if mask&(1<<i) != 0 {
					s.Phases = append(s.Phases, p)
				}
			}
			if mask%3 == 0 {
				s.Phases = append(s.Phases, row.PhaseDead)
			}
			order := row.Order(mask % 2)
			want := picked(t, tx, s, order, false, g.now)
			require.Equal(t, want, picked(t, tx, s, order, true, g.now), "%v at %d: %v", s.Phases, g.now, liveRows(t, tx))
			met += len(want)
			for _, job := range want {
				require.Contains(t, s.Phases, job.Phase(time.Unix(g.now, 0)))
			}
			counts, _, err := lists.Lists{}.Counts(ctx, tx, s, 1<<40, time.Unix(g.now, 0))
			require.NoError(t, err)
			require.Equal(t, row.Count{N: int64(len(want))}, counts["a"].Sum(s), "%v", s.Phases)
		}
	})
	requireMet(t, met, "jobs")
}

// picked returns the jobs in a list, read three at a time.
func picked(t *testing.T, q row.Querier, s row.JobSelect, order row.Order, sorted bool, now int64) (all []row.Job) {
	t.Helper()
	r := row.ListRequest{JobSelect: s, Order: order, Limit: 3, Plan: row.ListPlan{Sorted: sorted, Looks: 9}}
	for {
		part, err := lists.Lists{}.List(ctx, q, r, time.Unix(now, 0))
		require.NoError(t, err)
		for i := range part.Places {
			if job, is := part.Jobs[i]; is {
				all = append(all, job)
			}
		}
		if part.Ended {
			return all
		}
		r.After, r.Plan = &part.Places[len(part.Places)-1], part.Plan
	}
}

// The search at the head of a queue skips a limited number of jobs that can't run. Beyond that, the returned time is
// no later than the exact time.
func TestHeads_BehindExpired(t *testing.T) {
	tx := begin(t, openFresh(t))
	exec(t, tx, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)
INSERT INTO _honker_live (queue, run_at, payload, expires_at) SELECT 'a', i, '1', 5000 FROM n`)
	const of = 10_000
	require.Equal(t, []row.QueueStats{{Queue: "a", QueueCounts: row.QueueCounts{Expired: row.Count{N: 3000}}}}, allStats(t, tx, of))
	exec(t, tx, `INSERT INTO _honker_live (queue, run_at, payload) VALUES ('a', 4000, '1')`)
	require.Equal(t, row.Instant(1000), allStats(t, tx, of)[0].OldestReady, "the last that was passed")
	exec(t, tx, `DELETE FROM _honker_live WHERE id > 500 AND id < 3000`)
	require.Equal(t, row.Instant(4000), allStats(t, tx, of)[0].OldestReady)
}

// A count stops at its limit and reports that there are more.
func TestCounts_Limit(t *testing.T) {
	tx := begin(t, openFresh(t))
	exec(t, tx, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100)
INSERT INTO _honker_live (queue, priority, run_at, payload) SELECT 'a', 0, i, '1' FROM n`)
	for limit, want := range map[int64]row.Count{99: {N: 99, More: true}, 100: {N: 100}, 101: {N: 100}} {
		counts, _, err := lists.Lists{}.Counts(ctx, tx, row.JobSelect{}, limit, time.Unix(1000, 0))
		require.NoError(t, err)
		require.Equal(t, want, counts["a"].Ready)
	}
}
