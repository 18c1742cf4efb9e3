package micro_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
)

// BenchmarkQueue_EnqueueUnique commits each job separately: without a key, with a free key, and
// with the key of another job. The file has 10,000 jobs with keys, and others without.
func BenchmarkQueue_EnqueueUnique(b *testing.B) {
	replace := &honker.Uniqueness{Conflict: honker.ReplaceWaiting}
	for _, c := range []struct {
		name   string
		option func(i int) []honker.EnqueueOption
	}{
		{"plain", func(int) []honker.EnqueueOption { return nil }},
		{"new", func(i int) []honker.EnqueueOption {
			return []honker.EnqueueOption{honker.Unique(fmt.Sprint("new", i), nil)}
		}},
		{"new-until-started", func(i int) []honker.EnqueueOption {
			return []honker.EnqueueOption{honker.Unique(fmt.Sprint("new", i), &honker.Uniqueness{Until: honker.UntilStarted})}
		}},
		{"existing", func(i int) []honker.EnqueueOption {
			return []honker.EnqueueOption{honker.Unique(fmt.Sprint("k", i%10_000), nil)}
		}},
		{"replaced", func(i int) []honker.EnqueueOption {
			return []honker.EnqueueOption{honker.Unique(fmt.Sprint("k", i%10_000), replace)}
		}},
		{"debounced", func(i int) []honker.EnqueueOption {
			return []honker.EnqueueOption{honker.Debounce(fmt.Sprint("k", i%10_000), time.Minute, time.Hour)}
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			q := keyedQueue(b, 10_000)
			b.ResetTimer()
			for i := range b.N {
				if _, err := q.Enqueue(context.Background(), onePayload, c.option(i)...); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkQueue_AckUnique claims and acks a job in two commits: plain jobs without any keys in the
// file, plain jobs next to jobs with keys, and jobs whose key is released.
func BenchmarkQueue_AckUnique(b *testing.B) {
	for _, c := range []struct {
		name  string
		keys  int
		keyed bool
	}{{"plain", 0, false}, {"plain-beside-keys", 1, false}, {"unique", 1, true}} {
		b.Run(c.name, func(b *testing.B) {
			q := keyedQueue(b, c.keys)
			ctx := context.Background()
			for i := range b.N {
				opts := []honker.EnqueueOption{honker.Priority(1)}
				if c.keyed {
					opts = append(opts, honker.Unique(fmt.Sprint("new", i), nil))
				}
				_, err := q.Enqueue(ctx, onePayload, opts...)
				require.NoError(b, err)
			}
			b.ResetTimer()
			for range b.N {
				jobs, err := q.Claim(ctx, "w", 1)
				if err != nil || len(jobs) != 1 {
					b.Fatal(err, len(jobs))
				}
				if err := jobs[0].Ack(ctx); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// keyedQueue returns a queue with jobs that have a key. Half of them keep it until their first
// claim.
func keyedQueue(b *testing.B, keys int) *honker.Queue[payload] {
	b.Helper()
	q := honker.NewQueue[payload](openBench(b, nil), "bench", nil)
	for i := range keys {
		u := &honker.Uniqueness{Until: honker.UniqueUntil(i % 2)}
		if keys == 1 {
			u.Until = honker.UntilStarted
		}
		_, err := q.Enqueue(b.Context(), onePayload, honker.Unique(fmt.Sprint("k", i), u))
		require.NoError(b, err)
	}
	return q
}
