//go:build unix

package torture

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/honker-go/honker"
)

func newModels(r *Round, db *honker.DB) *models {
	m := &models{Round: r, ctx: context.Background(), db: db, jobs: map[int64]*modelJob{}, offsets: map[string]int64{}}
	m.q = honker.NewQueue[int64](db, "q", nil)
	m.s = honker.NewStream[int64](db, "s", nil)
	m.steps = map[string]func() error{
		"enqueue": m.enqueue, "enqueue more": m.enqueue, "claim": m.claim, "claim more": m.claim,
		"ack": m.ack, "retry": m.retry, "fail": m.fail, "snooze": m.snooze, "heartbeat": m.heartbeat,
		"cancel": m.cancel, "sweep": m.sweep, "look": m.look, "look again": m.look, "advance": m.advance,
		"publish": m.publish, "read": m.read, "save": m.save, "offset": m.offset, "head": m.head,
	}
	m.names = slices.Sorted(maps.Keys(m.steps))
	return m
}

// perhaps is a span, or 0.
func (m *models) perhaps() time.Duration { return span * time.Duration(m.Rand.IntN(2)) }

func (m *models) enqueue() error {
	delay, expires := m.perhaps(), m.perhaps()
	j := modelJob{state: honker.Pending, priority: m.Rand.IntN(3) - 1, most: 1 + m.Rand.IntN(3)}
	opts := []honker.EnqueueOption{honker.Delay(delay), honker.Priority(j.priority), honker.MaxAttempts(j.most)}
	if expires > 0 {
		opts = append(opts, honker.ExpiresIn(expires))
		j.expires = second() + int64(expires/time.Second)
	}
	ids, err := m.q.EnqueueMany(m.ctx, make([]int64, 1+m.Rand.IntN(4)), opts...)
	if err != nil {
		return err
	}
	for _, id := range ids {
		one := j
		m.jobs[id] = &one
		if err := m.learn(id, second()+int64(delay/time.Second)); err != nil {
			return err
		}
	}
	rising := slices.IsSorted(ids) && (len(m.ids) == 0 || ids[0] > m.ids[len(m.ids)-1])
	m.ids = append(m.ids, ids...)
	return m.same("ids rise", rising, true)
}

func (m *models) claim() error {
	worker, n := []string{"a", "b"}[m.Rand.IntN(2)], 1+m.Rand.IntN(4)
	q := honker.NewQueue[int64](m.db, "q", &honker.QueueOptions{Visibility: span})
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

// give is the model's claim.
func (m *models) give(worker string, n int) (ids []int64) {
	m.takeBack()
	for id, j := range m.jobs {
		if j.state == honker.Pending && j.runAt <= second() && !j.expired() {
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
		j.state, j.worker, j.until = honker.Processing, worker, second()+int64(span/time.Second)
		j.tries++
	}
	return ids
}

// takeBack is what a claim does with what has lapsed.
func (m *models) takeBack() {
	for _, j := range m.jobs {
		switch {
		case !m.lapsed(j):
		case j.expired(), j.tries >= j.most:
			j.die()
		default:
			j.wait()
		}
	}
}

// settle tries to end a claim, stale ones included.
func (m *models) settle(verb string, do func(*honker.Job[int64]) error, then func(int64, *modelJob) error) error {
	if len(m.claims) == 0 {
		return nil
	}
	i := m.Rand.IntN(len(m.claims))
	if m.Rand.IntN(4) > 0 {
		i = len(m.claims) - 1 - m.Rand.IntN(min(4, len(m.claims))) // mostly one that is young
	}
	job := m.claims[i]
	j := m.jobs[job.ID]
	held := j != nil && j.state == honker.Processing && j.worker == job.WorkerID && j.tries == job.Attempts && !m.lapsed(j)
	err := do(job)
	if err := m.same(verb, errors.Is(err, honker.ErrClaimLost), !held); err != nil || !held {
		return err
	}
	if err != nil {
		return err
	}
	if verb == "snooze" || len(m.claims) > 100 { // a snoozed claim may speak for the next one
		m.claims = slices.Delete(m.claims, i, i+1)
	}
	return then(job.ID, j)
}

func (m *models) ack() error {
	return m.settle("ack", func(job *honker.Job[int64]) error { return job.Ack(m.ctx) },
		func(id int64, _ *modelJob) error { delete(m.jobs, id); return m.get(id) })
}

func (m *models) retry() error {
	delay := m.perhaps()
	return m.settle("retry", func(job *honker.Job[int64]) error { return job.Retry(m.ctx, delay, errOnPurpose) },
		func(id int64, j *modelJob) error {
			if j.tries >= j.most {
				j.die()
				return nil
			}
			j.wait()
			return m.learn(id, second()+int64(delay/time.Second))
		})
}

func (m *models) fail() error {
	return m.settle("fail", func(job *honker.Job[int64]) error { return job.Fail(m.ctx, errOnPurpose) },
		func(id int64, j *modelJob) error { j.die(); return m.get(id) })
}

func (m *models) snooze() error {
	d := m.perhaps()
	return m.settle("snooze", func(job *honker.Job[int64]) error { return job.Snooze(m.ctx, d) },
		func(id int64, j *modelJob) error {
			j.wait()
			j.tries--
			return m.learn(id, max(j.runAt, second()+int64(d/time.Second)))
		})
}

func (m *models) heartbeat() error {
	return m.settle("heartbeat", func(job *honker.Job[int64]) error { return job.Heartbeat(m.ctx, span) },
		func(id int64, j *modelJob) error { j.until = second() + int64(span/time.Second); return m.get(id) })
}

// anyID is one of all jobs there ever were, mostly a young one.
func (m *models) anyID() (int64, bool) {
	if len(m.ids) == 0 {
		return 0, false
	}
	from := m.ids
	if m.Rand.IntN(4) > 0 {
		from = from[max(0, len(from)-30):]
	}
	return from[m.Rand.IntN(len(from))], true
}

func (m *models) cancel() error {
	id, ok := m.anyID()
	if !ok {
		return nil
	}
	cancelled, err := m.q.Cancel(m.ctx, id)
	if err != nil {
		return err
	}
	j := m.jobs[id]
	live := j != nil && j.state != honker.Dead
	if live {
		delete(m.jobs, id)
	}
	return m.same("cancel", cancelled, live)
}

func (m *models) sweep() error {
	want := 0
	for _, j := range m.jobs {
		if j.expired() && (j.state == honker.Pending || m.lapsed(j)) {
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

func (m *models) look() error {
	for range 8 {
		if id, ok := m.anyID(); ok {
			if err := m.get(id); err != nil {
				return err
			}
		}
	}
	return nil
}
