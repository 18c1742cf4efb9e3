//go:build unix

package micro_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerpg"
	"github.com/honker-go/honker/internal/pgcluster"
)

// openPostgres starts a server that does not wait for the disk, and opens a DB and a pool for the ceiling.
func openPostgres(b *testing.B) (*honker.DB, *pgxpool.Pool) {
	b.Helper()
	cluster, err := pgcluster.Start()
	if errors.Is(err, pgcluster.ErrNoServer) {
		b.Skip(err)
	}
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, cluster.Stop()) })
	pool, err := pgxpool.New(b.Context(), cluster.DSN())
	require.NoError(b, err)
	b.Cleanup(pool.Close)
	_, err = pool.Exec(b.Context(), `CREATE TABLE public.raw_job (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload text NOT NULL)`)
	require.NoError(b, err)
	db, err := honkerpg.Open(b.Context(), cluster.DSN(), &honkerpg.Options{Options: honker.Options{Logger: slog.New(slog.DiscardHandler)}})
	require.NoError(b, err)
	b.Cleanup(func() { _ = db.Close() })
	return db, pool
}

// BenchmarkPostgres_Enqueue commits each job separately, compared with an INSERT of pgx.
func BenchmarkPostgres_Enqueue(b *testing.B) {
	db, pool := openPostgres(b)
	q := honker.NewQueue[payload](db, "bench", nil)
	text := rawText(b)
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			compare(b, 1000,
				concurrently(b, callers, func(ctx context.Context) error {
					return pool.QueryRow(ctx, `INSERT INTO public.raw_job (payload) VALUES ($1) RETURNING id`, text).Scan(new(int64))
				}),
				concurrently(b, callers, func(ctx context.Context) error {
					_, err := q.Enqueue(ctx, onePayload)
					return err
				}))
		})
	}
}

// concurrently returns a function that calls f n times, from several goroutines.
func concurrently(b *testing.B, callers int, f func(ctx context.Context) error) func(n int) {
	return func(n int) {
		var next atomic.Int64
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				for next.Add(1) <= int64(n) {
					if err := f(b.Context()); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
	}
}

// BenchmarkPostgres_Work works a backlog with a no-op handler and eight workers.
func BenchmarkPostgres_Work(b *testing.B) {
	db, _ := openPostgres(b)
	q := honker.NewQueue[payload](db, "bench", nil)
	for left := b.N; left > 0; left -= 1000 {
		_, err := q.EnqueueMany(b.Context(), make([]payload, min(1000, left)))
		require.NoError(b, err)
	}
	b.ResetTimer()
	workOff(b, q, b.N)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}
