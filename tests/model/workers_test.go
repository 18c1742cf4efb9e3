package model_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// workersModel models a Workers. Each queue is a lane with its own model:
//
//   - While a handler is free and a lane has a claimable job, the Work claims a job.
//   - With Strict, it claims from the first such lane.
//   - With ByPriority, it claims the first job in claim order of all lanes.
//   - With InTurns, it claims from the lane with the earliest tag, and of several from the lane whose
//     job is the first in claim order. The virtual time is the tag of the last claimed job. The tag
//     of the next job of a lane is the maximum of the virtual time and of the lane's last tag plus a
//     step, which is inversely proportional to its weight.
//   - Within a lane, jobs are claimed in claim order. A paused lane has no claimable jobs, nor has a
//     lane in which as many jobs run as its limit allows.
type workersModel struct {
	lanes   []*lane
	order   honker.Order
	slots   int
	now     int64           // virtual time
	running map[int64]*lane // by job id
}

type lane struct {
	model
	name   string
	q      *honker.Queue[int]
	weight int
	tag    int64 // earliest tag of the next job
	paused bool
	until  time.Time // end of the pause; zero if it has no end
	limit  int       // of running jobs; 0 for none
	ran    int

	// Whether there was nothing to claim after the last claims (lacks) and the claims before
	// (lacked).
	lacks, lacked bool
}

func (l *lane) step() int64 { return 1 << 40 / int64(l.weight) }

// claimable returns the jobs of l that a claim would take, in claim order.
func (l *lane) claimable() []*modelJob {
	if l.paused && (l.until.IsZero() || l.until.After(now())) {
		return nil
	}
	due := l.due(now())
	if l.limit == 0 {
		return due
	}
	room := l.limit
	for _, j := range l.jobs {
		if j.State == honker.StateProcessing {
			room--
		}
	}
	return due[:max(0, min(room, len(due)))]
}

// fill claims jobs for the free handlers.
func (m *workersModel) fill() {
	for len(m.running) < m.slots {
		l := m.next()
		if l == nil {
			return
		}
		if m.order == honker.InTurns {
			m.now = max(m.now, l.tag)
			l.tag = m.now + l.step()
		}
		j := l.claimable()[0]
		j.claim(now(), "workers", time.Hour) // the worker renews the lease
		m.running[j.ID] = l
		l.ran++
	}
}

// next returns the lane to claim from, or nil if there is nothing to claim.
func (m *workersModel) next() *lane {
	var ready []*lane
	for _, l := range m.lanes {
		l.lapse(now())
		if len(l.claimable()) > 0 {
			ready = append(ready, l)
		}
	}
	if len(ready) == 0 {
		return nil
	}
	if m.order == honker.Strict {
		return ready[0]
	}
	return slices.MinFunc(ready, func(a, b *lane) int {
		if m.order == honker.InTurns {
			if c := cmp.Compare(max(a.tag, m.now), max(b.tag, m.now)); c != 0 {
				return c
			}
		}
		return claimOrder(a.claimable()[0], b.claimable()[0])
	})
}

// handlers holds the running handlers of a Work. Each waits for its return value.
type handlers struct {
	mu      sync.Mutex
	running map[int64]chan error
	twice   []int64
	over    chan struct{}
}

func (h *handlers) handle(_ context.Context, job *honker.Job[int]) error {
	end := make(chan error, 1)
	h.mu.Lock()
	if h.running[job.ID] != nil {
		h.twice = append(h.twice, job.ID)
	}
	h.running[job.ID] = end
	h.mu.Unlock()
	select {
	case err := <-end:
		return err
	case <-h.over:
		return nil
	}
}

// workersMachine drives a Work over lanes and its model.
type workersMachine struct {
	workersModel
	ctx      context.Context
	db       *honker.DB
	met      map[string]int
	handlers handlers
	foreign  []*honker.Job[int] // claims of another worker
	shares   map[[2]int]*share
}

// share is the range of the difference between two lanes' completed jobs, divided by their weights,
// while both have work.
type share struct{ least, most float64 }

func newWorkersMachine(t *rapid.T, db *honker.DB, check int, met map[string]int) (m *workersMachine, w *honker.Workers) {
	m = &workersMachine{ctx: context.Background(), db: db, met: met, shares: map[[2]int]*share{},
		workersModel: workersModel{running: map[int64]*lane{}},
		handlers:     handlers{running: map[int64]chan error{}, over: make(chan struct{})}}
	m.order = rapid.SampledFrom([]honker.Order{honker.ByPriority, honker.InTurns, honker.Strict}).Draw(t, "order")
	opts := &honker.WorkersOptions{Order: m.order}
	weighted := m.order == honker.InTurns && rapid.Bool().Draw(t, "weighted")
	m.slots = rapid.SampledFrom([]int{1, 1, 3, 40}).Draw(t, "handlers")
	for i := range rapid.IntRange(1, 5).Draw(t, "lanes") {
		name := fmt.Sprintf("lane%d-%d", check, i)
		one := &lane{name: name, weight: 1, q: honker.NewQueue[int](db, name, nil), model: model{jobs: map[int64]*modelJob{}, met: met}}
		if weighted {
			one.weight = rapid.IntRange(1, 7).Draw(t, "weight")
		}
		m.lanes = append(m.lanes, one)
	}
	if weighted {
		opts.Weights = map[string]int{}
		for _, one := range m.lanes {
			opts.Weights[one.name] = one.weight
		}
	}
	w = honker.NewWorkers(db, opts)
	for _, one := range m.lanes {
		honker.Handle(w, one.q, m.handlers.handle)
	}
	return m, w
}

func (m *workersMachine) lane(t *rapid.T) *lane {
	return m.lanes[rapid.IntRange(0, len(m.lanes)-1).Draw(t, "lane")]
}

func (m *workersMachine) Enqueue(t *rapid.T) {
	l := m.lane(t)
	e := enqueued{
		delay:       apart(maybe(t, "delay")),
		priority:    rapid.IntRange(-1, 1).Draw(t, "priority"),
		maxAttempts: rapid.IntRange(1, 3).Draw(t, "max attempts"),
	}
	if rapid.IntRange(0, 3).Draw(t, "expires?") == 0 {
		e.expires = spans.Draw(t, "expires")
	}
	ids, err := l.q.EnqueueMany(m.ctx, make([]int, rapid.SampledFrom([]int{1, 2, 5, 30}).Draw(t, "jobs")), e.options()...)
	require.NoError(t, err)
	for _, id := range ids {
		l.enqueue(now(), id, l.name, 0, e)
	}
}

// End makes some handlers return.
func (m *workersMachine) End(t *rapid.T) {
	ids := slices.Sorted(maps.Keys(m.running))
	if len(ids) == 0 {
		t.Skip("nothing runs")
	}
	from := rapid.IntRange(0, len(ids)-1).Draw(t, "from")
	for _, id := range ids[from : from+rapid.IntRange(1, len(ids)-from).Draw(t, "so many")] {
		m.end(t, id, rapid.SampledFrom([]string{"ack", "ack", "ack", "retry", "reject", "snooze"}).Draw(t, "how"))
		if m.limited() { // otherwise the room of a queue would depend on the order of the returns
			m.Check(t)
		}
	}
}

func (m *workersMachine) limited() bool {
	return slices.ContainsFunc(m.lanes, func(l *lane) bool { return l.limit > 0 })
}

var errHandler = errors.New("out of paper")

// end makes the handler of a job return. No job becomes due again within the same second, because
// several jobs may be settled in separate commits.
func (m *workersMachine) end(t *rapid.T, id int64, how string) {
	l := m.running[id]
	j := l.jobs[id]
	var returns error
	switch how {
	case "ack":
		delete(l.jobs, id)
	case "retry":
		d := apart(spans.Draw(t, "delay") + 1)
		returns = honker.RetryAfter(d, errHandler)
		j.retry(now(), d, errHandler)
	case "reject":
		returns = honker.Reject(errHandler)
		j.die(now(), errHandler.Error())
	case "snooze":
		d := apart(spans.Draw(t, "d") + 1)
		returns = honker.Snooze(d)
		j.snooze(now(), d)
	}
	m.met[how]++
	delete(m.running, id)
	m.handlers.mu.Lock()
	defer m.handlers.mu.Unlock()
	m.handlers.running[id] <- returns
	delete(m.handlers.running, id)
}

// ForeignClaim claims jobs of a queue for another worker, which may not acknowledge them in time.
func (m *workersMachine) ForeignClaim(t *rapid.T) {
	l, n, hold := m.lane(t), rapid.IntRange(1, 5).Draw(t, "n"), lapsing(holds.Draw(t, "hold"))
	jobs, err := honker.NewQueue[int](m.db, l.name, &honker.QueueOptions{Lease: hold}).Claim(m.ctx, "foreign", n)
	require.NoError(t, err)
	m.foreign = append(m.foreign, jobs...)
	var got []int64
	for _, job := range jobs {
		got = append(got, job.ID)
	}
	l.lapse(now())
	var want []int64
	due := l.claimable()
	for _, j := range due[:min(n, len(due))] {
		j.claim(now(), "foreign", hold)
		want = append(want, j.ID)
	}
	require.Equal(t, want, got)
}

func (m *workersMachine) ForeignAck(t *rapid.T) {
	if len(m.foreign) == 0 {
		t.Skip("no claim of another worker")
	}
	job := rapid.SampledFrom(m.foreign).Draw(t, "claim")
	l := m.lanes[slices.IndexFunc(m.lanes, func(l *lane) bool { return l.name == job.Queue })]
	err := job.Ack(m.ctx)
	if l.held(now(), job.JobInfo) == nil {
		require.ErrorIs(t, err, honker.ErrClaimLost)
		return
	}
	require.NoError(t, err)
	delete(l.jobs, job.ID)
}

func (m *workersMachine) Pause(t *rapid.T) {
	l := m.lane(t)
	o := &honker.PauseOptions{}
	if d := maybe(t, "for"); d > 0 {
		o.Until = time.Now().Add(d)
		l.until = round(time.Now().Add(d), time.Second, time.Second-1) // pauses end with a second, on both databases
	} else {
		l.until = time.Time{}
	}
	_, err := l.q.Pause(m.ctx, o)
	require.NoError(t, err)
	l.paused = true
	m.met["pause"]++
}

func (m *workersMachine) Resume(t *rapid.T) {
	l := m.lane(t)
	_, err := l.q.Resume(m.ctx)
	require.NoError(t, err)
	l.paused = false
}

// Limit sets or removes the limit of running jobs.
func (m *workersMachine) Limit(t *rapid.T) {
	l := m.lane(t)
	l.limit = rapid.SampledFrom([]int{0, 1, 3}).Draw(t, "limit")
	require.NoError(t, l.q.SetLimits(m.ctx, honker.Limits{Running: l.limit}))
	m.met["limit"]++
}

// late is the longest delay after which the Work claims a job that has become claimable. On a server, two such moments must
// be further apart, or the order of claims depends on it. So delays are multiples of 100ms there, and leases end in between.
const late = 40 * time.Millisecond

// apart returns a delay for a test on a server: d rounded up.
func apart(d time.Duration) time.Duration {
	if testkit.OnFile() {
		return d
	}
	return (d + 100*time.Millisecond - 1).Truncate(100 * time.Millisecond)
}

// lapsing returns the duration of a lease.
func lapsing(d time.Duration) time.Duration {
	if testkit.OnFile() {
		return d
	}
	return d + 250*time.Millisecond
}

// Advance waits second by second, since jobs are claimed in the second in which they become
// claimable.
func (m *workersMachine) Advance(t *rapid.T) {
	for range rapid.SampledFrom([]int{1, 2, 8}).Draw(t, "seconds") {
		m.second(t)
	}
}

// second waits for a second. On a server, jobs are claimed in the microsecond in which they become claimable, so second
// checks at each such moment.
func (m *workersMachine) second(t *rapid.T) {
	end := time.Now().Add(time.Second)
	for next := m.nextBefore(end); !testkit.OnFile() && next.Before(end); next = m.nextBefore(end) {
		time.Sleep(time.Until(next.Add(late)))
		m.Check(t)
	}
	time.Sleep(time.Until(end))
	m.Check(t)
}

// nextBefore returns the first moment before end at which a job becomes claimable, or end.
func (m *workersMachine) nextBefore(end time.Time) time.Time {
	for _, l := range m.lanes {
		for _, at := range []time.Time{l.next(now()), l.until} {
			if at.After(now()) && at.Before(end) {
				end = at
			}
		}
	}
	return end
}

// Check lets both sides claim and compares the running jobs.
func (m *workersMachine) Check(t *rapid.T) {
	synctest.Wait()
	m.fill()
	m.handlers.mu.Lock()
	defer m.handlers.mu.Unlock()
	require.Empty(t, m.handlers.twice)
	require.Equal(t, slices.Sorted(maps.Keys(m.running)), slices.Sorted(maps.Keys(m.handlers.running)))
	for id := range m.handlers.running {
		require.NotNil(t, m.running[id].jobs[id], "it has ended")
	}
	m.compare(t)
}

// compare checks the fairness between each two lanes that had work left before and after each
// claim. Their weighted shares must not differ by more than a job of each. It follows that a lane
// with work cannot starve.
func (m *workersMachine) compare(t *rapid.T) {
	if m.order != honker.InTurns {
		return
	}
	for _, l := range m.lanes {
		l.lacked, l.lacks = l.lacks, len(l.claimable()) == 0
	}
	for b, two := range m.lanes {
		for a, one := range m.lanes[:b] {
			s := m.shares[[2]int{a, b}]
			wa, wb := float64(one.weight), float64(two.weight)
			apart := float64(one.ran)/wa - float64(two.ran)/wb
			if s == nil || one.lacked || one.lacks || two.lacked || two.lacks {
				m.shares[[2]int{a, b}] = &share{apart, apart}
				continue
			}
			s.least, s.most = min(s.least, apart), max(s.most, apart)
			require.LessOrEqual(t, s.most-s.least, 1/wa+1/wb+1e-6, "%s and %s", one.name, two.name)
			if s.most > s.least {
				m.met["share"]++
			}
		}
	}
}

// busy reports whether any job is running or will become claimable.
func (m *workersMachine) busy() bool {
	return len(m.running) > 0 || slices.ContainsFunc(m.lanes, func(l *lane) bool { return !l.next(now()).IsZero() })
}

// finish completes all jobs and checks that none is left.
func (m *workersMachine) finish(t *rapid.T) {
	for _, l := range m.lanes {
		_, err := l.q.Resume(m.ctx)
		require.NoError(t, err)
		l.paused, l.limit = false, 0
		require.NoError(t, l.q.SetLimits(m.ctx, honker.Limits{}))
		m.Check(t)
	}
	for ; m.busy(); m.Check(t) {
		if len(m.running) == 0 {
			m.second(t)
		}
		for id := range maps.Clone(m.running) {
			m.end(t, id, "ack")
		}
	}
	time.Sleep(20 * time.Second) // long enough for all claims to lapse
	for _, l := range m.lanes {
		jobs, err := l.q.Claim(m.ctx, "last", 1) // this claim also handles lapsed jobs
		require.NoError(t, err)
		require.Empty(t, jobs)
		_, err = l.q.SweepExpired(m.ctx)
		require.NoError(t, err)
		l.lapse(now())
		l.sweep(now())
		for id, j := range l.jobs {
			require.Equal(t, honker.StateDead, j.State)
			got, err := l.q.Get(m.ctx, id)
			require.NoError(t, err)
			require.Equal(t, honker.StateDead, got.State)
		}
		require.Equal(t, []int{len(l.jobs)}, column[int](t, m.db, on(
			`SELECT (SELECT count(*) FROM _honker_live WHERE queue = $1) + (SELECT count(*) FROM _honker_dead WHERE queue = $1)`,
			`SELECT (SELECT count(*) FROM job WHERE queue = $1) + (SELECT count(*) FROM dead WHERE queue = $1)`), l.name))
	}
}

// A Workers claims jobs in the order of the model. No job is lost, and no job runs twice at the same
// time.
func TestWorkers_Model(t *testing.T) {
	met := map[string]int{}
	synctest.Test(t, func(t *testing.T) {
		db := honkertest.Open(t, &honker.Options{NoFileNotices: true, PollInterval: time.Hour})
		checks := 0
		rapid.Check(undated{t}, func(t *rapid.T) {
			checks++ // new queues for each check; the half second keeps a distance from the Work's own timers
			startSecond()
			time.Sleep(500 * time.Millisecond)
			m, w := newWorkersMachine(t, db, checks, met)
			ctx, cancel := context.WithCancel(m.ctx)
			ended := make(chan error, 1)
			go func() {
				ended <- w.Work(ctx, &honker.WorkOptions{WorkerID: "workers", Pool: honker.NewPool(m.slots)})
			}()
			defer func() {
				cancel()
				close(m.handlers.over)
				<-ended
			}()
			actions := rapid.StateMachineActions(m)
			actions["Enqueue more"], actions["End more"], actions["End again"] = m.Enqueue, m.End, m.End
			for range 4 { // rapid runs few steps per Repeat
				t.Repeat(actions)
			}
			m.finish(t)
		})
	})
	requireMet(t, met, "ack", "retry", "reject", "snooze", "pause", "limit", "share",
		"lapsed", "lapsed and expired", "lapsed and exhausted", "swept")
	t.Log(met)
}
