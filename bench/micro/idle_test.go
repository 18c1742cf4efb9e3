//go:build unix

package micro_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
)

// BenchmarkWorker_Idle measures ten worked queues and a hundred listeners while nothing happens:
// CPU time as a share of a core, and writes to the file. An iteration takes a second. Use
// -benchtime 30x to get the figure.
func BenchmarkWorker_Idle(b *testing.B) {
	db := openBench(b, nil)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for i := range 10 {
		q := honker.NewQueue[payload](db, fmt.Sprintf("queue-%d", i), nil)
		wg.Go(func() {
			_ = q.Work(ctx, func(context.Context, *honker.Job[payload]) error { return nil }, nil)
		})
	}
	listen(b, db, 100)
	time.Sleep(2 * time.Second) // let everything become idle
	mark := walMark(b, db)
	cpu := cpuTime(b)
	b.ResetTimer()
	time.Sleep(time.Duration(b.N) * time.Second)
	b.StopTimer()
	b.ReportMetric(100*(cpuTime(b)-cpu).Seconds()/float64(b.N), "%core")
	writes := 0
	if walMark(b, db) != mark {
		writes = 1
	}
	b.ReportMetric(float64(writes), "wrote")
	cancel()
	wg.Wait()
}

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// walMark returns a value that changes with each write.
func walMark(b *testing.B, db *honker.DB) int64 {
	var path string
	require.NoError(b, db.SQL().QueryRow("SELECT file FROM pragma_database_list WHERE name = 'main'").Scan(&path))
	info, err := os.Stat(path + "-wal")
	require.NoError(b, err)
	return info.Size() + info.ModTime().UnixNano()
}

// BenchmarkWorker_Memory measures how much the process grows while a backlog is enqueued and
// worked. Use -benchtime 1000000x to get the figure.
func BenchmarkWorker_Memory(b *testing.B) {
	db := openBench(b, nil)
	q := honker.NewQueue[payload](db, "bench", nil)
	workSome(b, q, 10_000) // fill caches and open connections
	before := residentBytes(b)
	b.ResetTimer()
	workSome(b, q, b.N)
	b.StopTimer()
	b.ReportMetric(float64(residentBytes(b)-before)/(1<<20), "RSS-growth-MB")
}

func workSome(b *testing.B, q *honker.Queue[payload], n int) {
	const batch = 1000
	jobs := make([]payload, batch)
	for i := range jobs {
		jobs[i] = onePayload
	}
	for left := n; left > 0; left -= batch {
		_, err := q.EnqueueMany(context.Background(), jobs[:min(batch, left)])
		require.NoError(b, err)
	}
	workOff(b, q, n)
}
