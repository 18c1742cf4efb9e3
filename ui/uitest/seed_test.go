package uitest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
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
