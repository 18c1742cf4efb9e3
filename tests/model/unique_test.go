package model_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// uniqueModel adds unique keys to the model of a queue. A key has a job, an optional successor that
// waits until that job ends, and an optional time until which it stays taken. After each step, the
// key of a deleted or dead job passes to its successor.
type uniqueModel struct {
	*model
	keys map[string]*modelKey
	how  map[int64]honker.UniqueUntil // by jobs with a key
}

type modelKey struct {
	job, next int64
	until     time.Time
	first     time.Time // when the key was taken, or the successor was added
}

// holder returns the last job that was given the key.
func (k *modelKey) holder() int64 {
	if k.next != 0 {
		return k.next
	}
	return k.job
}

// live returns the job if it exists and is not dead, and nil otherwise.
func (m *uniqueModel) live(id int64) *modelJob {
	if j := m.jobs[id]; j != nil && j.State != honker.StateDead {
		return j
	}
	return nil
}

// pass releases keys or passes them to successors.
func (m *uniqueModel) pass() {
	for name, k := range m.keys {
		if k.next != 0 && m.live(k.next) == nil {
			k.next = 0
		}
		switch {
		case m.live(k.job) != nil:
		case k.next != 0:
			m.jobs[k.next].held = false
			k.job, k.next = k.next, 0
			m.met["passed on"]++
		case k.until.IsZero():
			delete(m.keys, name)
		}
	}
}

// taken reports whether an enqueue would find the key taken.
func (m *uniqueModel) taken(name string) bool {
	k := m.keys[name]
	if k == nil {
		return false
	}
	if k.next != 0 || time.Now().Before(k.until) {
		return true
	}
	j := m.live(k.job)
	if j == nil || m.how[k.job] == honker.UntilStarted && j.started {
		return false
	}
	runs := j.State == honker.StateProcessing && !j.lapsed(now())
	return runs || j.Attempts < j.MaxAttempts && !j.expired(now())
}

// unique contains the uniqueness options of an enqueue.
type unique struct {
	key       string
	u         honker.Uniqueness
	wait, max time.Duration // arguments of Debounce
}

func (u unique) option() honker.EnqueueOption {
	if u.wait > 0 {
		return honker.Debounce(u.key, u.wait, u.max)
	}
	return honker.Unique(u.key, &u.u)
}

// place decides the placement of an enqueue. id is the id of the job if a job is added.
func (m *uniqueModel) place(id int64, queue string, args int, e enqueued, u unique) (p honker.Placement) {
	if u.wait > 0 {
		e.delay, u.u = u.wait, honker.Uniqueness{Until: honker.UntilStarted, Conflict: honker.ReplaceWaiting}
	}
	add := func() {
		m.enqueue(now(), id, queue, args, e)
		m.jobs[id].Unique = u.key
		m.how[id] = u.u.Until
	}
	var until time.Time
	if u.u.For > 0 {
		until = round(time.Now().Add(u.u.For), fine(), fine()-1)
	}
	if !m.taken(u.key) {
		add()
		m.keys[u.key] = &modelKey{job: id, until: until, first: round(time.Now(), fine(), 0)}
		return honker.Placement{ID: id, Result: honker.PlacedNew}
	}
	k := m.keys[u.key]
	found := k.holder()
	p = honker.Placement{ID: found, Result: honker.PlacedExisting, Of: honker.JobInfo{ID: found, Queue: queue}}
	j := m.live(found)
	if j == nil {
		return p
	}
	p.Of = j.info(now())
	runs := j.State == honker.StateProcessing && !j.lapsed(now())
	switch {
	case u.u.Conflict == honker.KeepExisting || runs && u.u.Conflict == honker.ReplaceWaiting:
	case runs:
		add()
		m.jobs[id].held = true
		p.ID, p.Result = id, honker.PlacedAgain
		k.next, k.first = id, round(time.Now(), fine(), 0)
		if until.After(k.until) {
			k.until = until
		}
	default:
		p.Result = honker.PlacedReplaced
		m.replace(j, k, args, e, u)
	}
	return p
}

func (m *uniqueModel) replace(j *modelJob, k *modelKey, args int, e enqueued, u unique) {
	j.wait()
	j.Payload, j.Priority, j.RunAt = json.RawMessage(strconv.Itoa(args)), e.priority, notBefore(e.delay)
	j.MaxAttempts = j.Attempts + e.maxAttempts
	j.ExpiresAt = time.Time{}
	if e.expires > 0 {
		j.ExpiresAt = notBefore(e.expires)
	}
	if u.wait > 0 {
		if last := ceil(k.first.Add(u.max)); last.Before(j.RunAt) {
			j.RunAt = last
			m.met["max"]++
		}
	}
}

// uniqueMachine drives a queue with unique keys and its model.
type uniqueMachine struct {
	*machine
	keyed uniqueModel
}

var uniqueKeys = rapid.SampledFrom([]string{"k", "l"})

func (m *uniqueMachine) draw(t *rapid.T) unique {
	u := unique{key: uniqueKeys.Draw(t, "key")}
	if rapid.IntRange(0, 3).Draw(t, "debounce?") == 0 {
		u.wait = spans.Draw(t, "wait") + time.Millisecond
		u.max = u.wait + spans.Draw(t, "max")
		return u
	}
	u.u = honker.Uniqueness{
		Until:    rapid.SampledFrom([]honker.UniqueUntil{honker.UntilFinished, honker.UntilStarted}).Draw(t, "until"),
		Conflict: rapid.SampledFrom([]honker.Conflict{honker.KeepExisting, honker.ReplaceWaiting, honker.RunAgain, honker.RunAgain}).Draw(t, "conflict"),
		For:      maybe(t, "for"),
	}
	return u
}

func (m *uniqueMachine) EnqueueUnique(t *rapid.T) {
	u := m.draw(t)
	e := enqueued{priority: rapid.IntRange(-1, 1).Draw(t, "priority"), maxAttempts: rapid.IntRange(1, 3).Draw(t, "max attempts"), expires: maybe(t, "expires")}
	opts := []honker.EnqueueOption{u.option(), honker.Priority(e.priority), honker.MaxAttempts(e.maxAttempts)}
	if u.wait == 0 {
		e.delay = maybe(t, "delay")
		opts = append(opts, honker.Delay(e.delay))
	}
	if e.expires > 0 {
		opts = append(opts, honker.ExpiresIn(e.expires))
	}
	args := len(m.ids)
	var got honker.Placement
	id, err := m.q.Enqueue(m.ctx, args, append(opts, honker.Placed(&got))...)
	require.NoError(t, err)
	require.Equal(t, id, got.ID)
	require.Equal(t, m.keyed.place(id, m.name, args, e, u), got)
	if got.Result == honker.PlacedNew || got.Result == honker.PlacedAgain {
		require.NotContains(t, m.ids, id)
		m.ids = append(m.ids, id)
	}
	m.met[string(got.Result)]++
}

// ForeignAck acknowledges a job as another binding does.
func (m *uniqueMachine) ForeignAck(t *rapid.T) {
	skipForeign(t)
	job := m.pick(t)
	held := m.held(now(), job.JobInfo)
	if held == nil {
		t.Skip("it is not held")
	}
	_, err := m.db.SQL().Exec(`DELETE FROM _honker_live WHERE id = ? AND worker_id = ?`, job.ID, job.WorkerID)
	require.NoError(t, err)
	delete(m.jobs, job.ID)
	m.met["foreign ack"]++
}

func (m *uniqueMachine) Release(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "really") > 0 {
		t.Skip("rarely")
	}
	key := uniqueKeys.Draw(t, "key")
	want := m.keyed.taken(key)
	released, err := m.q.ReleaseUnique(m.ctx, key)
	require.NoError(t, err)
	require.Equal(t, want, released)
	k := m.keyed.keys[key]
	if k == nil {
		return
	}
	for _, id := range []int64{k.job, k.next} {
		if j := m.keyed.live(id); j != nil {
			j.Unique, j.held = "", false
		}
	}
	delete(m.keyed.keys, key)
	m.met["released"]++
}

// Check compares the observable state.
func (m *uniqueMachine) Check(t *rapid.T) {
	m.keyed.pass()
	for _, id := range m.ids {
		got, err := m.q.Get(m.ctx, id)
		j := m.jobs[id]
		if j == nil {
			require.ErrorIs(t, err, honker.ErrNotFound)
			continue
		}
		if j.State == honker.StateDead {
			j.held = false
		}
		require.NoError(t, err)
		require.Equal(t, j.info(now()), *got)
	}
	next, err := m.q.NextClaimAt(m.ctx)
	require.NoError(t, err)
	require.Equal(t, m.next(now()), next)
	m.twice(t)
}

// twice checks that no two running jobs have the same key, unless their keys are released when they
// start.
func (m *uniqueMachine) twice(t *rapid.T) {
	runs := map[string]int64{}
	for id, j := range m.jobs {
		if j.Unique == "" || m.keyed.how[id] == honker.UntilStarted || j.State != honker.StateProcessing || j.lapsed(now()) {
			continue
		}
		require.Zero(t, runs[j.Unique], "jobs %d and %d have the key %q", id, runs[j.Unique], j.Unique)
		runs[j.Unique] = id
	}
}

// TestUnique_Model compares random operations on a queue with unique keys with the model.
func TestUnique_Model(t *testing.T) {
	met := map[string]int{}
	synctest.Test(t, func(t *testing.T) {
		db := honkertest.Open(t, &honker.Options{NoFileNotices: true, PollInterval: time.Hour})
		checks := 0
		rapid.Check(undated{t}, func(t *rapid.T) {
			checks++ // a new queue for each check, which starts at a whole second
			startSecond()
			base := &machine{model: model{jobs: map[int64]*modelJob{}, met: met}, ctx: context.Background(), db: db, name: fmt.Sprint("queue", checks)}
			base.q = honker.NewQueue[int](db, base.name, nil)
			m := &uniqueMachine{base, uniqueModel{&base.model, map[string]*modelKey{}, map[int64]honker.UniqueUntil{}}}
			if testkit.OnFile() {
				base.over = m.keyed.pass // if a job dies in a claim, the same claim may take its successor; on a server, the next
			}
			actions := rapid.StateMachineActions(m)
			delete(actions, "Requeue") // not supported by the model
			delete(actions, "Enqueue")
			actions["Claim more"], actions["Wait"] = m.Claim, m.Advance
			for _, n := range []string{"2", "3", "4"} {
				actions["EnqueueUnique"+n] = m.EnqueueUnique
			}
			for range 8 { // rapid runs few steps per Repeat
				t.Repeat(actions)
				require.NoError(t, db.Check(m.ctx))
			}
		})
	})
	requireMet(t, met, "new", "existing", "replaced", "again", "passed on", "max", "released", "foreign ack",
		"ack", "retry", "fail", "snooze", "stale", "lapsed", "swept")
	t.Log(met)
}
