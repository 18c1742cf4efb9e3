package micro_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/honker-go/honker"
)

// The benchmarks alternate with a raw driver loop on the same schema and report the ratio, because
// machines differ and their speed varies over time.

// payload has 103 bytes of JSON, like that of a small real job.
type payload struct {
	To, Subject, Body string
}

var onePayload = payload{"someone@example.org", "Your order has been shipped", "it is on its way, number 4711"}

func openBench(b *testing.B, opts *honker.Options) *honker.DB {
	b.Helper()
	db, err := honker.Open(b.Context(), filepath.Join(b.TempDir(), "ours.db"), opts)
	require.NoError(b, err)
	b.Cleanup(func() { _ = db.Close() })
	return db
}

// raw is the ceiling: a single connection of the driver with prepared statements.
type raw struct {
	b    *testing.B
	conn *sql.Conn
}

func openRaw(b *testing.B) *raw {
	b.Helper()
	path := filepath.Join(b.TempDir(), "raw.db")
	db, err := honker.Open(b.Context(), path, nil) // creates the schema
	require.NoError(b, err)
	require.NoError(b, db.Close())
	pool, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=busy_timeout(5000)&_txlock=immediate")
	require.NoError(b, err)
	conn, err := pool.Conn(context.Background())
	require.NoError(b, err)
	b.Cleanup(func() { _ = conn.Close(); _ = pool.Close() })
	return &raw{b, conn}
}

func (r *raw) prepare(query string) *sql.Stmt {
	s, err := r.conn.PrepareContext(context.Background(), query)
	require.NoError(r.b, err)
	return s
}

func (r *raw) exec(s *sql.Stmt, args ...any) {
	if _, err := s.ExecContext(context.Background(), args...); err != nil {
		r.b.Fatal(err)
	}
}

const (
	rawColumns = `INSERT INTO _honker_live (queue, payload, priority, run_at, max_attempts, created_at) VALUES `
	rawRow     = `(?, ?, ?, ?, ?, ?)`
)

func rawText(b *testing.B) string {
	text, err := json.Marshal(onePayload)
	require.NoError(b, err)
	return string(text)
}

// compare alternates between ceiling and ours in turns of a few dozen milliseconds. It reports ours
// as ns/op and the median of the ratios.
func compare(b *testing.B, turn int, ceiling, ours func(n int)) {
	ceiling(min(turn, 10)) // warm up
	ours(min(turn, 10))
	var ratios []float64
	var spent time.Duration
	b.ResetTimer()
	for left := b.N; left > 0; left -= turn {
		n := min(turn, left)
		c := timed(ceiling, n)
		o := timed(ours, n)
		spent += o
		ratios = append(ratios, float64(c)/float64(o))
	}
	reportRatios(b, spent, ratios)
}

func reportRatios(b *testing.B, spent time.Duration, ratios []float64) {
	slices.Sort(ratios)
	b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N), "ns/op")
	b.ReportMetric(float64(b.N)/spent.Seconds(), "jobs/s")
	b.ReportMetric(ratios[len(ratios)/2], "x-raw")
}

func timed(f func(int), n int) time.Duration {
	start := time.Now()
	f(n)
	return time.Since(start)
}

// BenchmarkQueue_Enqueue commits each job separately, compared with a raw INSERT.
func BenchmarkQueue_Enqueue(b *testing.B) {
	for _, callers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) { benchEnqueue(b, callers) })
	}
}

func benchEnqueue(b *testing.B, callers int) {
	r, db := openRaw(b), openBench(b, nil)
	insert, text := r.prepare(rawColumns+rawRow), rawText(b)
	q := honker.NewQueue[payload](db, "bench", nil)
	ctx := context.Background()
	one := func() {
		if _, err := q.Enqueue(ctx, onePayload); err != nil {
			b.Error(err)
		}
	}
	compare(b, 1000,
		func(n int) {
			for range n {
				now := time.Now().Unix()
				r.exec(insert, "bench", text, 0, now, 3, now)
			}
		},
		func(n int) { spread(callers, n, one) })
}

// spread calls f n times from several goroutines.
func spread(goroutines, n int, f func()) {
	if goroutines == 1 {
		for range n {
			f()
		}
		return
	}
	var left atomic.Int64
	left.Store(int64(n))
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				f()
			}
		})
	}
	wg.Wait()
}

// BenchmarkQueue_EnqueueMany commits jobs in batches, compared with raw INSERTs.
func BenchmarkQueue_EnqueueMany(b *testing.B) {
	const size = 1000
	r, db := openRaw(b), openBench(b, nil)
	insert := r.prepare(rawColumns + strings.TrimSuffix(strings.Repeat(rawRow+",", size), ","))
	text := rawText(b)
	q := honker.NewQueue[payload](db, "bench", nil)
	jobs := slices.Repeat([]payload{onePayload}, size)
	compare(b, 10*size,
		func(n int) {
			for ; n > 0; n -= size {
				now := time.Now().Unix()
				args := make([]any, 0, 6*size)
				for range size {
					args = append(args, "bench", text, 0, now, 3, now)
				}
				r.exec(insert, args...)
			}
		},
		func(n int) {
			for ; n > 0; n -= size {
				if _, err := q.EnqueueMany(context.Background(), jobs); err != nil {
					b.Fatal(err)
				}
			}
		})
}

// BenchmarkQueue_EnqueueTx inserts a business row and a job in a transaction. It is compared with
// raw statements and with a bare *sql.Tx, for which database/sql starts a goroutine.
func BenchmarkQueue_EnqueueTx(b *testing.B) {
	b.Run("raw", func(b *testing.B) {
		r := openRaw(b)
		begin, commit := r.prepare("BEGIN IMMEDIATE"), r.prepare("COMMIT")
		order, insert := r.pair()
		benchEnqueueTx(b, func(text string) {
			now := time.Now().Unix()
			r.exec(begin)
			r.exec(order, "c", 100)
			r.exec(insert, "bench", text, 0, now, 3, now)
			r.exec(commit)
		})
	})
	b.Run("database-sql", func(b *testing.B) {
		r := openRaw(b)
		order, insert := r.pair()
		benchEnqueueTx(b, func(text string) {
			now := time.Now().Unix()
			tx, err := r.conn.BeginTx(context.Background(), nil)
			require.NoError(b, err)
			r.exec(tx.Stmt(order), "c", 100)
			r.exec(tx.Stmt(insert), "bench", text, 0, now, 3, now)
			require.NoError(b, tx.Commit())
		})
	})
}

const (
	business      = `CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT, total INTEGER)`
	businessOrder = `INSERT INTO orders (customer, total) VALUES (?, ?)`
)

func (r *raw) pair() (order, insert *sql.Stmt) {
	r.exec(r.prepare(business))
	return r.prepare(businessOrder), r.prepare(rawColumns + rawRow)
}

func benchEnqueueTx(b *testing.B, ceiling func(text string)) {
	db := openBench(b, nil)
	_, err := db.SQL().Exec(business)
	require.NoError(b, err)
	q := honker.NewQueue[payload](db, "bench", nil)
	text := rawText(b)
	ours := func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, businessOrder, "c", 100); err != nil {
			return err
		}
		_, err := q.EnqueueTx(ctx, tx, onePayload)
		return err
	}
	compare(b, 1000,
		func(n int) {
			for range n {
				ceiling(text)
			}
		},
		func(n int) {
			for range n {
				if err := db.Tx(context.Background(), ours); err != nil {
					b.Fatal(err)
				}
			}
		})
}

func residentBytes(b *testing.B) int64 {
	runtime.GC()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Skip("no /proc here")
	}
	for line := range strings.Lines(string(status)) {
		var kb int64
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kb); n == 1 {
			return kb << 10
		}
	}
	b.Fatal("no VmRSS")
	return 0
}
