package honkerotel_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerotel"
	"github.com/honker-go/honker/internal/testkit"
)

// The events of this process are counted and measured.
func TestMetrics_Process(t *testing.T) {
	db, tel, sdk := instrumented(t, honkerotel.Options{QueueLabel: func(queue string) string { return strings.TrimRight(queue, "-0123456789") }})
	ctx := t.Context()
	for _, name := range []string{"tenant-1", "tenant-2"} {
		q := honker.NewQueue[int](db, name, nil)
		_, err := q.EnqueueMany(ctx, []int{1, 2})
		require.NoError(t, err)
		for range 2 {
			_, err = q.Enqueue(ctx, 3, honker.Unique("k", nil)) // the second enqueue finds the first job
			require.NoError(t, err)
		}
		_, err = q.WorkDue(ctx, testkit.Succeed[int], &honker.WorkOptions{Middleware: []honker.Middleware{tel.Middleware}})
		require.NoError(t, err)
	}
	testkit.PublishUpTo(t, honker.NewStream[int](db, "audit", nil), 3)

	by := []attribute.Key{semconv.MessagingOperationNameKey, semconv.MessagingDestinationNameKey}
	require.Equal(t, map[string]float64{"enqueue tenant ": 6, "publish audit ": 3}, sdk.points(t, "messaging.client.sent.messages", by...))
	require.Equal(t, map[string]float64{"claim tenant ": 6}, sdk.points(t, "messaging.client.consumed.messages", by...))
	require.Equal(t, map[string]float64{"process tenant ": 6}, sdk.points(t, "messaging.process.duration", by...))
	require.Equal(t, map[string]float64{" tenant ": 6}, sdk.points(t, "honker.job.wait", by...))
	operations := sdk.points(t, "messaging.client.operation.duration", by...)
	require.Positive(t, operations["claim tenant "])
	delete(operations, "claim tenant ")
	require.Equal(t, map[string]float64{"enqueue tenant ": 6, "publish audit ": 1}, operations)
}

// The state of the database is read at each collection until stop is called.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, tel, sdk := instrumented(t, honkerotel.Options{QueueLabel: func(queue string) string { return queue[:1] }})
		stop, err := tel.Watch(db)
		require.NoError(t, err)
		for _, name := range []string{"mails", "many"} {
			testkit.Enqueue(t, honker.NewQueue[int](db, name, nil), 1)
			time.Sleep(time.Second)
		}
		orders := honker.NewStream[int](db, "orders", nil)
		testkit.PublishUpTo(t, orders, 10)
		_, err = orders.SaveOffset(t.Context(), "audit", 4)
		require.NoError(t, err)
		jobs := sdk.points(t, "honker.queue.jobs", semconv.MessagingDestinationNameKey, "honker.phase")
		require.EqualValues(t, 2, jobs["m ready "])
		require.Contains(t, jobs, "m dead ")
		require.Equal(t, map[string]float64{"m ": 2}, sdk.points(t, "honker.queue.oldest_ready.age", semconv.MessagingDestinationNameKey))
		require.Equal(t, map[string]float64{"orders audit ": 6},
			sdk.points(t, "honker.consumer.lag", semconv.MessagingDestinationNameKey, semconv.MessagingConsumerGroupNameKey))
		require.NoError(t, stop())
		require.Empty(t, sdk.points(t, "honker.queue.jobs"))
	})
}
