package store_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/store"
)

// The counts are those of the phases of the rows, of one queue as of all.
func TestStats_PhasesOfRows(t *testing.T) {
	met := map[store.Phase]int{}
	eachTable(t, randomTables, func(t *testing.T, tx *sql.Tx, g table) {
		exec(t, tx, `UPDATE _honker_live SET state = 'held' WHERE id % 7 = 3 AND state = 'pending'`)
		exec(t, tx, `INSERT INTO _honker_dead (id, queue, payload) SELECT 1000 + id, queue, '1' FROM _honker_live WHERE id % 3 = 0`)
		want := map[string]*store.QueueStats{}
		for _, r := range liveRows(t, tx) {
			job, found, err := store.Jobs{}.Find(ctx, tx, r.ID)
			require.NoError(t, err)
			require.True(t, found)
			phase := job.Phase(g.now)
			met[phase]++
			tally(want, job, phase)
		}
		for id := range deadRows(t, tx) {
			job, found, err := store.Jobs{}.FindDead(ctx, tx, id)
			require.NoError(t, err)
			require.True(t, found)
			tally(want, job, job.Phase(g.now))
		}
		all := allStats(t, tx, store.JobSelect{Now: g.now})
		require.Len(t, all, len(want))
		for _, s := range all {
			next, err := store.Jobs{}.NextClaim(ctx, tx, s.Queue, g.now)
			require.NoError(t, err)
			want[s.Queue].NextAt = next
			require.Equal(t, *want[s.Queue], s, "%v at %d", liveRows(t, tx), g.now)
			require.Equal(t, []store.QueueStats{s}, allStats(t, tx, store.JobSelect{Now: g.now, Queues: []string{s.Queue}}))
		}
	})
	for _, phase := range []store.Phase{store.PhaseReady, store.PhaseScheduled, store.PhaseRunning, store.PhaseLapsed, store.PhaseHeld, store.PhaseExpired} {
		requireMet(t, met[phase], string(phase))
	}
}

// allStats are those of the queues of s, counted to the end.
func allStats(t *testing.T, q store.Querier, s store.JobSelect) (all []store.QueueStats) {
	t.Helper()
	counts, _, err := store.Jobs{}.Counts(ctx, q, s, 1<<40)
	require.NoError(t, err)
	heads, err := store.Jobs{}.Heads(ctx, q, s)
	require.NoError(t, err)
	for _, h := range heads {
		all = append(all, h.Stats(counts[h.Queue]))
	}
	return all
}

// tally counts job among all.
func tally(all map[string]*store.QueueStats, job store.Job, phase store.Phase) {
	s := all[job.Queue]
	if s == nil {
		s = &store.QueueStats{Queue: job.Queue}
		all[job.Queue] = s
	}
	switch phase {
	case store.PhaseReady:
		s.Ready.N++
		if s.OldestReady == 0 || job.RunAt < s.OldestReady {
			s.OldestReady = job.RunAt
		}
	case store.PhaseScheduled:
		s.Scheduled.N++
	case store.PhaseRunning:
		s.Running.N++
	case store.PhaseLapsed:
		s.Lapsed.N++
	case store.PhaseHeld:
		s.Held.N++
	case store.PhaseExpired:
		s.Expired.N++
	case store.PhaseDead:
		s.Dead.N++
	}
}

// A claim takes exactly the jobs that are ready or lapsed.
func TestPhase_Claim(t *testing.T) {
	eachTable(t, randomTables, func(t *testing.T, tx *sql.Tx, g table) {
		want := []int64{}
		for _, r := range liveRows(t, tx) {
			job, _, err := store.Jobs{}.Find(ctx, tx, r.ID)
			require.NoError(t, err)
			if phase := job.Phase(g.now); job.Queue == "a" && (phase == store.PhaseReady || phase == store.PhaseLapsed) {
				want = append(want, job.ID)
			}
		}
		jobs, _, err := store.Jobs{}.Claim(ctx, tx, "a", "w", -1, g.now, g.now+60)
		require.NoError(t, err)
		require.ElementsMatch(t, want, idsOf(jobs, jobID))
	})
}

// A hundred thousand jobs that wait are counted by the index, without their rows.
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
		all := allStats(t, tx, store.JobSelect{Now: 1_000_000})
		best = min(best, time.Since(began))
		n := store.Count{N: 50_000}
		require.Equal(t, []store.QueueStats{{Queue: "a", QueueCounts: store.QueueCounts{Ready: n, Scheduled: n}, OldestReady: 1, NextAt: 2_000_001}}, all)
	}
	t.Logf("%v", best)
	require.Less(t, best, time.Second)
}

// A list finds the same jobs by walking over all and by the indexes of their queues and phases, in whatever
// state the rows are, and those are the jobs that are in the phases.
func TestJobList_CollectWalks(t *testing.T) {
	phases := []store.Phase{store.PhaseReady, store.PhaseScheduled, store.PhaseRunning, store.PhaseLapsed, store.PhaseHeld, store.PhaseExpired}
	met := 0
	eachTable(t, randomTables/4, func(t *testing.T, tx *sql.Tx, g table) {
		exec(t, tx, `UPDATE _honker_live SET state = 'held' WHERE id % 7 = 3 AND state = 'pending'`)
		exec(t, tx, `INSERT INTO _honker_dead (id, queue, payload) SELECT id, queue, '1' FROM _honker_live WHERE id % 3 = 0`)
		for mask := range 1 << len(phases) {
			s := store.JobSelect{Now: g.now, Queues: []string{"a"}, Phases: []store.Phase{}}
			for i, p := range phases {
				if mask&(1<<i) != 0 {
					s.Phases = append(s.Phases, p)
				}
			}
			if mask%3 == 0 {
				s.Phases = append(s.Phases, store.PhaseDead)
			}
			order := store.Order(mask % 2)
			want := picked(t, tx, s, order, store.Walk)
			require.Equal(t, want, picked(t, tx, s, order, store.Collect), "%v at %d: %v", s.Phases, g.now, liveRows(t, tx))
			met += len(want)
			for _, job := range want {
				require.Contains(t, s.Phases, job.Phase(g.now))
			}
			counts, _, err := store.Jobs{}.Counts(ctx, tx, s, 1<<40)
			require.NoError(t, err)
			require.Equal(t, store.Count{N: int64(len(want))}, counts["a"].Sum(s), "%v", s.Phases)
		}
	})
	requireMet(t, met, "jobs")
}

// picked are the jobs of a list, found three at a time.
func picked(t *testing.T, q store.Querier, s store.JobSelect, order store.Order, by store.Access) (jobs []store.Job) {
	t.Helper()
	var after *store.Place
	for {
		places, err := store.Jobs{}.After(ctx, q, s, order, by, after, 3)
		require.NoError(t, err)
		found, err := store.Jobs{}.Load(ctx, q, s, places)
		require.NoError(t, err)
		for _, at := range places {
			if job, is := found[at]; is {
				jobs = append(jobs, job)
			}
		}
		if len(places) < 3 {
			return jobs
		}
		after = &places[2]
	}
}

// Jobs that cannot run are passed at the head of a queue only so far, and the time is then not later than the
// right one.
func TestHeads_BehindExpired(t *testing.T) {
	tx := begin(t, openFresh(t))
	exec(t, tx, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)
INSERT INTO _honker_live (queue, run_at, payload, expires_at) SELECT 'a', i, '1', 5000 FROM n`)
	of := store.JobSelect{Now: 10_000}
	require.Equal(t, []store.QueueStats{{Queue: "a", QueueCounts: store.QueueCounts{Expired: store.Count{N: 3000}}}}, allStats(t, tx, of))
	exec(t, tx, `INSERT INTO _honker_live (queue, run_at, payload) VALUES ('a', 4000, '1')`)
	require.Equal(t, int64(1000), allStats(t, tx, of)[0].OldestReady, "the last that was passed")
	exec(t, tx, `DELETE FROM _honker_live WHERE id > 500 AND id < 3000`)
	require.Equal(t, int64(4000), allStats(t, tx, of)[0].OldestReady)
}

// A count ends at its limit, and says so.
func TestCounts_Limit(t *testing.T) {
	tx := begin(t, openFresh(t))
	exec(t, tx, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100)
INSERT INTO _honker_live (queue, priority, run_at, payload) SELECT 'a', 0, i, '1' FROM n`)
	for limit, want := range map[int64]store.Count{99: {N: 99, More: true}, 100: {N: 100}, 101: {N: 100}} {
		counts, _, err := store.Jobs{}.Counts(ctx, tx, store.JobSelect{Now: 1000}, limit)
		require.NoError(t, err)
		require.Equal(t, want, counts["a"].Ready)
	}
}
