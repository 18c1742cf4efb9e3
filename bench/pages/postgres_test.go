//go:build unix

package pages_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/bench/bigfile"
	"github.com/honker-go/honker/honkerpg"
	"github.com/honker-go/honker/internal/pgcluster"
	"github.com/honker-go/honker/ui"
)

// bigSchema fills a schema as package bigfile and fillUI fill a file. The parameters are the numbers of jobs and minutes.
var bigSchema = []struct {
	statement string
	n         func() int
}{
	{`INSERT INTO honker.job (queue, priority, run_at, created_at, payload, state, worker, lease_until, attempts, max_attempts)
SELECT 'queue-' || to_char(i % 500, 'FM000'), CASE WHEN i % 10 = 0 THEN i / 500 % 3 ELSE 0 END,
  now() - interval '2 hours' + i % 1000 * interval '1 second' + CASE WHEN i / 500 % 10 = 0 THEN interval '1000 days' ELSE '0' END, now() - interval '2 hours',
  '{"order":' || i || ',"to":"someone@example.org","subject":"Your order has been shipped","body":"it is on its way"}',
  (i % 1009 = 1)::int, CASE WHEN i % 1009 = 1 THEN 'w' END, CASE WHEN i % 1009 = 1 THEN now() + interval '1000 days' END, i % 2, 25
FROM generate_series(1, $1::bigint) i`, bigfile.Jobs},
	{`INSERT INTO honker.dead (id, queue, payload, priority, run_at, created_at, attempts, max_attempts, last_error, died_at)
SELECT i, 'queue-' || to_char(i % 500, 'FM000'), '{"order":' || i || ',"to":"someone@example.org"}', 0, now(), now(), 3, 3, 'no route to host ' || i,
  now() - i * 7919 % 100000 * interval '1 second' FROM generate_series($1::bigint + 1, $1::bigint * 11 / 10) i`, bigfile.Jobs},
	{`INSERT INTO honker.event (created_at, topic, key, payload)
SELECT now() - interval '2 hours', CASE WHEN i % 2 = 1 THEN 'orders' ELSE 'topic-' || i % 50 END, 'k' || i % 100, '{"order":' || i || '}' FROM generate_series(1, $1::bigint / 10) i`,
		bigfile.Jobs},
	{`INSERT INTO honker.minute (minute, queue, slot, enqueued, claimed, acked, retried, died, snoozed, wait_ms, ran_ms, max_wait_ms)
SELECT date_trunc('minute', now()) - m * interval '1 minute', CASE WHEN k = 100 THEN '' ELSE 'queue-' || to_char(k, 'FM000') END, 0, 9, 9, 7, 1, 1, 0, 90, 900, 20
FROM generate_series(0, $1::bigint - 1) m, generate_series(0, 100) k`, minutes},
}

// openPostgres starts a server and fills its database. Without a server the benchmark is skipped.
func openPostgres(b *testing.B) *honker.DB {
	b.Helper()
	c, err := pgcluster.Start("shared_buffers = 128MB", "synchronous_commit = on")
	if errors.Is(err, pgcluster.ErrNoServer) {
		b.Skip(err)
	}
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, c.Stop()) })
	db, err := honkerpg.Open(b.Context(), c.DSN(), nil)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, db.Close()) })
	for _, s := range bigSchema {
		_, err := db.SQL().Exec(s.statement, s.n())
		require.NoError(b, err)
	}
	_, err = db.SQL().Exec(`SELECT setval(pg_get_serial_sequence('honker.job', 'id'), $1::bigint * 11 / 10)`, bigfile.Jobs())
	require.NoError(b, err)
	settle(b, db.SQL())
	join(b, db)
	return db
}

// settle does the work of autovacuum in the first minutes.
func settle(b *testing.B, pool *sql.DB) {
	b.Helper()
	for _, table := range []string{"job", "dead", "event", "minute"} {
		_, err := pool.Exec(`VACUUM (ANALYZE) honker.` + table)
		require.NoError(b, err)
	}
}

// BenchmarkPostgres_Pages is BenchmarkUI_Pages on a server.
func BenchmarkPostgres_Pages(b *testing.B) {
	db := openPostgres(b)
	h := ui.New(db, &ui.Options{Authorize: ui.AllowAll})
	b.Cleanup(h.Close)
	benchPages(b, h)
	b.Run("scrape", func(b *testing.B) {
		for b.Loop() {
			scrape(b, db)
		}
		b.ReportMetric(float64(b.Elapsed().Microseconds())/1000/float64(b.N), "ms/scrape")
	})
}

// scrape collects the metrics of package honkerprom.
func scrape(b *testing.B, db *honker.DB) {
	b.Helper()
	ctx := b.Context()
	for name, read := range map[string]func(context.Context, *honker.DB) error{
		"Queues":    func(ctx context.Context, db *honker.DB) error { _, err := admin.Queues(ctx, db); return err },
		"Workers":   func(ctx context.Context, db *honker.DB) error { _, err := admin.Workers(ctx, db); return err },
		"List":      func(ctx context.Context, db *honker.DB) error { _, err := db.Scheduler().List(ctx); return err },
		"Leaders":   func(ctx context.Context, db *honker.DB) error { _, err := admin.Leaders(ctx, db); return err },
		"Consumers": func(ctx context.Context, db *honker.DB) error { _, err := admin.Consumers(ctx, db); return err },
		"Groups":    func(ctx context.Context, db *honker.DB) error { _, err := admin.Groups(ctx, db); return err },
		"Topics":    func(ctx context.Context, db *honker.DB) error { _, err := admin.Topics(ctx, db); return err },
		"Database":  func(ctx context.Context, db *honker.DB) error { _, err := admin.Database(ctx, db); return err },
		"Problems":  func(ctx context.Context, db *honker.DB) error { _, err := admin.Problems(ctx, db); return err },
	} {
		began := time.Now()
		require.NoError(b, read(ctx, db), name)
		b.ReportMetric(float64(time.Since(began).Microseconds())/1000, name+"-ms")
	}
}
