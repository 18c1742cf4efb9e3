//go:build unix

package torture

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/honker-go/honker"
)

// queueModel models a queue:
//
//   - A claim returns jobs that are due and have not expired, by priority, due time and id. It
//     first handles lapsed jobs: they become pending again, or dead if they have expired or have no
//     attempts left.
//   - A claim is valid while it is the latest of its job and its lease lasts.
type queueModel struct {
	*lab
	q      *honker.Queue[int64]
	jobs   map[int64]*modelJob
	ids    []int64 // all jobs ever enqueued
	claims []*honker.Job[int64]
}

// modelJob is a job. Its times are in Unix seconds.
type modelJob struct {
	state                 honker.State
	priority, tries, most int
	runAt, until, expires int64
	worker                string
}

func newQueueModel(l *lab) (model, error) {
	return &queueModel{lab: l, q: honker.NewQueue[int64](l.db, "q", nil), jobs: map[int64]*modelJob{}}, nil
}

func (m *queueModel) verbs() []verb {
	return []verb{
		{"enqueue", 2, m.enqueue}, {"claim", 2, m.claim}, {"ack", 1, m.ack}, {"retry", 1, m.retry}, {"fail", 1, m.fail},
		{"snooze", 1, m.snooze}, {"heartbeat", 1, m.heartbeat}, {"cancel", 1, m.cancel}, {"sweep", 1, m.sweep},
		{"look", 2, m.look}, {"advance", 1, m.advance},
	}
}

func (m *queueModel) advance() error {
	return m.pass(`UPDATE _honker_live SET run_at = run_at - ?1, claim_expires_at = claim_expires_at - ?1, expires_at = expires_at - ?1`,
		`UPDATE _honker_dead SET run_at = run_at - ?1`)
}

func (m *queueModel) lapsed(j *modelJob) bool {
	return j.state == honker.StateProcessing && j.until < m.second()
}

func (m *queueModel) expired(j *modelJob) bool { return j.expires > 0 && j.expires <= m.second() }

func (j *modelJob) wait() { j.state, j.worker, j.until = honker.StatePending, "", 0 }

func (j *modelJob) die() {
	j.wait()
	j.state, j.expires = honker.StateDead, 0
}

// compare compares each job, and the number of jobs by state.
func (m *queueModel) compare() error {
	want := map[honker.State]int{}
	for id, j := range m.jobs {
		want[j.state]++
		if err := m.get(id); err != nil {
			return err
		}
	}
	got := map[honker.State]int{}
	err := eachRow(m.ctx, m.db.SQL(), `SELECT state, count(*) FROM _honker_live GROUP BY state
		UNION ALL SELECT 'dead', count(*) FROM _honker_dead HAVING count(*) > 0`,
		func(row []any) { got[honker.State(fmt.Sprint(row[0]))] = int(row[1].(int64)) })
	if err != nil {
		return err
	}
	return m.same("all jobs", got, want)
}

// get compares a job.
func (m *queueModel) get(id int64) error {
	info, err := m.q.Get(m.ctx, id)
	j := m.jobs[id]
	if j == nil {
		return m.same(fmt.Sprint("job ", id), errors.Is(err, honker.ErrNotFound), true)
	}
	if err != nil {
		return fmt.Errorf("job %d: %w", id, err)
	}
	got := []any{info.State, info.Priority, info.Attempts, info.MaxAttempts, info.WorkerID, info.RunAt.Unix() + m.passed, info.ExpiresAt.IsZero()}
	return m.same(fmt.Sprint("job ", id), got, []any{j.state, j.priority, j.tries, j.most, j.worker, j.runAt, j.expires == 0})
}

// learn copies the due time of a job and checks that it is plausible.
func (m *queueModel) learn(id, about int64) error {
	info, err := m.q.Get(m.ctx, id)
	if err != nil {
		return err
	}
	m.jobs[id].runAt = info.RunAt.Unix() + m.passed
	return m.about(fmt.Sprint("job ", id), m.jobs[id].runAt, about)
}

func (m *queueModel) enqueue() error {
	delay, expires := m.perhaps(), m.perhaps()
	j := modelJob{state: honker.StatePending, priority: m.Rand.IntN(3) - 1, most: 1 + m.Rand.IntN(3)}
	opts := []honker.EnqueueOption{honker.Delay(delay), honker.Priority(j.priority), honker.MaxAttempts(j.most)}
	if expires > 0 {
		opts = append(opts, honker.ExpiresIn(expires))
		j.expires = m.in(expires)
	}
	ids, err := m.q.EnqueueMany(m.ctx, make([]int64, 1+m.Rand.IntN(4)), opts...)
	if err != nil {
		return err
	}
	for _, id := range ids {
		one := j
		m.jobs[id] = &one
		if err := m.learn(id, m.in(delay)); err != nil {
			return err
		}
	}
	rising := slices.IsSorted(ids) && (len(m.ids) == 0 || ids[0] > m.ids[len(m.ids)-1])
	m.ids = append(m.ids, ids...)
	return m.same("ids rise", rising, true)
}

func (m *queueModel) claim() error {
	worker, n := []string{"a", "b"}[m.Rand.IntN(2)], 1+m.Rand.IntN(4)
	q := honker.NewQueue[int64](m.db, m.q.Name(), &honker.QueueOptions{Lease: span})
	jobs, err := q.Claim(m.ctx, worker, n)
	if err != nil {
		return err
	}
	var got []int64
	for _, job := range jobs {
		got = append(got, job.ID)
		m.claims = append(m.claims, job)
	}
	return m.same("claim", got, m.give(worker, n))
}

// give returns the jobs expected from a claim.
func (m *queueModel) give(worker string, n int) (ids []int64) {
	m.takeBack()
	for id, j := range m.jobs {
		if j.state == honker.StatePending && j.runAt <= m.second() && !m.expired(j) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b int64) int {
		x, y := m.jobs[a], m.jobs[b]
		return cmp.Or(cmp.Compare(y.priority, x.priority), cmp.Compare(x.runAt, y.runAt), cmp.Compare(a, b))
	})
	ids = ids[:min(n, len(ids))]
	for _, id := range ids {
		j := m.jobs[id]
		j.state, j.worker, j.until = honker.StateProcessing, worker, m.in(span)
		j.tries++
	}
	return ids
}

// takeBack handles lapsed jobs, as a claim does.
func (m *queueModel) takeBack() {
	for _, j := range m.jobs {
		switch {
		case !m.lapsed(j):
		case m.expired(j), j.tries >= j.most:
			j.die()
		default:
			j.wait()
		}
	}
}

// settle tries to settle any claim, including stale ones.
func (m *queueModel) settle(verb string, do func(*honker.Job[int64]) error, then func(int64, *modelJob) error) error {
	if len(m.claims) == 0 {
		return nil
	}
	i := m.Rand.IntN(len(m.claims))
	if m.Rand.IntN(4) > 0 {
		i = len(m.claims) - 1 - m.Rand.IntN(min(4, len(m.claims))) // a recent claim most of the time
	}
	job := m.claims[i]
	j := m.jobs[job.ID]
	held := j != nil && j.state == honker.StateProcessing && j.worker == job.WorkerID && j.tries == job.Attempts && !m.lapsed(j)
	err := do(job)
	if err := m.same(verb, errors.Is(err, honker.ErrClaimLost), !held); err != nil || !held {
		return err
	}
	if err != nil {
		return err
	}
	if verb == "snooze" || len(m.claims) > 100 { // a snoozed claim may also be valid for the next claim of its job
		m.claims = slices.Delete(m.claims, i, i+1)
	}
	return then(job.ID, j)
}

func (m *queueModel) ack() error {
	return m.settle("ack", func(job *honker.Job[int64]) error { return job.Ack(m.ctx) },
		func(id int64, _ *modelJob) error { delete(m.jobs, id); return m.get(id) })
}

func (m *queueModel) retry() error {
	delay := m.perhaps()
	return m.settle("retry", func(job *honker.Job[int64]) error { return job.Retry(m.ctx, delay, errOnPurpose) },
		func(id int64, j *modelJob) error {
			if j.tries >= j.most {
				j.die()
				return nil
			}
			j.wait()
			return m.learn(id, m.in(delay))
		})
}

func (m *queueModel) fail() error {
	return m.settle("fail", func(job *honker.Job[int64]) error { return job.Reject(m.ctx, errOnPurpose) },
		func(id int64, j *modelJob) error { j.die(); return m.get(id) })
}

func (m *queueModel) snooze() error {
	d := m.perhaps()
	return m.settle("snooze", func(job *honker.Job[int64]) error { return job.Snooze(m.ctx, d) },
		func(id int64, j *modelJob) error {
			j.wait()
			j.tries--
			return m.learn(id, max(j.runAt, m.in(d)))
		})
}

func (m *queueModel) heartbeat() error {
	return m.settle("heartbeat", func(job *honker.Job[int64]) error { return job.Extend(m.ctx, span) },
		func(id int64, j *modelJob) error { j.until = m.in(span); return m.get(id) })
}

func (m *queueModel) cancel() error {
	if len(m.ids) == 0 {
		return nil
	}
	id := anyOf(m.lab, m.ids, 30)
	cancelled, err := m.q.Cancel(m.ctx, id)
	if err != nil {
		return err
	}
	j := m.jobs[id]
	live := j != nil && j.state != honker.StateDead
	if live {
		delete(m.jobs, id)
	}
	return m.same("cancel", cancelled, live)
}

func (m *queueModel) sweep() error {
	want := 0
	for _, j := range m.jobs {
		if m.expired(j) && (j.state == honker.StatePending || m.lapsed(j)) {
			j.die()
			want++
		}
	}
	got, err := m.q.SweepExpired(m.ctx)
	if err != nil {
		return err
	}
	return m.same("sweep", got, want)
}

func (m *queueModel) look() error {
	for range min(8, len(m.ids)) {
		if err := m.get(anyOf(m.lab, m.ids, 30)); err != nil {
			return err
		}
	}
	return nil
}
