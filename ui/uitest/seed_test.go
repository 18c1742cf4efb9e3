package uitest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/dispatch"
	"github.com/honker-go/honker/flow"
	"github.com/honker-go/honker/relay"
)

// seed fills a file with the data of a small shop. The data has queues with and without workers, several kinds of
// dead letters, topics with consumers, schedules, locks and limits.
func seed(t *testing.T, db *honker.DB) {
	t.Helper()
	ctx := context.Background()
	queue := func(name string) *honker.Queue[json.RawMessage] {
		return honker.NewQueue[json.RawMessage](db, name, nil)
	}
	add := func(name string, n int, opts ...honker.EnqueueOption) {
		args := make([]json.RawMessage, n)
		for i := range args {
			args[i] = json.RawMessage(fmt.Sprintf(`{"order":%d,"to":"customer-%d@example.com","total":%d.50,"lines":[{"sku":"tea-%d","n":2},{"sku":"cup","n":1}]}`, 10400+i, i, 20+i%70, i%9))
		}
		_, err := queue(name).EnqueueMany(ctx, args, opts...)
		require.NoError(t, err)
	}
	die := func(name string, n int, cause func(i int) string) {
		add(name, n, honker.Priority(9))
		jobs, err := queue(name).Claim(ctx, "worker-7f3a", n)
		require.NoError(t, err)
		for i, job := range jobs {
			require.NoError(t, job.Reject(ctx, errors.New(cause(i))))
		}
	}
	die("emails", 23, func(i int) string {
		return fmt.Sprintf("smtp: dial tcp 10.0.3.%d:25: connect: connection refused", 10+i)
	})
	die("emails", 4, func(i int) string { return fmt.Sprintf(`550 5.1.1 mailbox "customer-%d" unavailable`, i) })
	die("webhooks", 9, func(i int) string {
		return fmt.Sprintf("POST https://hooks.example.com/%d: 503 Service Unavailable after %d ms", i, 900+i)
	})
	die("invoices", 2, func(int) string {
		return "render: template \"invoice.html\" line 41: nil pointer evaluating *Address.Country"
	})
	add("emails", 48)
	add("emails", 120, honker.Delay(40*time.Minute))
	add("thumbnails", 1240)
	add("reports", 214)
	add("webhooks", 12, honker.Delay(5*time.Minute))
	add("invoices", 6)
	for name, n := range map[string]int{"emails": 5, "thumbnails": 8} {
		_, err := queue(name).Claim(ctx, "web-2-4411-9c1f", n)
		require.NoError(t, err)
	}
	require.NoError(t, queue("webhooks").SetLimits(ctx, honker.Limits{Running: 20, PerKey: 2, Rate: honker.Rate{N: 50, Per: time.Second, Burst: 10}}))
	for i := range 40 {
		_, err := queue("webhooks").Enqueue(ctx, json.RawMessage(fmt.Sprintf(`{"event":"order.paid","order":%d}`, i)), honker.Key([]string{"acme", "globex", "initech"}[i%3]))
		require.NoError(t, err)
	}
	_, err := queue("webhooks").Claim(ctx, "web-1-812-77ab", 20)
	require.NoError(t, err)
	_, err = queue("imports").Pause(ctx, &honker.PauseOptions{Reason: "the supplier migrates until noon", By: "anna", Until: time.Now().Add(2 * time.Hour)})
	require.NoError(t, err)
	add("imports", 31)
	// The reports queue has had no worker for half an hour.
	_, err = db.SQL().Exec(`UPDATE _honker_live SET created_at = created_at - 1800, run_at = run_at - 1800 WHERE queue = 'reports'`)
	require.NoError(t, err)
	seedWorkers(t, db)
	seedBatch(t, db)
	seedStreams(t, db)
	seedSchedules(t, db)
	seedTraffic(t, db)
	seedRelays(t, db)
	seedActors(t, db)
	seedRun(t, db)
	seedAudit(t, db)
}

// seedAudit changes jobs in the names of two operators.
func seedAudit(t *testing.T, db *honker.DB) {
	t.Helper()
	anna, ben := honker.WithActor(t.Context(), "anna"), honker.WithActor(t.Context(), "ben")
	_, err := admin.Requeue(anna, db, admin.JobFilter{Queues: []string{"emails"}, Error: "mailbox"}, &admin.RequeueOptions{Spread: time.Hour})
	require.NoError(t, err)
	_, err = admin.Cancel(ben, db, admin.JobFilter{Queues: []string{"thumbnails"}, Contains: "customer-1239@"}, nil)
	require.NoError(t, err)
	_, err = db.Scheduler().Resume(ben, "cleanup")
	require.NoError(t, err)
}

// seedRun adds a run of a flow that waits for a signal after a step with a long value.
func seedRun(t *testing.T, db *honker.DB) {
	t.Helper()
	f := flow.New(db, "order", func(ctx context.Context, in json.RawMessage) (string, error) {
		if _, err := flow.Step(ctx, "reserve the goods of the order", func(context.Context) (json.RawMessage, error) { return in, nil }); err != nil {
			return "", err
		}
		return flow.Wait[string](ctx, "approved", 72*time.Hour)
	}, nil)
	_, err := f.Start(t.Context(), "order-17", json.RawMessage(`{"item":"tea","pieces":3,"to":"Gate 7, `+strings.Repeat("very ", 30)+`far away"}`))
	require.NoError(t, err)
	w := honker.NewWorkers(db, nil)
	flow.Handle(w, f)
	_, err = w.WorkDue(t.Context(), nil)
	require.NoError(t, err)
	run, err := flow.Get(t.Context(), db, "order", "order-17")
	require.NoError(t, err)
	require.Len(t, run.Timeline, 2)
	_, err = db.SQL().Exec(`UPDATE _honkerx_flow_steps SET began_ms = began_ms - 90000 WHERE kind = 0`)
	require.NoError(t, err)
}

// seedRelays adds a relay queue whose partitions wait, back off and are stuck, with dead letters.
func seedRelays(t *testing.T, db *honker.DB) {
	t.Helper()
	r := relay.New(db, nil)
	hooks := r.Queue("webhooks", 32)
	failed := make(chan struct{})
	hooks.Handle(func(_ context.Context, m *relay.Message) error {
		switch {
		case m.Key == "initech":
			close(failed)
			return errors.New("POST https://hooks.initech.example/in: 503 Service Unavailable, upstream connect error or disconnect/reset before headers")
		case m.Partition == 9:
			return relay.Reject(errors.New("POST https://hooks.globex.example/" + strings.Repeat("x", 200) + ": 410 Gone"))
		}
		return nil
	}, relay.RetryBase(time.Hour), relay.RetryMax(time.Hour))
	for i := range 12 {
		_, err := hooks.Send(t.Context(), relay.Outgoing{Partition: 9, Payload: fmt.Appendf(nil, `{"event":"order.paid","order":%d}`, i)})
		require.NoError(t, err)
	}
	for range 30 {
		_, err := hooks.Send(t.Context(), relay.Outgoing{Key: "initech", Payload: []byte(`{"event":"order.paid"}`)})
		require.NoError(t, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()
	<-failed
	require.Eventually(t, func() bool {
		info, err := hooks.Info(ctx)
		return err == nil && info.Dead == 12
	}, patience, 10*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
	_, err := db.SQL().Exec(`UPDATE _honkerx_relay_partitions SET attempts = 14 WHERE last_error <> ''`)
	require.NoError(t, err)
	_, err = relay.New(db, &relay.Options{Family: "billing"}).Queue("invoices", 4).Send(t.Context(), relay.Outgoing{Key: "acme"}, relay.Outgoing{Key: "globex"})
	require.NoError(t, err)
}

// seedActors adds two live actors, of which the first has a task until the test ends, and a type without actors.
func seedActors(t *testing.T, db *honker.DB) {
	t.Helper()
	d := dispatch.New(db, nil)
	began := make(chan struct{})
	for _, instance := range []string{"1", "2"} {
		a := dispatch.NewActor(d, dispatch.Identity{Type: "osis", Instance: instance, Version: "v212"}, func(ctx context.Context, _ *dispatch.Task[int]) (any, error) {
			close(began)
			<-ctx.Done()
			return nil, ctx.Err()
		}, &dispatch.ActorOptions{DrainTimeout: time.Millisecond})
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { ended <- a.Run(ctx) }()
		t.Cleanup(func() {
			stop()
			<-ended
		})
	}
	for _, to := range []dispatch.Target{{Type: "osis", Instance: "1"}, {Type: "osis", Instance: "1"}, {Type: "render", Group: "gpu"}} {
		_, err := d.Send(t.Context(), to, 1)
		require.NoError(t, err)
	}
	<-began
}

// seedBatch adds a partly completed import with a failed job and a retried job, and a job that waits for the import.
func seedBatch(t *testing.T, db *honker.DB) {
	t.Helper()
	ctx := context.Background()
	catalog := honker.NewQueue[json.RawMessage](db, "catalog", nil)
	batch, err := db.NewBatch(ctx, &honker.BatchOptions{Name: "spring catalog"})
	require.NoError(t, err)
	args := make([]json.RawMessage, 60)
	for i := range args {
		args[i] = json.RawMessage(fmt.Sprintf(`{"page":%d}`, i))
	}
	_, err = catalog.EnqueueMany(ctx, args, honker.InBatch(batch.ID), honker.Headers(map[string]string{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}))
	require.NoError(t, err)
	require.NoError(t, batch.Seal(ctx))
	_, err = catalog.Enqueue(ctx, json.RawMessage(`{"publish":true}`), honker.AfterBatch(batch.ID))
	require.NoError(t, err)
	jobs, err := catalog.Claim(ctx, "web-1-812-77ab", 24)
	require.NoError(t, err)
	for i, job := range jobs[:20] {
		if i == 0 {
			require.NoError(t, job.Reject(ctx, errors.New("page 0: price is missing for sku tea-7")))
			continue
		}
		if i == 1 {
			require.NoError(t, job.Retry(ctx, time.Hour, errors.New("page 1: the supplier's API answered 503")))
			continue
		}
		require.NoError(t, job.Ack(ctx))
	}
}

// seedPipeline adds five jobs that wait for each other. It returns the ID of one that has failed once and has been running
// for three hours, beside a dead job.
func seedPipeline(t *testing.T, db *honker.DB) (slow int64) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	add := func(queue string, opts ...honker.EnqueueOption) int64 {
		id, err := honker.NewQueue[json.RawMessage](db, queue, nil).Enqueue(ctx, json.RawMessage(`{"invoice":"2026-11-0042","customer":"cus_8812"}`), opts...)
		require.NoError(t, err)
		return id
	}
	claim := func(queue string) *honker.Job[json.RawMessage] {
		jobs, err := honker.NewQueue[json.RawMessage](db, queue, nil).Claim(ctx, "web-1-812-77ab", 1)
		require.NoError(t, err)
		require.Len(t, jobs, 1)
		return jobs[0]
	}
	extract := add("etl.extract")
	clean, slow := add("etl.clean", honker.After(extract)), add("etl.join", honker.After(extract))
	load := add("etl.load", honker.After(clean, slow))
	add("notify", honker.After(load))
	require.NoError(t, claim("etl.extract").Ack(ctx))
	require.NoError(t, claim("etl.clean").Reject(ctx, errors.New("the column price is missing")))
	require.NoError(t, claim("etl.join").Retry(ctx, 0, errors.New("GET https://supplier.example/prices: 503 Service Unavailable")))
	running, ended := make(chan struct{}), make(chan error)
	go func() {
		ended <- honker.NewQueue[json.RawMessage](db, "etl.join", nil).Work(ctx, func(ctx context.Context, job *honker.Job[json.RawMessage]) error {
			job.SetProgress(41, 100, "suppliers")
			close(running)
			<-ctx.Done()
			return ctx.Err()
		}, &honker.WorkOptions{WorkerID: "web-1-812-etl", Lease: time.Hour, DrainTimeout: time.Millisecond})
	}()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	<-running
	require.Eventually(t, func() bool { // the worker saves the start of a job that lasts
		var n int
		return db.SQL().QueryRow(`SELECT count(*) FROM _honkerx_starts WHERE job_id = ?`, slow).Scan(&n) == nil && n == 1
	}, patience, 10*time.Millisecond)
	at := func(ago time.Duration) int64 { return time.Now().Add(-ago).UnixMilli() }
	for _, change := range []struct {
		sql  string
		args []any
	}{
		{`UPDATE _honker_live SET created_at = ? / 1000, run_at = ? / 1000 WHERE id = ?`, []any{at(214 * time.Minute), at(193 * time.Minute), slow}},
		{`UPDATE _honkerx_attempts SET start_ms = ?, ran_ms = 41000 WHERE job_id = ?`, []any{at(212 * time.Minute), slow}},
		{`UPDATE _honkerx_starts SET start_ms = ? WHERE job_id = ?`, []any{at(192 * time.Minute), slow}},
		{sqlMinute, []any{time.Now().Unix()/60 - 200, "etl.join", 50, 50, 50, 0, 0, 5000, 60_000, 120}},
	} {
		_, err := db.SQL().Exec(change.sql, change.args...)
		require.NoError(t, err)
	}
	return slow
}

// seedWorkers starts workers that hold jobs until the test ends.
func seedWorkers(t *testing.T, db *honker.DB) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	t.Cleanup(func() { cancel(); ended.Wait() })
	for name, n := range map[string]int{"emails": 4, "thumbnails": 8, "invoices": 2} {
		started := make(chan struct{}, n)
		ended.Go(func() {
			_ = honker.NewQueue[json.RawMessage](db, name, nil).Work(ctx, func(ctx context.Context, _ *honker.Job[json.RawMessage]) error {
				started <- struct{}{}
				<-ctx.Done()
				return ctx.Err()
			}, &honker.WorkOptions{WorkerID: "web-1-812-" + name, Pool: honker.NewPool(n), DrainTimeout: time.Millisecond})
		})
		<-started
	}
}

func seedStreams(t *testing.T, db *honker.DB) {
	t.Helper()
	ctx := context.Background()
	orders := honker.NewStream[json.RawMessage](db, "orders", nil)
	for i := range 60 {
		_, err := orders.Publish(ctx, json.RawMessage(fmt.Sprintf(`{"order":%d,"status":"paid"}`, i)), honker.EventKey(fmt.Sprintf("order:%d", i)))
		require.NoError(t, err)
	}
	_, err := orders.SaveOffset(ctx, "search-index", 60)
	require.NoError(t, err)
	_, err = orders.SaveOffset(ctx, "warehouse", 12)
	require.NoError(t, err)
	require.NoError(t, orders.SetRetention(ctx, honker.Retention{MaxCount: 100_000, MaxAge: 30 * 24 * time.Hour}))
	group := orders.Group("shipping", &honker.GroupOptions{MaxAttempts: 1})
	member, err := group.Join(ctx, "shipping-1")
	require.NoError(t, err)
	deliveries, err := member.Claim(ctx, 8)
	require.NoError(t, err)
	require.NoError(t, deliveries[0].Nack(ctx, errors.New("no carrier for AQ")))
	require.NoError(t, deliveries[1].Nack(ctx, errors.New("address incomplete")))
	_, err = honker.NewStream[int](db, "users:created", nil).Publish(ctx, 1)
	require.NoError(t, err)
}

func seedSchedules(t *testing.T, db *honker.DB) {
	t.Helper()
	ctx := context.Background()
	for _, s := range []honker.Schedule{
		{Name: "nightly-report", Queue: "reports", Spec: "15 3 * * *", Payload: map[string]string{"kind": "daily"}},
		{Name: "sync-stock", Queue: "imports", Spec: "*/20 * * * *", Payload: map[string]string{"warehouse": "north"}},
		{Name: "reminders", Queue: "emails", Spec: "0 9-17 * * MON-FRI"},
		{Name: "cleanup", Queue: "thumbnails", Spec: "@daily"},
	} {
		require.NoError(t, db.Scheduler().Register(ctx, s))
	}
	_, err := db.Scheduler().Pause(ctx, "cleanup")
	require.NoError(t, err)
	_, err = db.TryLock(ctx, "stock-export", &honker.LockOptions{Owner: "web-1-812-77ab"})
	require.NoError(t, err)
	_, err = db.RateLimit("sms", 100, time.Minute).Allow(ctx)
	require.NoError(t, err)
}

// seedTraffic writes the traffic of the last few hours. Otherwise, the test would have to run for hours.
func seedTraffic(t *testing.T, db *honker.DB) {
	t.Helper()
	now := time.Now().Unix() / 60
	// The row with an empty name holds the totals of all queues.
	for q, name := range []string{"emails", "thumbnails", "webhooks", "invoices", ""} {
		for back := range int64(24 * 60) {
			swing := 1 + math.Sin(float64(back)/(9+3*float64(q)))
			acked := int64((40 - 8*float64(q%4)) * swing)
			if name == "" {
				acked *= 3
			}
			retried := int64(0)
			if q != 1 && back%17 < 3 {
				retried = acked / 4
			}
			died := int64(0)
			if q == 0 && back > 8 && back < 14 {
				died = 4
			}
			_, err := db.SQL().Exec(`INSERT OR REPLACE INTO _honkerx_minutes (minute, queue, enqueued, claimed, acked, retried, died, wait_ms, ran_ms, max_wait_ms)
				VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, now-back, name, acked+2, acked+retried, acked, retried, died, acked*14, acked*95, 120)
			require.NoError(t, err)
		}
	}
}
