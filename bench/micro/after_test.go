package micro_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
)

// BenchmarkAfter_FanIn works jobs that another job waits for, and reports the time per ack. The
// total is linear if this time does not depend on n. Plain jobs are measured with and without a
// waiting job.
func BenchmarkAfter_FanIn(b *testing.B) {
	for _, n := range []int{1_000, 5_000, 20_000} {
		for _, kind := range []string{"plain", "plain-beside", "after", "batch"} {
			if kind == "after" && n > 10_000 {
				continue // above the limit of After
			}
			b.Run(fmt.Sprint(kind, "/", n), func(b *testing.B) {
				for range b.N {
					b.StopTimer()
					q, ids := fanIn(b, kind, n)
					b.StartTimer()
					ackJobs(b, q, n)
					b.StopTimer()
					if kind == "after" || kind == "batch" {
						jobs, err := q.Claim(context.Background(), "last", 2)
						require.NoError(b, err)
						require.Len(b, jobs, 1)
						require.Len(b, jobs[0].After(), len(ids))
						b.StartTimer()
						require.NoError(b, jobs[0].Ack(context.Background()))
						b.StopTimer()
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/member")
			})
		}
	}
}

// fanIn returns a queue with n jobs and a job that waits for all of them.
func fanIn(b *testing.B, kind string, n int) (*honker.Queue[payload], []int64) {
	b.Helper()
	ctx := context.Background()
	db := openBench(b, nil)
	q := honker.NewQueue[payload](db, "bench", nil)
	var opts []honker.EnqueueOption
	var batch *honker.Batch
	if kind == "batch" {
		var err error
		batch, err = db.NewBatch(ctx, nil)
		require.NoError(b, err)
		opts = append(opts, honker.InBatch(batch.ID))
	}
	ids, err := q.EnqueueMany(ctx, make([]payload, n), opts...)
	require.NoError(b, err)
	switch kind {
	case "plain-beside":
		later, err := q.Enqueue(ctx, onePayload, honker.Priority(-1))
		require.NoError(b, err)
		_, err = q.Enqueue(ctx, onePayload, honker.After(later))
		require.NoError(b, err)
	case "after":
		_, err = q.Enqueue(ctx, onePayload, honker.After(ids...))
	case "batch":
		require.NoError(b, batch.Seal(ctx))
		_, err = q.Enqueue(ctx, onePayload, honker.AfterBatch(batch.ID))
	}
	require.NoError(b, err)
	return q, ids
}

// ackJobs claims and acks n jobs, 100 at a time.
func ackJobs(b *testing.B, q *honker.Queue[payload], n int) {
	ctx := context.Background()
	for n > 0 {
		jobs, err := q.Claim(ctx, "w", min(n, 100))
		if err != nil {
			b.Fatal(err)
		}
		ids := make([]int64, len(jobs))
		for i, j := range jobs {
			ids[i] = j.ID
		}
		acked, err := q.AckMany(ctx, "w", ids)
		if err != nil || acked != len(ids) || acked == 0 {
			b.Fatal(acked, err)
		}
		n -= acked
	}
}
