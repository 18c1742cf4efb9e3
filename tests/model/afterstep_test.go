package model_test

import (
	"database/sql"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/internal/testkit"
)

// The methods in this file are the steps of afterMachine.

func (m *afterMachine) Enqueue(t *rapid.T) {
	opts := []honker.EnqueueOption{honker.Priority(rapid.IntRange(-1, 1).Draw(t, "priority")), honker.Delay(maybe(t, "delay")),
		honker.MaxAttempts(rapid.IntRange(1, 3).Draw(t, "max attempts"))}
	if e := maybe(t, "expires"); e > 0 {
		opts = append(opts, honker.ExpiresIn(e))
	}
	if key := limitKeys.Draw(t, "key"); key != "" {
		opts = append(opts, honker.Key(key))
	}
	var on []int64
	for range rapid.IntRange(0, 3).Draw(t, "after") {
		if len(m.ids) > 0 {
			on = append(on, m.pick(t))
		}
	}
	opts = append(opts, honker.After(on...))
	var in int64
	if len(m.batches) > 0 && m.chance(t, "after batch?", 4) {
		b := m.pickBatch(t)
		on, opts = append(on, -b), append(opts, honker.AfterBatch(b))
	}
	if len(m.batches) > 0 && m.chance(t, "in?", 3) {
		in = m.pickBatch(t)
		opts = append(opts, honker.InBatch(in))
	}
	ifDead := len(on) > 0 && m.chance(t, "if dead?", 4)
	if ifDead {
		opts = append(opts, honker.EvenIfDead())
	}
	if m.chance(t, "unique?", 3) {
		opts = append(opts, honker.Unique(uniqueKeys.Draw(t, "unique"), &honker.Uniqueness{
			Conflict: rapid.SampledFrom([]honker.Conflict{honker.KeepExisting, honker.ReplaceWaiting, honker.RunAgain, honker.RunAgain}).Draw(t, "conflict"),
		}))
	}
	m.enqueue(t, in, on, ifDead, opts)
}

// enqueue enqueues a job, or checks that its dependencies are rejected.
func (m *afterMachine) enqueue(t *rapid.T, in int64, on []int64, ifDead bool, opts []honker.EnqueueOption) {
	if in != 0 {
		b := m.batches[in]
		done := !b.open && !slices.ContainsFunc(b.members, func(id int64) bool { return m.was[id].live() })
		circle := slices.ContainsFunc(on, func(node int64) bool { return m.before(-in, node) })
		if done || circle {
			_, err := m.queue(t).Enqueue(m.ctx, 0, opts...)
			require.Error(t, err, "done %v, circle %v, in %d after %v, %+v", done, circle, in, on, m.was)
			if slices.Contains(on, -in) || circle && !done {
				require.ErrorIs(t, err, honker.ErrInvalid)
				m.met["circle of a batch"]++
			} else {
				require.ErrorIs(t, err, honker.ErrBatchDone)
				m.met["batch done"]++
			}
			return
		}
	}
	var p honker.Placement
	id, err := m.queue(t).Enqueue(m.ctx, 0, append(opts, honker.Placed(&p))...)
	if err != nil {
		require.ErrorIs(t, err, honker.ErrInvalid)
		if strings.Contains(err.Error(), "run in order") {
			require.True(t, slices.ContainsFunc(m.ids, func(id int64) bool { return m.before(-in, id) }), "a job waits for the batch")
			m.met["circle of a key"]++
			return
		}
		require.ErrorContains(t, err, "must not form a cycle")
		require.True(t, slices.ContainsFunc(m.ids, func(found int64) bool {
			return slices.ContainsFunc(on, func(node int64) bool { return m.before(found, node) })
		}))
		m.met["circle"]++
		return
	}
	m.met[string(p.Result)]++
	switch p.Result {
	case honker.PlacedExisting:
		return
	case honker.PlacedReplaced:
		require.False(t, slices.ContainsFunc(on, func(node int64) bool { return m.before(id, node) }))
	default:
		m.ids = append(m.ids, id)
		if in != 0 {
			m.batches[in].members = append(m.batches[in].members, id)
		}
	}
	now := m.snapshot(t)
	for _, node := range on {
		known := slices.ContainsFunc(m.edges[id], func(e *modelEdge) bool { return e.on == node })
		if !known {
			m.edges[id] = append(m.edges[id], &modelEdge{node, ifDead, m.blocks(node, ifDead, now)})
		}
	}
}

func (m *afterMachine) NewBatch(t *rapid.T) {
	if len(m.batches) == 4 {
		t.Skip("enough")
	}
	b, err := m.db.NewBatch(m.ctx, nil)
	require.NoError(t, err)
	m.batches[b.ID] = &modelBatch{open: true}
}

func (m *afterMachine) Seal(t *rapid.T) {
	id := m.pickBatch(t)
	require.NoError(t, m.db.Batch(id).Seal(m.ctx))
	m.batches[id].open = false
	m.met["sealed"]++
}

func (m *afterMachine) CancelBatch(t *rapid.T) {
	id := m.pickBatch(t)
	if !m.chance(t, "really", 4) {
		t.Skip("rarely")
	}
	n, err := m.db.Batch(id).Cancel(m.ctx)
	require.NoError(t, err)
	m.batches[id].open = false
	m.met["batch cancelled"] += n
}

func (m *afterMachine) Claim(t *rapid.T) {
	q := honker.NewQueue[int](m.db, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "queue"), &honker.QueueOptions{Lease: holds.Draw(t, "hold")})
	jobs, err := q.Claim(m.ctx, workers.Draw(t, "worker"), rapid.SampledFrom([]int{1, 2, 100}).Draw(t, "n"))
	require.NoError(t, err)
	m.claims = append(m.claims, jobs...)
	for _, j := range jobs {
		after := map[int64]bool{}
		for _, e := range m.edges[j.ID] {
			if e.on > 0 {
				after[e.on] = true
			}
		}
		for _, id := range j.After() {
			delete(after, id)
		}
		if len(after) == 0 {
			continue
		}
		// A job that another binding has deleted has lost its dependencies.
		require.Contains(t, m.dying, -j.ID, "job %d does not know %v", j.ID, after)
	}
	m.met["claimed"] += len(jobs)
}

func (m *afterMachine) ForeignClaim(t *rapid.T) {
	skipForeign(t)
	worker := workers.Draw(t, "worker") + " of another binding"
	for _, id := range foreignClaim(t, m.db, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "queue"), worker, rapid.IntRange(1, 3).Draw(t, "n")) {
		m.other[id] = worker
	}
}

// ForeignEnd ends a claim of another binding. Such bindings do not know dependencies. SQLite's
// clock cannot be used, since it differs from the clock of the bubble.
func (m *afterMachine) ForeignEnd(t *rapid.T) {
	skipForeign(t)
	if len(m.other) == 0 {
		t.Skip("none is held")
	}
	id := rapid.SampledFrom(slices.Sorted(maps.Keys(m.other))).Draw(t, "id")
	worker := m.other[id]
	delete(m.other, id)
	switch rapid.SampledFrom([]string{"ack", "death", "release"}).Draw(t, "how") {
	case "ack":
		m.foreign(t, `DELETE FROM _honker_live WHERE id = ?1 AND worker_id = ?2`, id, worker)
		m.met["foreign ack"]++
	case "death":
		var queue string
		err := m.db.SQL().QueryRow(`DELETE FROM _honker_live WHERE id = ? AND worker_id = ? RETURNING queue`, id, worker).Scan(&queue)
		if err == sql.ErrNoRows {
			t.Skip("its claim was lost")
		}
		require.NoError(t, err)
		m.dying[id], m.dying[-id] = queue, queue
		m.foreign(t, `SELECT 1`)
	case "release":
		m.foreign(t, `UPDATE _honker_live SET state = 'pending', worker_id = NULL, claim_expires_at = NULL WHERE id = ?1 AND worker_id = ?2`, id, worker)
	}
}

// ForeignDeath performs the second commit of a dead-lettering by another binding.
func (m *afterMachine) ForeignDeath(t *rapid.T) {
	skipForeign(t)
	for _, id := range slices.Sorted(maps.Keys(m.dying)) {
		if id < 0 {
			continue
		}
		m.foreign(t, `INSERT INTO _honker_dead (id, queue, payload, attempts, max_attempts) VALUES (?1, ?2, '0', 1, 1)`, id, m.dying[id])
		m.edges[id] = nil // the dependencies are lost
		delete(m.dying, id)
		m.met["foreign death"]++
		return
	}
	t.Skip("none is dying")
}

func (m *afterMachine) foreign(t *rapid.T, query string, args ...any) {
	_, err := m.db.SQL().Exec(query, args...)
	require.NoError(t, err)
	_, err = m.db.SQL().Exec(`UPDATE _honker_live SET run_at = ?1 + 2 WHERE run_at > ?1 + 100000000`, time.Now().Unix())
	require.NoError(t, err)
}

func (m *afterMachine) Settle(t *rapid.T) {
	if len(m.claims) == 0 {
		t.Skip("none is held")
	}
	i := rapid.IntRange(0, len(m.claims)-1).Draw(t, "claim")
	job := m.claims[i]
	m.claims = slices.Delete(m.claims, i, i+1)
	d := spans.Draw(t, "delay")
	verb := rapid.SampledFrom([]string{"ack", "ack", "ack", "result", "many", "retry", "snooze", "reject"}).Draw(t, "verb")
	err := map[string]func() error{
		"ack":    func() error { return job.Ack(m.ctx) },
		"result": func() error { require.NoError(t, job.SetResult(1)); return job.Ack(m.ctx) },
		"many": func() error {
			_, err := honker.NewQueue[int](m.db, job.Queue, nil).AckMany(m.ctx, job.WorkerID, []int64{job.ID})
			return err
		},
		"retry":  func() error { return job.Retry(m.ctx, d, testkit.ErrCause) },
		"snooze": func() error { return job.Snooze(m.ctx, d) },
		"reject": func() error { return job.Reject(m.ctx, testkit.ErrCause) },
	}[verb]()
	if err != nil {
		require.ErrorIs(t, err, honker.ErrClaimLost)
		verb = "stale"
	}
	m.met[verb]++
}

func (m *afterMachine) Requeue(t *rapid.T) {
	report, err := admin.Requeue(m.ctx, m.db, admin.JobFilter{IDs: []int64{m.pickDead(t)}}, &admin.RequeueOptions{Delay: maybe(t, "delay")})
	require.NoError(t, err)
	m.met["requeue"] += int(report.Changed)
}

func (m *afterMachine) Cancel(t *rapid.T) {
	report, err := admin.Cancel(m.ctx, m.db, admin.JobFilter{IDs: []int64{m.pick(t)}}, &admin.CancelOptions{
		Running: rapid.Bool().Draw(t, "running"), Waiters: admin.Waiters(rapid.IntRange(0, 2).Draw(t, "waiters"))})
	require.NoError(t, err)
	m.met["cancel"] += int(report.Changed)
	m.met["cancelled with it"] += int(report.Waiters)
}

func (m *afterMachine) Discard(t *rapid.T) {
	report, err := admin.Discard(m.ctx, m.db, admin.JobFilter{IDs: []int64{m.pickDead(t)}}, &admin.DiscardOptions{
		Waiters: admin.Waiters(rapid.IntRange(0, 2).Draw(t, "waiters"))})
	require.NoError(t, err)
	m.met["discard"] += int(report.Changed)
	m.met["kept for others"] += len(report.Skipped)
}

func (m *afterMachine) SetLimits(t *rapid.T) {
	limits := honker.Limits{PerKey: bounds.Draw(t, "per key"), InOrder: m.chance(t, "in order", 4)}
	require.NoError(t, m.queue(t).SetLimits(m.ctx, limits))
}

func (m *afterMachine) Release(t *rapid.T) {
	if !m.chance(t, "really", 4) {
		t.Skip("rarely")
	}
	_, err := m.queue(t).ReleaseUnique(m.ctx, uniqueKeys.Draw(t, "key"))
	require.NoError(t, err)
}

func (m *afterMachine) Sweep(t *rapid.T) {
	n, err := m.queue(t).SweepExpired(m.ctx)
	require.NoError(t, err)
	m.met["swept"] += n
}

func (m *afterMachine) Wait(t *rapid.T) { time.Sleep(spans.Draw(t, "wait")) }

// Restart closes and reopens the file.
func (m *afterMachine) Restart(t *rapid.T) {
	if !m.chance(t, "really", 4) {
		t.Skip("rarely")
	}
	require.NoError(t, m.db.Close())
	m.claims = nil
	m.open(t)
}
