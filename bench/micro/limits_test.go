package micro_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
)

// BenchmarkLimits_Behind claims and acks single jobs in a queue with a limit per key, compared with
// a queue without limits. It does so without held jobs, and with 20,000 jobs held for a key at its
// limit.
func BenchmarkLimits_Behind(b *testing.B) {
	for _, held := range []int{0, 20_000} {
		for _, key := range []string{"", "quiet"} {
			name := map[int]string{0: "held=0", 20_000: "held=20k"}[held] + map[bool]string{true: ",key"}[key != ""]
			b.Run(name, func(b *testing.B) {
				plain, limited := openBench(b, nil), openBench(b, nil)
				holdJobs(b, limited, held)
				var opts []honker.EnqueueOption
				if key != "" {
					opts = append(opts, honker.Key(key))
				}
				alternate(b, 200, claimAck(b, plain), claimAck(b, limited, opts...))
			})
		}
	}
}

// holdJobs limits the queue to a single running job per key. A job runs, and n jobs are held for
// its key.
func holdJobs(b *testing.B, db *honker.DB, n int) {
	b.Helper()
	ctx := context.Background()
	q := honker.NewQueue[payload](db, "bench", nil)
	require.NoError(b, q.SetLimits(ctx, honker.Limits{PerKey: 1}))
	if n == 0 {
		return
	}
	_, err := q.EnqueueMany(ctx, slices.Repeat([]payload{onePayload}, n+1), honker.Key("busy"))
	require.NoError(b, err)
	jobs, err := q.Claim(ctx, "other", 1)
	require.NoError(b, err)
	require.Len(b, jobs, 1)
	for {
		counts, err := q.Stats(ctx)
		require.NoError(b, err)
		if counts.Held.N == int64(n) {
			return
		}
		jobs, err := q.Claim(ctx, "other", 1)
		require.NoError(b, err)
		require.Empty(b, jobs)
	}
}
