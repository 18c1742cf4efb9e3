package model_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// model models a queue, with the resolution of the database:
//
//   - The current time is rounded down, and the ends of durations are rounded up.
//   - A job can be claimed while run_at <= now, attempts are left, and it has no expires_at or
//     expires_at > now. Jobs are claimed by priority DESC, run_at, id.
//   - A claim uses up an attempt and is valid while claim_expires_at >= now. Settling a job
//     requires a valid claim of the same worker and attempt.
//   - A claim first handles the queue's jobs whose claims have lapsed. Expired jobs die as
//     "expired" and jobs without attempts left as "max attempts exceeded". All others become
//     pending again and keep their run_at.
//   - A sweep makes pending and lapsed jobs with expires_at <= now dead, as "expired".
//   - Dead jobs have no claim and no expiry. Jobs that are done or cancelled no longer exist.
//   - A requeued job is pending and has no expiry. It keeps its attempts, and gets as many new ones
//     as since its last requeue, or a given number.
type model struct {
	jobs map[int64]*modelJob
	met  map[string]int // how often each kind of event happened
	over func()         // called after a claim has handled lapsed jobs; may be nil
}

type modelJob struct {
	honker.JobInfo
	held    bool      // waits for another job, see uniqueModel
	started bool      // has been claimed before
	base    int       // number of attempts before the last requeue
	claimed time.Time // with milliseconds, unlike other times
}

func (m *model) enqueue(now time.Time, id int64, queue string, args int, o enqueued) {
	j := &modelJob{JobInfo: honker.JobInfo{
		ID: id, Queue: queue, State: honker.StatePending, Payload: json.RawMessage(strconv.Itoa(args)),
		Priority: o.priority, MaxAttempts: o.maxAttempts, CreatedAt: now, RunAt: notBefore(o.delay),
	}}
	if o.expires > 0 {
		j.ExpiresAt = notBefore(o.expires)
	}
	m.jobs[id] = j
}

func (m *model) claim(now time.Time, worker string, n int, hold time.Duration) (claimed []honker.JobInfo) {
	m.lapse(now)
	due := m.due(now)
	for _, j := range due[:min(n, len(due))] {
		claimed = append(claimed, j.claim(now, worker, hold))
	}
	return claimed
}

// lapse handles the jobs whose claims have lapsed.
func (m *model) lapse(now time.Time) {
	for _, j := range m.jobs {
		switch {
		case !j.lapsed(now):
		case j.expired(now):
			j.die(now, "expired")
			m.met["lapsed and expired"]++
		case j.Attempts >= j.MaxAttempts:
			j.die(now, "max attempts exceeded")
			m.met["lapsed and exhausted"]++
		default:
			j.wait()
			m.met["lapsed"]++
		}
	}
	if m.over != nil {
		m.over()
	}
}

// due returns the jobs that a claim would take, in claim order.
func (m *model) due(now time.Time) (due []*modelJob) {
	for _, j := range m.jobs {
		if j.State == honker.StatePending && !j.held && !j.RunAt.After(now) && !j.expired(now) {
			due = append(due, j)
		}
	}
	slices.SortFunc(due, claimOrder)
	return due
}

// claimOrder compares two jobs by the order in which they are claimed.
func claimOrder(a, b *modelJob) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.RunAt.Compare(b.RunAt), cmp.Compare(a.ID, b.ID))
}

func (j *modelJob) claim(now time.Time, worker string, hold time.Duration) honker.JobInfo {
	j.State, j.WorkerID, j.ClaimExpiresAt = honker.StateProcessing, worker, later(now, hold)
	j.claimed, j.StartedAt = time.Now(), time.Time{}
	j.Attempts++
	j.started = true
	info := j.info(now)
	if j.Attempts == 1 && testkit.OnFile() {
		info.LastError = "" // not the error of a job that died before its first attempt
	}
	return info
}

// held returns the job of a claim if the claim is still valid, and nil otherwise.
func (m *model) held(now time.Time, c honker.JobInfo) *modelJob {
	j := m.jobs[c.ID]
	if j == nil || j.State != honker.StateProcessing || j.WorkerID != c.WorkerID || j.Attempts != c.Attempts || j.lapsed(now) {
		return nil
	}
	return j
}

func (m *model) sweep(now time.Time) (swept int) {
	for _, j := range m.jobs {
		if j.expired(now) && !j.held && (j.State == honker.StatePending || j.lapsed(now)) {
			j.die(now, "expired")
			m.met["swept"]++
			swept++
		}
	}
	return swept
}

// next returns the first moment after now at which a job becomes claimable, or the zero time.
func (m *model) next(now time.Time) (first time.Time) {
	for _, j := range m.jobs {
		at := j.RunAt
		if j.State == honker.StateProcessing {
			at = j.ClaimExpiresAt.Add(unit())
		}
		if j.held || j.State == honker.StateDead || j.Attempts >= j.MaxAttempts || j.expired(now) || !at.After(now) || !testkit.OnFile() && j.expired(at) {
			continue
		}
		if first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first
}

func (j *modelJob) lapsed(now time.Time) bool {
	return j.State == honker.StateProcessing && j.ClaimExpiresAt.Before(now)
}

// extend also saves the start of an attempt that has lasted for two seconds.
func (j *modelJob) extend(now time.Time, by time.Duration) {
	j.ClaimExpiresAt = later(now, by)
	if time.Since(j.claimed) >= 2*time.Second {
		j.StartedAt = j.claimed.Truncate(time.Millisecond)
	}
}

func (j *modelJob) expired(now time.Time) bool {
	return !j.ExpiresAt.IsZero() && !j.ExpiresAt.After(now)
}

func (j *modelJob) wait() {
	j.State, j.WorkerID, j.ClaimExpiresAt, j.StartedAt = honker.StatePending, "", time.Time{}, time.Time{}
}

func (j *modelJob) die(now time.Time, why string) {
	j.wait()
	j.State, j.LastError, j.DiedAt, j.ExpiresAt = honker.StateDead, why, now, time.Time{}
}

func (j *modelJob) retry(now time.Time, delay time.Duration, cause error) {
	if j.Attempts >= j.MaxAttempts {
		j.die(now, cause.Error())
		return
	}
	j.wait()
	j.RunAt = notBefore(delay)
	if cause != errNone {
		j.LastError = cause.Error()
	}
}

func (j *modelJob) snooze(now time.Time, d time.Duration) {
	j.wait()
	j.Attempts--
	if at := notBefore(d); at.After(j.RunAt) {
		j.RunAt = at
	}
}

func (j *modelJob) requeue(o *admin.RequeueOptions) {
	more := o.Attempts
	if more == 0 {
		more = max(1, j.MaxAttempts-j.base)
	}
	j.State, j.DiedAt, j.RunAt = honker.StatePending, time.Time{}, notBefore(o.Delay)
	j.base, j.MaxAttempts = j.Attempts, j.Attempts+more
}

// info returns the JobInfo that a read at time now returns.
func (j *modelJob) info(now time.Time) honker.JobInfo {
	info := j.JobInfo
	info.Phase = j.phase(now)
	return info
}

func (j *modelJob) phase(now time.Time) honker.Phase {
	over := j.expired(now) || j.Attempts >= j.MaxAttempts
	switch {
	case j.State == honker.StateDead:
		return honker.PhaseDead
	case j.held:
		return honker.PhaseHeld
	case j.State == honker.StateProcessing && !j.lapsed(now):
		return honker.PhaseRunning
	case over:
		return honker.PhaseExpired
	case j.State == honker.StateProcessing:
		return honker.PhaseLapsed
	case j.RunAt.After(now):
		return honker.PhaseScheduled
	}
	return honker.PhaseReady
}

// enqueued contains the options of an enqueue.
type enqueued struct {
	delay, expires        time.Duration
	priority, maxAttempts int
}

func (e enqueued) options() []honker.EnqueueOption {
	opts := []honker.EnqueueOption{honker.Delay(e.delay), honker.Priority(e.priority), honker.MaxAttempts(e.maxAttempts)}
	if e.expires > 0 {
		opts = append(opts, honker.ExpiresIn(e.expires))
	}
	return opts
}

// machine drives a queue and its model.
type machine struct {
	model
	ctx  context.Context
	name string
	db   *honker.DB
	q    *honker.Queue[int]

	ids    []int64
	claims []*honker.Job[int] // all claims, since stale ones must have no effect
}

var (
	spans   = rapid.SampledFrom([]time.Duration{0, 1, 300 * time.Millisecond, time.Second, 1500 * time.Millisecond, 3 * time.Second, 8 * time.Second})
	holds   = rapid.SampledFrom([]time.Duration{time.Second, 2500 * time.Millisecond, 10 * time.Second})
	workers = rapid.SampledFrom([]string{"a", "b"})
	errNone = errors.New("") // equivalent to nil
	causes  = rapid.SampledFrom([]error{errNone, testkit.ErrCause, errors.New("out of paper")})
)

// maybe draws a duration from spans, or 0.
func maybe(t *rapid.T, label string) time.Duration {
	return spans.Draw(t, label) * time.Duration(rapid.IntRange(0, 1).Draw(t, label+"?"))
}

func (m *machine) Enqueue(t *rapid.T) {
	e := enqueued{
		delay:       maybe(t, "delay"),
		priority:    rapid.IntRange(-1, 1).Draw(t, "priority"),
		maxAttempts: rapid.IntRange(1, 3).Draw(t, "max attempts"),
		expires:     maybe(t, "expires"),
	}
	args := make([]int, rapid.IntRange(1, 5).Draw(t, "jobs"))
	for i := range args {
		args[i] = len(m.ids) + i
	}
	ids, err := m.q.EnqueueMany(m.ctx, args, e.options()...)
	require.NoError(t, err)
	require.Len(t, ids, len(args))
	for i, id := range ids {
		require.NotContains(t, m.ids, id)
		m.model.enqueue(now(), id, m.name, args[i], e)
		m.ids = append(m.ids, id)
	}
	require.True(t, slices.IsSorted(m.ids))
}

func (m *machine) Claim(t *rapid.T) {
	worker, n, hold := workers.Draw(t, "worker"), rapid.IntRange(1, 5).Draw(t, "n"), holds.Draw(t, "hold")
	q := honker.NewQueue[int](m.db, m.name, &honker.QueueOptions{Lease: hold})
	jobs, err := q.Claim(m.ctx, worker, n)
	require.NoError(t, err)
	var got []honker.JobInfo
	for _, job := range jobs {
		got = append(got, job.JobInfo)
		require.Equal(t, string(job.Payload), strconv.Itoa(job.Args))
	}
	require.Equal(t, m.model.claim(now(), worker, n, hold), got)
	m.claims = append(m.claims, jobs...)
}

// pick draws any claim ever made. It chooses a valid claim most of the time.
func (m *machine) pick(t *rapid.T) *honker.Job[int] {
	from := slices.DeleteFunc(slices.Clone(m.claims), func(job *honker.Job[int]) bool {
		return m.held(now(), job.JobInfo) == nil
	})
	if rapid.IntRange(0, 3).Draw(t, "any claim") == 3 {
		from = m.claims
	}
	if len(from) == 0 {
		t.Skip("nobody holds a job")
	}
	return rapid.SampledFrom(from).Draw(t, "claim")
}

// settle calls a method of a claimed job on both sides.
func (m *machine) settle(t *rapid.T, verb string, real func(*honker.Job[int]) error, model func(*modelJob)) {
	job := m.pick(t)
	err := real(job)
	held := m.held(now(), job.JobInfo)
	if held == nil {
		require.ErrorIs(t, err, honker.ErrClaimLost, verb)
		m.met["stale"]++
		return
	}
	require.NoError(t, err, verb)
	model(held)
	m.met[verb]++
	if verb == "snooze" {
		// Snoozing returns the attempt, so the same worker's next claim has the same (id, worker,
		// attempt), and this handle would be valid for it.
		m.claims = slices.DeleteFunc(m.claims, func(c *honker.Job[int]) bool { return c == job })
	}
}

func (m *machine) Ack(t *rapid.T) {
	m.settle(t, "ack", func(job *honker.Job[int]) error { return job.Ack(m.ctx) }, func(j *modelJob) { delete(m.jobs, j.ID) })
}

func (m *machine) AckMany(t *rapid.T) {
	worker := workers.Draw(t, "worker")
	ids := m.ids[rapid.IntRange(0, len(m.ids)).Draw(t, "from"):]
	n, err := m.q.AckMany(m.ctx, worker, ids)
	require.NoError(t, err)
	want := len(m.jobs) - n
	for _, id := range ids {
		if j := m.jobs[id]; j != nil && j.State == honker.StateProcessing && j.WorkerID == worker && !j.lapsed(now()) {
			delete(m.jobs, id)
		}
	}
	require.Len(t, m.jobs, want)
}

func (m *machine) Retry(t *rapid.T) {
	delay, cause := spans.Draw(t, "delay"), causes.Draw(t, "cause")
	m.settle(t, "retry", func(job *honker.Job[int]) error { return job.Retry(m.ctx, delay, cause) },
		func(j *modelJob) { j.retry(now(), delay, cause) })
}

func (m *machine) Fail(t *rapid.T) {
	cause := causes.Draw(t, "cause")
	m.settle(t, "fail", func(job *honker.Job[int]) error { return job.Reject(m.ctx, cause) },
		func(j *modelJob) { j.die(now(), cause.Error()) })
}

func (m *machine) Snooze(t *rapid.T) {
	d := spans.Draw(t, "d")
	m.settle(t, "snooze", func(job *honker.Job[int]) error { return job.Snooze(m.ctx, d) },
		func(j *modelJob) { j.snooze(now(), d) })
}

func (m *machine) Heartbeat(t *rapid.T) {
	extend := spans.Draw(t, "extend") + 1
	m.settle(t, "heartbeat", func(job *honker.Job[int]) error { return job.Extend(m.ctx, extend) },
		func(j *modelJob) { j.extend(now(), extend) })
}

func (m *machine) Cancel(t *rapid.T) {
	if len(m.ids) == 0 {
		t.Skip("no job yet")
	}
	id := rapid.SampledFrom(m.ids).Draw(t, "id")
	cancelled, err := m.q.Cancel(m.ctx, id)
	require.NoError(t, err)
	j := m.jobs[id]
	require.Equal(t, j != nil && j.State != honker.StateDead, cancelled)
	if cancelled {
		delete(m.jobs, id)
	}
}

func (m *machine) Requeue(t *rapid.T) {
	opts := &admin.RequeueOptions{Delay: spans.Draw(t, "delay"), Attempts: rapid.IntRange(0, 2).Draw(t, "attempts")}
	f := admin.JobFilter{Queues: []string{m.name}, IDs: m.ids[rapid.IntRange(0, len(m.ids)).Draw(t, "from"):]}
	want := int64(0)
	for _, id := range f.IDs {
		if j := m.jobs[id]; j != nil && j.State == honker.StateDead {
			j.requeue(opts)
			m.met["requeue"]++
			want++
		}
	}
	r, err := admin.Requeue(m.ctx, m.db, f, opts)
	require.NoError(t, err)
	require.Equal(t, &admin.Report{Matched: want, Changed: want, Audit: r.Audit}, r)
}

func (m *machine) Sweep(t *rapid.T) {
	swept, err := m.q.SweepExpired(m.ctx)
	require.NoError(t, err)
	require.Equal(t, m.model.sweep(now()), swept)
}

func (m *machine) Advance(t *rapid.T) { time.Sleep(spans.Draw(t, "for")) }

// Check compares the observable state.
func (m *machine) Check(t *rapid.T) {
	want := map[honker.State]int{}
	for _, id := range m.ids {
		got, err := m.q.Get(m.ctx, id)
		j := m.jobs[id]
		if j == nil {
			require.ErrorIs(t, err, honker.ErrNotFound)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, j.info(now()), *got)
		want[j.State]++
	}
	require.Equal(t, want, m.counts(t))
	next, err := m.q.NextClaimAt(m.ctx)
	require.NoError(t, err)
	require.Equal(t, m.next(now()), next)
}

// undated hides the deadline of the test, which cannot be used in a bubble.
type undated struct{ *testing.T }

// TestQueue_Model compares random operations on a queue with the model.
func TestQueue_Model(t *testing.T) {
	met := map[string]int{}
	synctest.Test(t, func(t *testing.T) {
		db := honkertest.Open(t, &honker.Options{NoFileNotices: true, PollInterval: time.Hour})
		checks := 0
		rapid.Check(undated{t}, func(t *rapid.T) {
			checks++ // a new queue for each check, which starts at a whole second
			startSecond()
			m := &machine{model: model{jobs: map[int64]*modelJob{}, met: met}, ctx: context.Background(), db: db, name: fmt.Sprint("queue", checks)}
			m.q = honker.NewQueue[int](db, m.name, nil)
			actions := rapid.StateMachineActions(m)
			actions["Claim more"], actions["Wait"] = m.Claim, m.Advance
			for range 4 { // rapid runs few steps per Repeat
				t.Repeat(actions)
			}
		})
	})
	requireMet(t, met, "ack", "retry", "fail", "snooze", "heartbeat", "stale",
		"lapsed", "lapsed and expired", "lapsed and exhausted", "swept", "requeue")
}

// counts returns the number of stored jobs by state.
func (m *machine) counts(t *rapid.T) map[honker.State]int {
	rows, err := m.db.SQL().Query(on(`SELECT state, count(*) FROM _honker_live WHERE queue = $1 GROUP BY state
		UNION ALL SELECT 'dead', count(*) FROM _honker_dead WHERE queue = $1 GROUP BY queue`,
		`SELECT CASE state WHEN 0 THEN 'pending' WHEN 1 THEN 'processing' ELSE 'held' END, count(*) FROM job WHERE queue = $1 GROUP BY 1
		UNION ALL SELECT 'dead', count(*) FROM dead WHERE queue = $1 GROUP BY queue`), m.name)
	require.NoError(t, err)
	defer rows.Close()
	counts := map[honker.State]int{}
	for rows.Next() {
		var s honker.State
		var n int
		require.NoError(t, rows.Scan(&s, &n))
		counts[s] = n
	}
	return counts
}
