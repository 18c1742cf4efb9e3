package model_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// afterMachine drives two queues whose jobs depend on other jobs and batches, have keys, and have
// unique keys. The model records the dependencies of each job. After each step, a job must be held
// if and only if
//
//   - a dependency blocks it: a job that is live or dead, a batch that is open, or a batch with
//     such a member (with EvenIfDead, dead jobs do not block), or
//   - its key is full, or
//   - another job has its unique key.
//
// Once a job has started, its dependencies no longer matter. A dependency that becomes live again
// holds only a job that is dead at that time.
type afterMachine struct {
	ctx     context.Context
	path    string
	db      *honker.DB
	met     map[string]int
	ids     []int64
	edges   map[int64][]*modelEdge // by the waiting job
	batches map[int64]*modelBatch
	claims  []*honker.Job[int]
	other   map[int64]string // workers of claims by another binding
	dying   map[int64]string // queues of jobs that another binding has deleted but not yet dead-lettered
	was     map[int64]jobState
}

// modelEdge is a dependency on a job or, if on is negative, on the batch -on.
type modelEdge struct {
	on      int64
	ifDead  bool
	blocked bool
}

type modelBatch struct {
	open    bool
	members []int64
}

// jobState is the state of a job in the file: "held", "pending", "processing" or "dead". It is ""
// if the job does not exist.
type jobState struct {
	state    string
	attempts int64
}

func (s jobState) live() bool { return s.state != "" && s.state != "dead" }

// holdable reports whether the job has not started.
func (s jobState) holdable() bool {
	return !s.live() || s.state == "held" || s.state == "pending" && s.attempts == 0
}

func (m *afterMachine) snapshot(t require.TestingT) map[int64]jobState {
	all := make(map[int64]jobState)
	rows, err := m.db.SQL().Query(on(`SELECT id, state, attempts FROM _honker_live UNION ALL SELECT id, 'dead', 0 FROM _honker_dead`,
		`SELECT id, CASE state WHEN 0 THEN 'pending' WHEN 1 THEN 'processing' ELSE 'held' END, attempts FROM job UNION ALL SELECT id, 'dead', 0 FROM dead`))
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var id int64
		var s jobState
		require.NoError(t, rows.Scan(&id, &s.state, &s.attempts))
		require.NotContains(t, all, id)
		all[id] = s
	}
	require.NoError(t, rows.Err())
	return all
}

// blocks reports whether a dependency on the node blocks a job, given the states of all jobs.
func (m *afterMachine) blocks(on int64, ifDead bool, jobs map[int64]jobState) bool {
	if on > 0 {
		s := jobs[on]
		return s.live() || s.state == "dead" && !ifDead
	}
	b := m.batches[-on]
	return b.open || slices.ContainsFunc(b.members, func(id int64) bool { return m.blocks(id, ifDead, jobs) })
}

// moved updates the model after a step.
func (m *afterMachine) moved(t require.TestingT) {
	now := m.snapshot(t)
	for waiter, edges := range m.edges {
		for _, e := range edges {
			blocked := m.blocks(e.on, e.ifDead, now)
			if e.blocked && !blocked {
				m.met["let go"]++
			}
			if blocked && !e.blocked && m.was[waiter].holdable() {
				m.met["held again"]++
			}
			e.blocked = blocked && (e.blocked || m.was[waiter].holdable())
		}
	}
	m.was = now
}

// waits reports whether a dependency blocks the job.
func (m *afterMachine) waits(id int64) bool {
	return slices.ContainsFunc(m.edges[id], func(e *modelEdge) bool { return e.blocked })
}

// before reports whether to depends on from, directly or indirectly.
func (m *afterMachine) before(from, to int64) bool {
	if from == to {
		return true
	}
	if to < 0 {
		return slices.ContainsFunc(m.batches[-to].members, func(id int64) bool { return m.before(from, id) })
	}
	return m.was[to].state != "" && slices.ContainsFunc(m.edges[to], func(e *modelEdge) bool { return e.blocked && m.before(from, e.on) })
}

// Check compares the file with the model.
func (m *afterMachine) Check(t *rapid.T) {
	m.moved(t)
	successors := column[int64](t, m.db, on(`SELECT next_id FROM _honkerx_unique WHERE next_id IS NOT NULL`, `SELECT next_id FROM uniq JOIN job ON job.id = next_id AND job.state = 3`))
	for _, id := range successors {
		require.Equal(t, "held", m.was[id].state)
		m.met["successor"]++
		if m.waits(id) {
			m.met["successor that waits"]++
		}
	}
	others := append(successors, column[int64](t, m.db, on(`SELECT job_id FROM _honkerx_job WHERE slot = 2`, `SELECT id FROM job WHERE state = 2`))...)
	for id, s := range m.was {
		if !s.live() {
			continue
		}
		waits, held := m.waits(id), slices.Contains(others, id)
		require.Equal(t, waits || held, s.state == "held", "job %d is %s, waits %v, held for its key %v, edges %v", id, s.state, waits, held, m.lines(t))
		if waits {
			m.met["waits"]++
		}
	}
}

// lines formats the edges and batches in the file.
func (m *afterMachine) lines(t require.TestingT) []string {
	return column[string](t, m.db, on(`SELECT printf('(%d, %d, %d: %d, %d)', job_id, batch, waiter, state, if_dead) FROM _honkerx_after
UNION ALL SELECT printf('batch %d: open %d, done %d', id, open, done_ms) FROM _honkerx_batches`,
		`SELECT format('(%s, %s, %s: %s, %s)', parent, batch, waiter, state, if_dead) FROM edge
UNION ALL SELECT format('batch %s: open %s, done %s', id, open, done_at) FROM batch`))
}

func (m *afterMachine) queue(t *rapid.T) *honker.Queue[int] {
	return honker.NewQueue[int](m.db, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "queue"), nil)
}

func (m *afterMachine) pick(t *rapid.T) int64 {
	if len(m.ids) == 0 {
		t.Skip("no job yet")
	}
	return rapid.SampledFrom(m.ids[max(0, len(m.ids)-12):]).Draw(t, "id")
}

func (m *afterMachine) pickDead(t *rapid.T) int64 {
	var dead []int64
	for _, id := range slices.Sorted(maps.Keys(m.was)) {
		if m.was[id].state == "dead" {
			dead = append(dead, id)
		}
	}
	if len(dead) == 0 {
		t.Skip("none is dead")
	}
	return rapid.SampledFrom(dead).Draw(t, "dead")
}

func (m *afterMachine) pickBatch(t *rapid.T) int64 {
	if len(m.batches) == 0 {
		t.Skip("no batch yet")
	}
	return rapid.SampledFrom(slices.Sorted(maps.Keys(m.batches))).Draw(t, "batch")
}

func (m *afterMachine) chance(t *rapid.T, what string, of int) bool {
	return rapid.IntRange(1, of).Draw(t, what) == 1
}

func (m *afterMachine) open(t require.TestingT) {
	db, err := honker.Open(m.ctx, m.path, &honker.Options{NoFileNotices: true, PollInterval: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	m.db = db
}

// end seals all batches, relaxes the limits and requeues dead jobs, and checks that all jobs finish.
func (m *afterMachine) end(t *rapid.T) {
	for id := range m.batches {
		require.NoError(t, m.db.Batch(id).Seal(m.ctx))
		m.batches[id].open = false
	}
	m.moved(t)
	qs := []*honker.Queue[int]{honker.NewQueue[int](m.db, "a", nil), honker.NewQueue[int](m.db, "b", nil)}
	for _, q := range qs {
		require.NoError(t, q.SetLimits(m.ctx, honker.Limits{PerKey: 1}))
		// A dead job cannot be requeued while another job has its key, and that job may depend on
		// it.
		for _, key := range []string{"k", "l"} {
			_, err := q.ReleaseUnique(m.ctx, key)
			require.NoError(t, err)
		}
	}
	for range 200 {
		_, err := admin.Requeue(m.ctx, m.db, admin.JobFilter{All: true}, nil)
		require.NoError(t, err)
		for _, q := range qs {
			_, err := q.SweepExpired(m.ctx)
			require.NoError(t, err)
			jobs, err := q.Claim(m.ctx, "last", 100)
			require.NoError(t, err)
			for _, job := range jobs {
				require.NoError(t, job.Ack(m.ctx))
			}
		}
		m.Check(t)
		if len(m.was) == 0 {
			break
		}
		time.Sleep(time.Second)
	}
	require.Empty(t, m.was, "stranded")
	require.Empty(t, column[int64](t, m.db, on(`SELECT waiter FROM _honkerx_after`, `SELECT waiter FROM edge WHERE waiter > 0`)))
	require.Empty(t, column[int64](t, m.db, on(`SELECT id FROM _honkerx_batches WHERE done_ms IS NULL`, `SELECT id FROM batch WHERE done_at IS NULL`)))
}

// No job runs before its dependencies are done, and no job is left waiting forever.
func TestAfter_Model(t *testing.T) {
	met := map[string]int{}
	dir, checks := t.TempDir(), 0
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(undated{t}, func(t *rapid.T) {
			m := &afterMachine{ctx: context.Background(), path: filepath.Join(dir, fmt.Sprint(checks, ".db")), met: met,
				edges: map[int64][]*modelEdge{}, batches: map[int64]*modelBatch{}, other: map[int64]string{}, dying: map[int64]string{}}
			m.open(t)
			defer func() { m.db.Close() }()
			checks++
			startSecond() // start each check at a whole second
			actions := rapid.StateMachineActions(m)
			actions["Claim2"], actions["Enqueue2"], actions["Enqueue3"], actions["Settle2"], actions["Settle3"] = m.Claim, m.Enqueue, m.Enqueue, m.Settle, m.Settle
			for range 3 { // rapid runs few steps per Repeat
				t.Repeat(actions)
				require.NoError(t, m.db.Check(m.ctx))
			}
			m.end(t)
			require.NoError(t, m.db.Check(m.ctx))
		})
	})
	requireMet(t, met, "claimed", "let go", "held again", "waits", "successor", "successor that waits", "circle", "circle of a batch", "batch done",
		"sealed", "batch cancelled", "new", "existing", "replaced", "again", "foreign ack", "foreign death", "ack", "result", "many", "retry", "snooze",
		"reject", "requeue", "cancel", "cancelled with it", "discard", "kept for others", "swept")
	t.Log(met)
}
