package model_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/internal/testkit"
)

// explainMachine extends limitsMachine with rates and with pauses that end. It compares
// admin.Explain with actual claims in a transaction that is rolled back:
//
//   - Claiming jobs one by one returns the jobs that are in turn according to Explain, in the order
//     of Ahead, and no others.
//   - A job is not claimed before its NextAt. At NextAt it is claimed, unless a new reason keeps it
//     or it shares a rate with other jobs.
type explainMachine struct {
	limitsMachine
	seen map[int64]*admin.Explanation // explanations of the last Check, by job
}

func (m *explainMachine) SetLimits(t *rapid.T) {
	m.limits = honker.Limits{
		Running: bounds.Draw(t, "running"), PerKey: bounds.Draw(t, "per key"), InOrder: rapid.IntRange(0, 3).Draw(t, "in order") == 0,
	}
	if rapid.Bool().Draw(t, "rated") {
		m.limits.Rate, m.limits.KeyRate = rates.Draw(t, "rate"), rates.Draw(t, "key rate")
	}
	require.NoError(t, m.q.SetLimits(m.ctx, m.limits))
}

func (m *explainMachine) Pause(t *rapid.T) {
	opts := &honker.PauseOptions{Key: limitKeys.Draw(t, "key")}
	if rapid.Bool().Draw(t, "ends") {
		opts.Until = time.Now().Add(spans.Draw(t, "until") + 1)
	}
	_, err := m.q.Pause(m.ctx, opts)
	require.NoError(t, err)
}

func (m *explainMachine) Resume(t *rapid.T) {
	_, err := m.q.Resume(m.ctx)
	require.NoError(t, err)
	for _, key := range []string{"k", "l", "m"} {
		_, err := m.q.ResumeKey(m.ctx, key)
		require.NoError(t, err)
	}
}

func (m *explainMachine) Claim(t *rapid.T) {
	q := honker.NewQueue[int](m.db, m.name, &honker.QueueOptions{Lease: holds.Draw(t, "hold")})
	jobs, err := q.Claim(m.ctx, workers.Draw(t, "worker"), rapid.SampledFrom([]int{1, 2, 100}).Draw(t, "n"))
	require.NoError(t, err)
	m.claims = append(m.claims, jobs...)
}

// ForeignClaim claims with honker's plain SQL. The triggers read the time of a claim by this
// library from the file. It is set here to the time of the bubble, which SQLite does not know.
func (m *explainMachine) ForeignClaim(t *rapid.T) {
	skipForeign(t)
	clock := func(ms any) {
		_, err := m.db.SQL().Exec(`UPDATE _honkerx_queues SET claim_ms = ?`, ms)
		require.NoError(t, err)
	}
	clock(time.Now().UnixMilli())
	defer clock(nil)
	worker := workers.Draw(t, "worker") + " of another binding"
	for _, id := range foreignClaim(t, m.db, m.name, worker, rapid.IntRange(1, 5).Draw(t, "n")) {
		m.other[id] = worker
	}
}

// EnqueueOnce is like EnqueueUnique, for jobs that may also die or expire.
func (m *explainMachine) EnqueueOnce(t *rapid.T) {
	opts := []honker.EnqueueOption{
		honker.Unique(uniqueKeys.Draw(t, "unique"), &honker.Uniqueness{Conflict: honker.RunAgain}),
		honker.MaxAttempts(rapid.IntRange(1, 2).Draw(t, "max attempts")), honker.Priority(rapid.IntRange(-1, 1).Draw(t, "priority")),
	}
	if e := maybe(t, "expires"); e > 0 {
		opts = append(opts, honker.ExpiresIn(e))
	}
	if key := limitKeys.Draw(t, "key"); key != "" {
		opts = append(opts, honker.Key(key))
	}
	id, err := m.q.Enqueue(m.ctx, 0, opts...)
	require.NoError(t, err)
	if !slices.Contains(m.ids, id) {
		m.ids = append(m.ids, id)
	}
}

// EnqueueAfter adds a job that depends on jobs in any state.
func (m *explainMachine) EnqueueAfter(t *rapid.T) {
	if len(m.ids) == 0 {
		t.Skip("no job yet")
	}
	after := rapid.SliceOfN(rapid.SampledFrom(m.ids), 1, 2).Draw(t, "after")
	opts := []honker.EnqueueOption{honker.After(after...), honker.Delay(maybe(t, "delay")), honker.Priority(rapid.IntRange(-1, 1).Draw(t, "priority"))}
	if rapid.Bool().Draw(t, "even if dead") {
		opts = append(opts, honker.EvenIfDead())
	}
	if e := maybe(t, "expires"); e > 0 {
		opts = append(opts, honker.ExpiresIn(e))
	}
	if key := limitKeys.Draw(t, "key"); key != "" {
		opts = append(opts, honker.Key(key))
	}
	id, err := m.q.Enqueue(m.ctx, 0, opts...)
	require.NoError(t, err)
	m.ids = append(m.ids, id)
}

// wouldClaim returns the jobs that repeated claims of a single job would return now, and the
// resulting times of the other jobs.
func (m *explainMachine) wouldClaim(t *rapid.T) (ids []int64, runAt map[int64]time.Time) {
	tx, err := m.db.SQL().BeginTx(m.ctx, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback()) }()
	for {
		id, again := probe(t, tx, m.name)
		if id != 0 {
			ids = append(ids, id)
		} else if !again {
			break
		}
	}
	runAt = make(map[int64]time.Time)
	if !testkit.OnFile() {
		return ids, runAt
	}
	rows, err := tx.Query(`SELECT id, run_at FROM _honker_live WHERE queue = ?`, m.name)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var id, at int64
		require.NoError(t, rows.Scan(&id, &at))
		runAt[id] = time.Unix(at, 0)
	}
	require.NoError(t, rows.Err())
	return ids, runAt
}

// probe claims a job in tx and returns its id, or 0. Again means that another claim may find one.
func probe(t *rapid.T, tx *sql.Tx, queue string) (id int64, again bool) {
	if testkit.OnFile() {
		var text string
		require.NoError(t, tx.QueryRow(`SELECT honker_claim_batch(?, 'probe', 1, 60)`, queue).Scan(&text))
		var jobs []struct{ ID int64 }
		require.NoError(t, json.Unmarshal([]byte(text), &jobs))
		require.LessOrEqual(t, len(jobs), 1)
		for _, job := range jobs {
			id = job.ID
		}
		return id, false
	}
	rows, err := tx.Query(`SELECT what, id FROM claim_lanes(ARRAY[$1], ARRAY[0::bigint], ARRAY[1::bigint], 'probe', $2, $2::timestamptz + interval '1 minute', 1, false)`, queue, now())
	require.NoError(t, err)
	ended := false
	for rows.Next() {
		var what int
		var n int64
		require.NoError(t, rows.Scan(&what, &n))
		switch {
		case what == 0:
			require.Zero(t, id)
			id = n
		case what == 2: // the bits of honker.step_row
			again = again || n&8 != 0
		case what == 3:
			ended = true
		}
	}
	require.NoError(t, errors.Join(rows.Err(), rows.Close()))
	if ended { // the claim has dead-lettered a job, and what waits for that job goes on after the commit
		_, err := tx.Exec(`SELECT resolve($1)`, now())
		require.NoError(t, err)
	}
	return id, again || ended
}

func codes(ex *admin.Explanation) (all []admin.ReasonCode) {
	for _, r := range ex.Reasons {
		all = append(all, r.Code)
	}
	return all
}

// inTurn reports whether a claim would take the job, regardless of whether there are workers.
func inTurn(ex *admin.Explanation) bool {
	return slices.ContainsFunc(codes(ex), func(code admin.ReasonCode) bool {
		return code == admin.ReasonInTurn || code == admin.ReasonNoWorker || code == admin.ReasonWorkersBusy
	})
}

// Check compares each explanation with the result of claims.
func (m *explainMachine) Check(t *rapid.T) {
	claimed, runAt := m.wouldClaim(t)
	m.seen = make(map[int64]*admin.Explanation)
	for _, id := range m.ids {
		ex, err := admin.Explain(m.ctx, m.db, id)
		require.NoError(t, err)
		require.NotEmpty(t, ex.Reasons)
		require.NotEmpty(t, ex.Text)
		m.seen[id] = ex
		for _, code := range codes(ex) {
			m.met[string(code)]++
		}
		place := slices.Index(claimed, id)
		require.Equal(t, place >= 0, inTurn(ex), "job %d, claims give %v: %s\n%v\n%+v", id, claimed, m.told(ex), m.state(t), m.limits)
		if place >= 0 {
			require.Equal(t, honker.Count{N: int64(place)}, ex.Ahead, "job %d, claims give %v: %s\n%v\n%+v", id, claimed, m.told(ex), m.state(t), m.limits)
		}
		if rated := codes(ex); len(rated) == 1 && rated[0] == admin.ReasonKeyRate && ex.Job.RunAt.Before(ex.NextAt) && testkit.OnFile() {
			m.met["given a start"]++
			require.Equal(t, runAt[id].UTC(), ex.NextAt.UTC(), "job %d is given its start: %s\n%v\n%+v", id, m.told(ex), m.state(t), m.limits)
		}
	}
}

func (m *explainMachine) told(ex *admin.Explanation) string {
	return fmt.Sprintf("%v, next at %v, %d ahead: %s", codes(ex), ex.NextAt, ex.Ahead.N, ex.Text)
}

func (m *explainMachine) state(t *rapid.T) []string {
	keys, err := m.q.Keys(m.ctx)
	require.NoError(t, err)
	lines := printed(m.jobs(t))
	for _, k := range keys {
		lines = append(lines, fmt.Sprintf("\n%+v", k))
	}
	return lines
}

// WaitNextAt waits until a job can start according to its explanation.
func (m *explainMachine) WaitNextAt(t *rapid.T) {
	var ids []int64
	for _, id := range m.ids {
		ex := m.seen[id]
		reserved := ex == nil || !slices.Contains(codes(ex), admin.ReasonKeyRate) || !ex.Job.RunAt.Before(ex.NextAt)
		if ex != nil && ex.NextAt.After(time.Now()) && time.Until(ex.NextAt) < time.Hour && reserved {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		t.Skip("no job waits for its time only")
	}
	id := rapid.SampledFrom(ids).Draw(t, "id")
	before := m.seen[id]
	time.Sleep(time.Until(before.NextAt.Add(-time.Millisecond)))
	claimed, _ := m.wouldClaim(t)
	require.NotContains(t, claimed, id, "a millisecond before %s\n%v\n%+v", m.told(before), m.state(t), m.limits)
	time.Sleep(time.Until(before.NextAt))
	claimed, _ = m.wouldClaim(t)
	m.met["next at"]++
	if slices.Contains(claimed, id) {
		m.met["claimed at next at"]++
		return
	}
	after, err := admin.Explain(m.ctx, m.db, id)
	require.NoError(t, err)
	for _, code := range codes(after) {
		shared := code == admin.ReasonQueueRate && after.Ahead.N > 0 || code == admin.ReasonKeyRate
		if shared || !slices.Contains(codes(before), code) {
			return
		}
	}
	require.Fail(t, "too early", "%s\nand then %s\n%v\n%+v", m.told(before), m.told(after), m.state(t), m.limits)
}

// TestExplain_Model checks that explanations agree with claims.
func TestExplain_Model(t *testing.T) {
	met := map[string]int{}
	dir, checks := t.TempDir(), 0
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(undated{t}, func(t *rapid.T) {
			db, err := honker.Open(context.Background(), filepath.Join(dir, fmt.Sprint(checks, ".db")), &honker.Options{NoFileNotices: true, PollInterval: time.Hour, Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			defer db.Close()
			checks++
			startSecond() // start each check at a whole second
			m := &explainMachine{limitsMachine: limitsMachine{ctx: context.Background(), db: db, name: "mails", met: met, other: map[int64]string{}, places: map[int64]place{}}}
			m.q = honker.NewQueue[int](db, m.name, nil)
			actions := rapid.StateMachineActions(m)
			actions["Claim2"], actions["Settle2"], actions["WaitNextAt2"] = m.Claim, m.Settle, m.WaitNextAt
			t.Repeat(actions)
		})
	})
	t.Log(met)
	for _, code := range []admin.ReasonCode{
		admin.ReasonInTurn, admin.ReasonNoWorker, admin.ReasonLapsed, admin.ReasonRunning, admin.ReasonDead, admin.ReasonDone, admin.ReasonGone, admin.ReasonExpired, admin.ReasonExhausted,
		admin.ReasonWaitsFor, admin.ReasonPaused, admin.ReasonKeyLimit, admin.ReasonQueueLimit, admin.ReasonKeyRate, admin.ReasonQueueRate, admin.ReasonNotDue,
	} {
		require.True(t, met[string(code)] > 0 || testing.Short(), "the property holds because nothing happened: %s", code)
	}
	requireMet(t, met, "next at", "claimed at next at")
	if testkit.OnFile() {
		requireMet(t, met, "given a start")
	}
}
