package honkerprom_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerprom"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/observe"
)

// The counters and histograms record the events of this process.
func TestObserver_Counts(t *testing.T) {
	testkit.FileOnly(t)
	ctx, reg := t.Context(), prometheus.NewPedanticRegistry()
	db := honkertest.Open(t, &honker.Options{Observer: honkerprom.Observer(reg, nil)})
	mails := honker.NewQueue[int](db, "mails", nil)
	_, err := mails.EnqueueMany(ctx, []int{0, 1, 2})
	require.NoError(t, err)
	for range 3 {
		_, err = mails.Enqueue(ctx, 0, honker.Unique("k", nil))
		require.NoError(t, err)
	}
	_, err = mails.Enqueue(ctx, 0, honker.Unique("k", &honker.Uniqueness{Conflict: honker.ReplaceWaiting}))
	require.NoError(t, err)
	n, err := mails.WorkDue(ctx, func(_ context.Context, job *honker.Job[int]) error {
		return []error{nil, honker.Reject(testkit.ErrCause), honker.Snooze(time.Hour)}[job.Args]
	}, nil)
	require.NoError(t, err)
	require.Equal(t, 4, n)

	orders := honker.NewStream[int](db, "orders", nil)
	m, err := orders.Group("packers", &honker.GroupOptions{MaxAttempts: 1}).Join(ctx, "ada")
	require.NoError(t, err)
	testkit.PublishRange(t, orders, 1, 3)
	held, err := m.Claim(ctx, 1)
	require.NoError(t, err)
	require.NoError(t, held[0].Nack(ctx, testkit.ErrCause))
	require.NoError(t, db.Scheduler().Register(ctx, honker.Schedule{Name: "tea", Queue: "tea", Spec: "@every 1s"}))
	testkit.Tick(t, db, time.Now().Add(time.Second))

	values := scrape(t, reg)
	for _, name := range []string{"honker_commits_total", "honker_commit_seconds", "honker_write_wait_seconds"} {
		require.Positive(t, values[name], name)
		delete(values, name)
	}
	delete(values, `honker_wake_total{cause="commit"}`)
	require.Equal(t, map[string]float64{
		`honker_jobs_enqueued_total{queue="mails"}`:                      4,
		`honker_jobs_existing_total{queue="mails"}`:                      2,
		`honker_jobs_replaced_total{queue="mails"}`:                      1,
		`honker_jobs_settled_total{outcome="acked",queue="mails"}`:       2,
		`honker_jobs_settled_total{outcome="died",queue="mails"}`:        1,
		`honker_jobs_settled_total{outcome="snoozed",queue="mails"}`:     1,
		`honker_job_wait_seconds{queue="mails"}`:                         4,
		`honker_job_run_seconds{queue="mails"}`:                          4,
		`honker_group_events_died_total{group="packers",topic="orders"}`: 1,
		`honker_events_published_total{topic="orders"}`:                  3,
		`honker_schedule_fires_total{schedule="tea"}`:                    1,
	}, nonZero(values))
	for _, outcome := range []string{"retried", "released", "lost", "cancelled"} {
		require.Contains(t, values, fmt.Sprintf(`honker_jobs_settled_total{outcome=%q,queue="mails"}`, outcome), "begun at zero")
	}
	require.Contains(t, values, `honker_claims_lost_total{queue="mails"}`)
}

// The slot gauges follow the running Work loops and their handlers.
func TestObserver_Slots(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, _ *honker.DB) {
		reg := prometheus.NewPedanticRegistry()
		db := honkertest.Open(t, &honker.Options{Observer: honkerprom.Observer(reg, nil)})
		mails := honker.NewQueue[int](db, "mails", nil)
		_, err := mails.EnqueueMany(t.Context(), make([]int, 2))
		require.NoError(t, err)
		stop := testkit.Work(t, mails, func(context.Context, *honker.Job[int]) error {
			time.Sleep(time.Minute)
			return nil
		}, &honker.WorkOptions{Workers: 3, DrainTimeout: time.Hour})
		slots := func() map[string]float64 { return only(scrape(t, reg), "honker_work_slots") }
		time.Sleep(time.Second)
		require.Equal(t, map[string]float64{`honker_work_slots{queue="mails"}`: 3, `honker_work_slots_busy{queue="mails"}`: 2}, slots())
		time.Sleep(time.Hour)
		require.Equal(t, map[string]float64{`honker_work_slots{queue="mails"}`: 3, `honker_work_slots_busy{queue="mails"}`: 0}, slots())
		require.NoError(t, stop())
		require.Equal(t, map[string]float64{`honker_work_slots{queue="mails"}`: 0, `honker_work_slots_busy{queue="mails"}`: 0}, slots())
	})
}

// A lost claim is counted separately and by its outcome.
func TestObserver_LostClaim(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	db := honkertest.Open(t, &honker.Options{Observer: honkerprom.Observer(reg, nil)})
	mails := honker.NewQueue[int](db, "mails", nil)
	testkit.Enqueue(t, mails, 1)
	job := testkit.ClaimOne(t, mails)
	testkit.ExpireClaim(t, db, job.ID)
	require.ErrorIs(t, job.Ack(t.Context()), honker.ErrClaimLost)
	values := scrape(t, reg)
	require.EqualValues(t, 1, values[`honker_claims_lost_total{queue="mails"}`])
	require.EqualValues(t, 1, values[`honker_jobs_settled_total{outcome="lost",queue="mails"}`])
}

// Queue labels are folded, and the number of labels is limited.
func TestObserver_Labels(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	o := honkerprom.Observer(reg, &honkerprom.Options{MaxQueues: 2, QueueLabel: func(queue string) string { return queue[:1] }})
	for i := range 1000 {
		o.Enqueued(observe.Enqueued{Queue: fmt.Sprintf("%c-%d", 'a'+i%4, i), IDs: []int64{1, 2}})
		o.Settled(observe.Settled{Topic: "t", Group: fmt.Sprint(i)})
		o.Fired(honker.Fire{Name: fmt.Sprint(i)})
	}
	values := scrape(t, reg)
	require.Equal(t, map[string]float64{
		`honker_jobs_enqueued_total{queue="a"}`: 500, `honker_jobs_enqueued_total{queue="b"}`: 500,
		`honker_jobs_enqueued_total{queue="_other"}`: 1000,
	}, only(values, "honker_jobs_enqueued_total"))
	require.Len(t, only(values, "honker_group_events_died_total"), 3)
	require.Len(t, only(values, "honker_schedule_fires_total"), 3)
}

// Observers for two databases share their metrics. Observer panics if other metrics have the same names.
func TestObserver_Registered(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	first, second := honkerprom.Observer(reg, nil), honkerprom.Observer(reg, nil)
	first.Enqueued(observe.Enqueued{Queue: "mails", IDs: []int64{1}})
	second.Enqueued(observe.Enqueued{Queue: "mails", IDs: []int64{1, 2}})
	require.EqualValues(t, 3, scrape(t, reg)[`honker_jobs_enqueued_total{queue="mails"}`])

	reg = prometheus.NewPedanticRegistry()
	reg.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "honker_commits_total", Help: "mine"}))
	require.Panics(t, func() { honkerprom.Observer(reg, nil) })
}
