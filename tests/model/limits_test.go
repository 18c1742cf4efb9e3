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
	"github.com/honker-go/honker/internal/testkit"
)

// limitsMachine drives a queue with limits. Its model consists of the queue's jobs, read before
// each claim, and of the rules of Limits:
//
//   - A job may start if it is due, has attempts left, has not expired, no limit of the queue is
//     reached, its key has room, and neither the queue nor the key is paused.
//   - A claim of n returns the first n jobs, in claim order, that may start after the preceding
//     jobs have. It does not skip a job that may start.
//   - With InOrder, only the first live job of a key may start.
//   - A running job that is cancelled keeps its place in the limits until its worker settles it or
//     its lease ends.
//
// Another binding claims with honker's plain SQL. It must not get a job that may not start, but may
// get fewer jobs.
type limitsMachine struct {
	ctx    context.Context
	db     *honker.DB
	q      *honker.Queue[int]
	name   string
	met    map[string]int
	limits honker.Limits
	paused map[string]bool // "" is the queue
	ids    []int64
	claims []*honker.Job[int]
	other  map[int64]string // workers of claims by another binding
	places map[int64]place  // of cancelled jobs
}

// place is the place of a cancelled job in the limits. The job keeps it until its worker has settled
// it, or until its lease ends.
type place struct {
	key     string
	attempt int
	worker  string
	until   time.Time
}

var (
	limitKeys = rapid.SampledFrom([]string{"", "k", "k", "l", "m"})
	bounds    = rapid.SampledFrom([]int{0, 1, 1, 2, 3})
)

func (m *limitsMachine) Enqueue(t *rapid.T) {
	opts := []honker.EnqueueOption{
		honker.Delay(maybe(t, "delay")), honker.Priority(rapid.IntRange(-1, 1).Draw(t, "priority")),
		honker.MaxAttempts(rapid.IntRange(1, 3).Draw(t, "max attempts")),
	}
	if e := maybe(t, "expires"); e > 0 {
		opts = append(opts, honker.ExpiresIn(e))
	}
	if key := limitKeys.Draw(t, "key"); key != "" {
		opts = append(opts, honker.Key(key))
	}
	ids, err := m.q.EnqueueMany(m.ctx, make([]int, rapid.IntRange(1, 4).Draw(t, "jobs")), opts...)
	require.NoError(t, err)
	m.ids = append(m.ids, ids...)
}

func (m *limitsMachine) EnqueueUnique(t *rapid.T) {
	opts := []honker.EnqueueOption{
		honker.Unique(uniqueKeys.Draw(t, "unique"), &honker.Uniqueness{
			Conflict: rapid.SampledFrom([]honker.Conflict{honker.ReplaceWaiting, honker.RunAgain}).Draw(t, "conflict"),
		}),
		honker.Delay(maybe(t, "delay")), honker.Priority(rapid.IntRange(-1, 1).Draw(t, "priority")),
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

func (m *limitsMachine) SetLimits(t *rapid.T) {
	m.limits = honker.Limits{Running: bounds.Draw(t, "running"), PerKey: bounds.Draw(t, "per key"), InOrder: rapid.IntRange(0, 3).Draw(t, "in order") == 0}
	require.NoError(t, m.q.SetLimits(m.ctx, m.limits))
	got, err := m.q.Limits(m.ctx)
	require.NoError(t, err)
	require.Equal(t, m.limits, got)
}

// Keep changes the retention of done jobs, because acks use different statements for queues with
// retention.
func (m *limitsMachine) Keep(t *rapid.T) {
	done := honker.Retention{MaxCount: rapid.Int64Range(0, 2).Draw(t, "kept")}
	require.NoError(t, m.q.SetRetention(m.ctx, honker.QueueRetention{Done: done}))
}

func (m *limitsMachine) Pause(t *rapid.T) {
	key := limitKeys.Draw(t, "key")
	first, err := m.q.Pause(m.ctx, &honker.PauseOptions{Key: key})
	require.NoError(t, err)
	require.Equal(t, !m.paused[key], first)
	m.paused[key] = true
}

func (m *limitsMachine) Resume(t *rapid.T) {
	m.resume(t, limitKeys.Draw(t, "key"))
}

func (m *limitsMachine) resume(t *rapid.T, key string) {
	end := m.q.Resume
	if key != "" {
		end = func(ctx context.Context) (bool, error) { return m.q.ResumeKey(ctx, key) }
	}
	was, err := end(m.ctx)
	require.NoError(t, err)
	require.Equal(t, m.paused[key], was)
	delete(m.paused, key)
}

// jobs reads the live jobs.
func (m *limitsMachine) jobs(t *rapid.T) (all []*honker.JobInfo) {
	for _, id := range m.ids {
		job, err := m.q.Get(m.ctx, id)
		if err == nil && job.State == honker.StateDone {
			m.met["kept"]++
		} else if err == nil && job.State != honker.StateDead {
			all = append(all, job)
		}
	}
	return all
}

// successors returns the jobs that are held until their predecessor of the same unique key ends.
func (m *limitsMachine) successors(t *rapid.T) []int64 {
	return column[int64](t, m.db, on(`SELECT next_id FROM _honkerx_unique WHERE next_id IS NOT NULL`, `SELECT next_id FROM uniq JOIN job ON job.id = next_id AND job.state = 3`))
}

// mayStart returns the jobs that a claim should return, in claim order.
func (m *limitsMachine) mayStart(t *rapid.T, jobs []*honker.JobInfo) (start []int64) {
	if m.paused[""] {
		return nil
	}
	running := map[string]int{} // by key
	all := 0
	for _, j := range jobs {
		if j.Phase == honker.PhaseRunning {
			running[j.Key]++
			all++
		}
	}
	for _, p := range m.places {
		if !p.until.Before(now()) {
			running[p.key]++
			all++
		}
	}
	successors := m.successors(t)
	var due []*honker.JobInfo
	for _, j := range jobs {
		waits := j.Phase == honker.PhaseReady || j.Phase == honker.PhaseLapsed ||
			j.Phase == honker.PhaseHeld && !slices.Contains(successors, j.ID) && (j.ExpiresAt.IsZero() || j.ExpiresAt.After(now()))
		if waits {
			due = append(due, j)
		}
	}
	slices.SortFunc(due, inClaimOrder)
	first := map[string]int64{}
	for _, j := range jobs {
		over := j.Phase == honker.PhaseExpired || // the claim makes the job dead, possibly after releasing it
			j.Phase == honker.PhaseHeld && !slices.Contains(successors, j.ID) && !j.ExpiresAt.IsZero() && !j.ExpiresAt.After(now())
		if j.Key != "" && !over && (first[j.Key] == 0 || j.ID < first[j.Key]) {
			first[j.Key] = j.ID
		}
	}
	for _, j := range due {
		switch {
		case m.limits.Running > 0 && all >= m.limits.Running:
			return start
		case j.Key != "" && m.paused[j.Key]:
			continue
		case j.Key != "" && m.limits.PerKey > 0 && running[j.Key] >= m.limits.PerKey:
			continue
		case j.Key != "" && m.limits.InOrder && (running[j.Key] > 0 || first[j.Key] != j.ID):
			continue
		}
		start = append(start, j.ID)
		running[j.Key]++
		all++
	}
	return start
}

func printed(jobs []*honker.JobInfo) (lines []string) {
	for _, j := range jobs {
		lines = append(lines, fmt.Sprintf("\n%d %s key %q unique %q priority %d, at %v until %v, attempt %d of %d",
			j.ID, j.Phase, j.Key, j.Unique, j.Priority, j.RunAt.Sub(now()), j.ExpiresAt.Sub(now()), j.Attempts, j.MaxAttempts))
	}
	return lines
}

func inClaimOrder(a, b *honker.JobInfo) int {
	if a.Priority != b.Priority {
		return b.Priority - a.Priority
	}
	if c := a.RunAt.Compare(b.RunAt); c != 0 {
		return c
	}
	return int(a.ID - b.ID)
}

func (m *limitsMachine) Claim(t *rapid.T) {
	n := rapid.SampledFrom([]int{1, 2, 3, 100}).Draw(t, "n")
	hold := holds.Draw(t, "hold")
	q := honker.NewQueue[int](m.db, m.name, &honker.QueueOptions{Lease: hold})
	before := m.jobs(t)
	want := m.mayStart(t, before)
	jobs, err := q.Claim(m.ctx, workers.Draw(t, "worker"), n)
	require.NoError(t, err)
	var got []int64
	for _, job := range jobs {
		got = append(got, job.ID)
	}
	m.claims = append(m.claims, jobs...)
	if len(want) > n {
		want = want[:n]
		m.met["more"]++
	}
	require.Equal(t, want, got, "%v with %+v, paused %v", printed(before), m.limits, m.paused)
	if len(got) > 0 {
		m.met["claimed"]++
	}
}

// ForeignClaim claims with honker's plain SQL. It must return only jobs that may start, but may
// stop early at a job that may not.
func (m *limitsMachine) ForeignClaim(t *rapid.T) {
	skipForeign(t)
	jobs := m.jobs(t)
	byID := map[int64]*honker.JobInfo{}
	running := map[string]int{}
	all := 0
	for _, j := range jobs {
		byID[j.ID] = j
		if j.WorkerID != "" {
			running[j.Key]++
			all++
		}
	}
	worker := workers.Draw(t, "worker") + " of another binding"
	ids := foreignClaim(t, m.db, m.name, worker, rapid.IntRange(1, 5).Draw(t, "n"))
	for _, id := range ids {
		m.other[id] = worker
		j := byID[id]
		require.False(t, m.paused[""])
		if j.WorkerID != "" {
			m.met["foreign lapsed"]++
			continue // the job kept its place when its claim lapsed
		}
		all++
		running[j.Key]++
		m.met["foreign claim"]++
		require.True(t, m.limits.Running == 0 || all <= m.limits.Running, "%d run", all)
		if j.Key == "" {
			continue
		}
		require.False(t, m.paused[j.Key])
		require.True(t, m.limits.PerKey == 0 || running[j.Key] <= m.limits.PerKey, "%d run of %q", running[j.Key], j.Key)
		if m.limits.InOrder {
			require.Equal(t, 1, running[j.Key])
			for _, other := range jobs {
				require.False(t, other.Key == j.Key && other.ID < j.ID, "%d started before %d", j.ID, other.ID)
			}
		}
	}
}

// foreignClaim claims as other bindings do, but at the time of the bubble.
func foreignClaim(t *rapid.T, db *honker.DB, queue, worker string, n int) []int64 {
	now := time.Now().Unix()
	return column[int64](t, db, `UPDATE _honker_live
SET state = 'processing', worker_id = ?, claim_expires_at = ?, attempts = attempts + 1
WHERE id IN (SELECT id FROM _honker_live WHERE queue = ? AND attempts < max_attempts
    AND (expires_at IS NULL OR expires_at > ?)
    AND (state = 'pending' AND run_at <= ? OR state = 'processing' AND claim_expires_at < ?)
  ORDER BY priority DESC, run_at, id LIMIT ?)
RETURNING id`, worker, now+2, queue, now, now, now, n)
}

func (m *limitsMachine) ForeignEnd(t *rapid.T) {
	if len(m.other) == 0 {
		t.Skip("none is held")
	}
	ids := slices.Sorted(maps.Keys(m.other))
	id := rapid.SampledFrom(ids).Draw(t, "id")
	worker := m.other[id]
	delete(m.other, id)
	sql := rapid.SampledFrom([]string{
		`DELETE FROM _honker_live WHERE id = ?1 AND worker_id = ?2`,
		`UPDATE _honker_live SET state = 'pending', run_at = ?3 + 1, worker_id = NULL, claim_expires_at = NULL WHERE id = ?1 AND worker_id = ?2`,
	}).Draw(t, "how")
	_, err := m.db.SQL().Exec(sql, id, worker, time.Now().Unix())
	require.NoError(t, err)
	m.met["foreign end"]++
}

func (m *limitsMachine) Settle(t *rapid.T) {
	if len(m.claims) == 0 {
		t.Skip("none is held")
	}
	i := rapid.IntRange(0, len(m.claims)-1).Draw(t, "claim")
	job := m.claims[i]
	m.claims = slices.Delete(m.claims, i, i+1)
	d := spans.Draw(t, "delay")
	verb := rapid.SampledFrom([]string{"ack", "ack", "retry", "snooze", "reject"}).Draw(t, "verb")
	err := map[string]func() error{
		"ack":    func() error { return job.Ack(m.ctx) },
		"retry":  func() error { return job.Retry(m.ctx, d, testkit.ErrCause) },
		"snooze": func() error { return job.Snooze(m.ctx, d) },
		"reject": func() error { return job.Reject(m.ctx, testkit.ErrCause) },
	}[verb]()
	if err != nil {
		require.ErrorIs(t, err, honker.ErrClaimLost)
		verb = "stale"
	}
	if p, kept := m.places[job.ID]; kept && p.worker == job.WorkerID && p.attempt == job.Attempts {
		delete(m.places, job.ID)
		verb = "freed"
	}
	m.met[verb]++
}

func (m *limitsMachine) Cancel(t *rapid.T) {
	if len(m.ids) == 0 {
		t.Skip("no job yet")
	}
	id := rapid.SampledFrom(m.ids).Draw(t, "id")
	if job, err := m.q.Get(m.ctx, id); err == nil && job.Phase == honker.PhaseRunning &&
		(m.limits.Running > 0 || job.Key != "" && (m.limits.PerKey > 0 || m.limits.InOrder)) {
		m.places[id] = place{job.Key, job.Attempts, job.WorkerID, job.ClaimExpiresAt}
		m.met["place"]++
	}
	was, err := m.q.Cancel(m.ctx, id)
	require.NoError(t, err)
	if was {
		m.met["cancel"]++
	}
}

func (m *limitsMachine) Requeue(t *rapid.T) {
	if len(m.ids) == 0 {
		t.Skip("no job yet")
	}
	report, err := admin.Requeue(m.ctx, m.db, admin.JobFilter{Queues: []string{m.name}, IDs: []int64{rapid.SampledFrom(m.ids).Draw(t, "id")}},
		&admin.RequeueOptions{Delay: maybe(t, "delay")})
	require.NoError(t, err)
	m.met["requeue"] += int(report.Changed)
}

func (m *limitsMachine) Sweep(t *rapid.T) {
	n, err := m.q.SweepExpired(m.ctx)
	require.NoError(t, err)
	m.met["swept"] += n
}

func (m *limitsMachine) Wait(t *rapid.T) { time.Sleep(spans.Draw(t, "wait")) }

func (m *limitsMachine) Check(t *rapid.T) {
	for _, j := range m.jobs(t) {
		if j.Phase == honker.PhaseHeld {
			m.met["held"]++
		}
	}
}

// end resumes all pauses, handles all jobs while time passes, and checks that none is left.
func (m *limitsMachine) end(t *rapid.T) {
	for _, key := range []string{"", "k", "l", "m"} {
		m.resume(t, key)
	}
	for range 200 {
		jobs, err := m.q.Claim(m.ctx, "last", 3)
		require.NoError(t, err)
		for _, job := range jobs {
			require.NoError(t, job.Ack(m.ctx))
		}
		// Expired jobs wait for a sweep, but must not block other jobs.
		left := slices.DeleteFunc(m.jobs(t), func(j *honker.JobInfo) bool { return j.Phase == honker.PhaseExpired })
		if len(left) == 0 {
			return
		}
		if len(jobs) == 0 {
			time.Sleep(time.Second)
		}
	}
	require.Fail(t, "stranded", "%v with %+v", printed(m.jobs(t)), m.limits)
}

// Jobs start only as the limits of their queue allow, and none is left waiting forever.
func TestLimits_Model(t *testing.T) {
	met := map[string]int{}
	dir, checks := t.TempDir(), 0
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(undated{t}, func(t *rapid.T) {
			db, err := honker.Open(context.Background(), filepath.Join(dir, fmt.Sprint(checks, ".db")), &honker.Options{NoFileNotices: true, PollInterval: time.Hour, Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			defer db.Close()
			checks++
			startSecond() // start each check at a whole second
			m := &limitsMachine{ctx: context.Background(), db: db, name: "mails", met: met, paused: map[string]bool{}, other: map[int64]string{}, places: map[int64]place{}}
			m.q = honker.NewQueue[int](db, m.name, nil)
			actions := rapid.StateMachineActions(m)
			actions["Claim2"], actions["Enqueue2"], actions["Settle2"], actions["Settle3"] = m.Claim, m.Enqueue, m.Settle, m.Settle
			for range 3 { // rapid runs few steps per Repeat
				t.Repeat(actions)
				broken := db.Check(m.ctx)
				require.NoError(t, broken, "%v with %+v, paused %v", printed(m.jobs(t)), m.limits, m.paused)
			}
			m.end(t)
			require.NoError(t, m.q.SetLimits(m.ctx, honker.Limits{}))
			require.NoError(t, db.Check(m.ctx))
			requireNoTriggers(t, db)
		})
	})
	requireMet(t, met, "claimed", "more", "held", "foreign claim", "foreign lapsed", "foreign end", "ack", "retry", "snooze", "reject", "cancel", "place", "freed", "requeue", "swept", "kept")
	t.Log(met)
}
