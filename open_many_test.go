package honker_test

import (
	"context"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

// requirePerFile waits until each file has at most most goroutines. Goroutines that existed before, and the
// few that all files of a process share, are not counted.
func requirePerFile(t *testing.T, what string, before, files, most int) {
	t.Helper()
	testkit.Eventually(t, testkit.Timeout, what, func() bool { return runtime.NumGoroutine()-before <= files*most+5 })
}

// An open file has a single goroutine, and a second goroutine while a worker loop waits on it, besides the
// goroutine that called Work. The same holds after jobs have run. The test is not parallel because it
// counts all goroutines.
func TestOpen_Many_Goroutines(t *testing.T) {
	const files = 30
	before, dir := runtime.NumGoroutine(), t.TempDir()
	var queues []*honker.Queue[int]
	for i := range files {
		db, err := honker.Open(t.Context(), filepath.Join(dir, strconv.Itoa(i)), &honker.Options{NoTraffic: true})
		require.NoError(t, err)
		defer db.Close()
		queues = append(queues, honker.NewQueue[int](db, "jobs", nil))
	}
	requirePerFile(t, "one for each open file", before, files, 1)
	done := make(chan struct{}, files)
	for _, q := range queues {
		testkit.Work(t, q, func(context.Context, *honker.Job[int]) error { done <- struct{}{}; return nil },
			&honker.WorkOptions{Workers: 1, Lease: time.Second})
	}
	testkit.Eventually(t, testkit.Timeout, "the loops wait", func() bool { return runtime.NumGoroutine()-before >= files*3 })
	requirePerFile(t, "two more for each loop that waits", before, files, 3)
	for _, q := range queues {
		testkit.Enqueue(t, q, 1)
	}
	for range files {
		<-done
	}
	requirePerFile(t, "and no more once it has worked", before, files, 3)
}
