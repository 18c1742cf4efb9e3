package micro_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
)

const (
	// The simplest possible claim, on the indexes of a new file: it ignores overdue jobs and takes
	// a single priority.
	rawClaim = `UPDATE _honker_live SET state = 'processing', worker_id = 'raw', claim_expires_at = ?1, attempts = attempts + 1
WHERE id IN (SELECT id FROM _honker_live INDEXED BY _honkerx_live_pending
  WHERE queue = 'bench' AND state = 'pending' AND priority = 0 AND run_at <= ?2 AND attempts < max_attempts LIMIT 128)
RETURNING id, payload, priority, run_at, attempts, max_attempts, created_at, expires_at`
	rawAck = `DELETE FROM _honker_live WHERE id IN (SELECT value FROM json_each(?1)) AND worker_id = 'raw' AND claim_expires_at >= ?2`
)

// burn returns the raw loop, which acks a batch and claims the next in a single transaction.
func (r *raw) burn() func(n int) {
	begin, commit := r.prepare("BEGIN IMMEDIATE"), r.prepare("COMMIT")
	claim, ack := r.prepare(rawClaim), r.prepare(rawAck)
	return func(n int) {
		held := "[]"
		for done := 0; ; {
			now := time.Now().Unix()
			r.exec(begin)
			r.exec(ack, held, now)
			ids := r.ids(claim, now+30, now)
			r.exec(commit)
			if done += len(ids); len(ids) == 0 || done > n {
				return
			}
			held = jsonIDs(ids)
		}
	}
}

func (r *raw) ids(s *sql.Stmt, args ...any) (ids []int64) {
	rows, err := s.QueryContext(context.Background(), args...)
	require.NoError(r.b, err)
	defer rows.Close()
	for rows.Next() {
		var id, priority, runAt, attempts, maxAttempts, createdAt int64
		var expiresAt sql.NullInt64
		var payload string
		if err := rows.Scan(&id, &payload, &priority, &runAt, &attempts, &maxAttempts, &createdAt, &expiresAt); err != nil {
			r.b.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

func jsonIDs(ids []int64) string {
	out := []byte{'['}
	for i, id := range ids {
		if i > 0 {
			out = append(out, ',')
		}
		out = fmt.Append(out, id)
	}
	return string(append(out, ']'))
}

const fill = `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
INSERT INTO _honker_live (queue, payload, run_at, created_at) SELECT 'bench', ?2, unixepoch() - 10, unixepoch() FROM n`

// BenchmarkQueue_Work works a backlog with a no-op handler.
func BenchmarkQueue_Work(b *testing.B) {
	r, db := openRaw(b), openBench(b, nil)
	text := rawText(b)
	turn := 100_000
	rawFill := r.prepare(fill)
	burn := r.burn()
	q := honker.NewQueue[payload](db, "bench", nil)
	var ratios []float64
	var spent time.Duration
	b.ResetTimer()
	for left := b.N; left > 0; left -= turn {
		n := min(turn, left)
		r.exec(rawFill, n, text)
		_, err := db.SQL().Exec(fill, n, text)
		require.NoError(b, err)
		c := timed(burn, n)
		o := timed(func(n int) { workOff(b, q, n) }, n)
		spent += o
		ratios = append(ratios, float64(c)/float64(o))
	}
	reportRatios(b, spent, ratios)
}

// workOff runs n jobs with eight workers and waits for the last ack.
func workOff(b *testing.B, q *honker.Queue[payload], n int) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var ran atomic.Int64
	err := q.Work(ctx, func(context.Context, *honker.Job[payload]) error {
		if ran.Add(1) == int64(n) {
			cancel()
		}
		return nil
	}, &honker.WorkOptions{Workers: 8})
	require.NoError(b, err)
	require.EqualValues(b, n, ran.Load())
}

// BenchmarkQueue_ClaimAck shows that the cost of a claim does not depend on the other jobs in the
// file.
func BenchmarkQueue_ClaimAck(b *testing.B) {
	shapes := []struct{ name, fill string }{
		{"empty", ``},
		{"due=100k", `INSERT INTO _honker_live (queue, payload, run_at) SELECT 'bench', '{}', unixepoch() - 5 FROM n`},
		{"inflight=50k", `INSERT INTO _honker_live (queue, payload, state, worker_id, claim_expires_at, attempts, run_at)
SELECT 'bench', '{}', 'processing', 'other', unixepoch() + 10000, 1, unixepoch() - 50 FROM n LIMIT 50000`},
		{"delayed=100k", `INSERT INTO _honker_live (queue, payload, priority, run_at) SELECT 'bench', '{}', 9, unixepoch() + 10000 FROM n`},
		{"dead=1M", `INSERT INTO _honker_dead (id, queue, payload) SELECT i + 1000000000, 'bench', '{}' FROM n`},
	}
	for _, shape := range shapes {
		b.Run(shape.name, func(b *testing.B) {
			base, db := openBench(b, nil), openBench(b, nil)
			if shape.fill != "" {
				limit := 100_000
				if shape.name == "dead=1M" {
					limit = 1_000_000
				}
				_, err := db.SQL().Exec(fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) `, limit) + shape.fill)
				require.NoError(b, err)
			}
			compare(b, 200, claimAck(b, base), claimAck(b, db))
		})
	}
}

// claimAck enqueues n jobs that precede all others, and claims and acks each.
func claimAck(b *testing.B, db *honker.DB, opts ...honker.EnqueueOption) func(n int) {
	q := honker.NewQueue[payload](db, "bench", nil)
	ctx := context.Background()
	return func(n int) {
		_, err := q.EnqueueMany(ctx, slices.Repeat([]payload{onePayload}, n), append(opts, honker.Priority(5))...)
		require.NoError(b, err)
		for range n {
			jobs, err := q.Claim(ctx, "bench", 1)
			if err != nil || len(jobs) != 1 {
				b.Fatal(err, len(jobs))
			}
			if err := jobs[0].Ack(ctx); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkWorker_Wake measures the latency to the handler of an idle worker: from the call of
// Enqueue, and from its return, when the job is committed.
func BenchmarkWorker_Wake(b *testing.B) {
	db := openBench(b, nil)
	q := honker.NewQueue[int](db, "bench", nil)
	started := make(chan time.Time, 1)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		done <- q.Work(ctx, func(context.Context, *honker.Job[int]) error {
			started <- time.Now()
			return nil
		}, nil)
	}()
	benchWake(b, q, func() time.Time { return <-started })
	cancel()
	require.NoError(b, <-done)
}

func benchWake(b *testing.B, q *honker.Queue[int], started func() time.Time) {
	var fromCall, fromCommit []time.Duration
	b.ResetTimer()
	for i := range b.N {
		time.Sleep(5 * time.Millisecond) // let the worker go to sleep
		called := time.Now()
		_, err := q.Enqueue(context.Background(), i)
		require.NoError(b, err)
		committed := time.Now()
		start := started()
		fromCall = append(fromCall, start.Sub(called))
		fromCommit = append(fromCommit, max(0, start.Sub(committed)))
	}
	b.StopTimer()
	reportQuantiles(b, "call", fromCall)
	reportQuantiles(b, "commit", fromCommit)
}

func reportQuantiles(b *testing.B, from string, took []time.Duration) {
	slices.Sort(took)
	at := func(q float64) float64 { return float64(took[int(q*float64(len(took)-1))].Microseconds()) }
	b.ReportMetric(at(0.5), from+"-p50-µs")
	b.ReportMetric(at(0.99), from+"-p99-µs")
}

// BenchmarkNotify_Listeners measures a commit that concerns none of many listeners.
func BenchmarkNotify_Listeners(b *testing.B) {
	one, many := openBench(b, nil), openBench(b, nil)
	listen(b, one, 1)
	listen(b, many, 1000)
	notify := func(db *honker.DB) func(int) {
		return func(n int) {
			for range n {
				if _, err := db.Notify(context.Background(), "elsewhere", 1); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	compare(b, 500, notify(one), notify(many))
}

// BenchmarkNotify_Beside measures the latency of a message to a hundred listeners of a channel,
// sent after a thousand messages to a channel without listeners. Another channel has no listeners
// or 20,000.
func BenchmarkNotify_Beside(b *testing.B) {
	for _, others := range []int{0, 20_000} {
		b.Run(fmt.Sprint("others=", others), func(b *testing.B) {
			db := openBench(b, nil)
			got := make(chan struct{}, 100)
			for range cap(got) {
				l, err := db.Listen(context.Background(), "mine")
				require.NoError(b, err)
				go func() {
					for range l.All(context.Background()) {
						got <- struct{}{}
					}
				}()
			}
			listen(b, db, others)
			for b.Loop() {
				for i := range 1001 {
					channel := "elsewhere"
					if i == 1000 {
						channel = "mine"
					}
					_, err := db.Notify(context.Background(), channel, 1)
					require.NoError(b, err)
				}
				for range cap(got) {
					<-got
				}
			}
		})
	}
}

func listen(b *testing.B, db *honker.DB, n int) {
	for i := range n {
		l, err := db.Listen(context.Background(), fmt.Sprintf("channel-%d", i))
		require.NoError(b, err)
		go func() {
			for range l.All(context.Background()) {
			}
		}()
	}
	time.Sleep(50 * time.Millisecond) // until they sleep
}
