package micro_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
)

// BenchmarkFiles measures the descriptors, resident memory and goroutines of a hundred files in a
// process: when open, while a Work with two workers waits, and after twenty jobs whose handler
// publishes an event. Use -benchtime 1x to get the figures of docs/guide/files.md.
func BenchmarkFiles(b *testing.B) {
	const files, jobs = 100, 20
	if runtime.GOOS != "linux" {
		b.Skip("only Linux tells what a process has")
	}
	for range b.N {
		before := costs(b)
		report := func(stage string) {
			now := costs(b)
			for unit, n := range now {
				b.ReportMetric((n-before[unit])/files, unit+"/file-"+stage)
			}
		}
		dbs := make([]*honker.DB, files)
		for i := range dbs {
			var err error
			dbs[i], err = honker.Open(b.Context(), filepath.Join(b.TempDir(), fmt.Sprintf("%d.db", i)), nil)
			require.NoError(b, err)
		}
		report("opened")

		ctx, stop := context.WithCancel(b.Context())
		var working sync.WaitGroup
		var done atomic.Int64
		for _, db := range dbs {
			events := honker.NewStream[int](db, "events", nil)
			working.Go(func() {
				_ = honker.NewQueue[int](db, "jobs", nil).Work(ctx, func(ctx context.Context, job *honker.Job[int]) error {
					_, err := events.Publish(ctx, job.Args)
					done.Add(1)
					return err
				}, &honker.WorkOptions{Workers: 2})
			})
		}
		time.Sleep(2 * time.Second) // until all are waiting
		report("waiting")

		for n := range jobs {
			for _, db := range dbs {
				_, err := honker.NewQueue[int](db, "jobs", nil).Enqueue(ctx, n)
				require.NoError(b, err)
			}
		}
		for done.Load() < files*jobs {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		report("worked")

		stop()
		working.Wait()
		for _, db := range dbs {
			require.NoError(b, db.Close())
		}
	}
}

// costs returns the current resource usage of this process.
func costs(b *testing.B) map[string]float64 {
	debug.FreeOSMemory()
	open, err := os.ReadDir("/proc/self/fd")
	require.NoError(b, err)
	memory, err := os.ReadFile("/proc/self/statm")
	require.NoError(b, err)
	pages, err := strconv.Atoi(string(bytes.Fields(memory)[1]))
	require.NoError(b, err)
	return map[string]float64{
		"fds": float64(len(open)), "MiB": float64(pages*os.Getpagesize()) / (1 << 20), "goroutines": float64(runtime.NumGoroutine()),
	}
}
