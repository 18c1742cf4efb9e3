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
		all, err := store.Jobs{}.AllStats(ctx, tx, g.now)
		require.NoError(t, err)
		require.Len(t, all, len(want))
		for _, s := range all {
			next, err := store.Jobs{}.NextClaimAt(ctx, tx, s.Queue, g.now)
			require.NoError(t, err)
			want[s.Queue].NextAt = next
			require.Equal(t, *want[s.Queue], s, "%v at %d", liveRows(t, tx), g.now)
			one, err := store.Jobs{}.Stats(ctx, tx, s.Queue, g.now)
			require.NoError(t, err)
			require.Equal(t, s, one)
		}
	})
	for _, phase := range []store.Phase{store.PhaseReady, store.PhaseScheduled, store.PhaseRunning, store.PhaseLapsed, store.PhaseHeld, store.PhaseExpired} {
		requireMet(t, met[phase], string(phase))
	}
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
		s.Ready++
		if s.OldestReady == 0 || job.RunAt < s.OldestReady {
			s.OldestReady = job.RunAt
		}
	case store.PhaseScheduled:
		s.Scheduled++
	case store.PhaseRunning:
		s.Running++
	case store.PhaseLapsed:
		s.Lapsed++
	case store.PhaseHeld:
		s.Held++
	case store.PhaseExpired:
		s.Expired++
	case store.PhaseDead:
		s.Dead++
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
		all, err := store.Jobs{}.AllStats(ctx, tx, 1_000_000)
		best = min(best, time.Since(began))
		require.NoError(t, err)
		require.Equal(t, []store.QueueStats{{Queue: "a", Ready: 50_000, Scheduled: 50_000, OldestReady: 1, NextAt: 2_000_001}}, all)
	}
	t.Logf("%v", best)
	require.Less(t, best, time.Second)
}
