package interop_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// collect starts a worker that sends the arguments of its jobs to done.
func collect(t *testing.T, q *honker.Queue[int], opts *honker.WorkOptions) (done <-chan int, stop func() error) {
	t.Helper()
	ran := make(chan int, 10_000)
	return ran, testkit.Work(t, q, func(_ context.Context, job *honker.Job[int]) error {
		ran <- job.Args
		return nil
	}, opts)
}

// take receives n values and fails the test if they do not arrive in time.
func take[T any](t *testing.T, from <-chan T, n int) (all []T) {
	t.Helper()
	for range n {
		select {
		case v := <-from:
			all = append(all, v)
		case <-time.After(later):
			t.Fatalf("received %d of %d values", len(all), n)
		}
	}
	return all
}

// upTo returns the numbers from 0 to n-1.
func upTo(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// Workers in Go run jobs enqueued by Python, and workers in Python run jobs enqueued by Go. Each
// enqueue wakes the waiting worker, and the order is kept.
func TestInterop_Queue_Feed(t *testing.T) {
	path, db := testkit.OpenShared(t)
	q := honker.NewQueue[int](db, "jobs", nil)
	caller := readyPeer(t, path, "answer")

	ran, stop := collect(t, q, &honker.WorkOptions{Workers: 1})
	for i := range 50 {
		caller.call("enqueue", "jobs", i)
	}
	require.Equal(t, upTo(50), take(t, ran, 50))
	require.NoError(t, stop())

	worker := readyPeer(t, path, "work", "jobs", "python", "60")
	for i := range 50 {
		testkit.Enqueue(t, q, i)
	}
	require.Equal(t, upTo(50), worker.numbers(50))
	require.Empty(t, worker.End(), "each was acked by its holder")
	require.Zero(t, testkit.QueryInt(t, db.SQL(), testkit.CountJobs))
}

// Two Python workers and two Go workers share a queue, and each job runs once.
func TestInterop_Queue_MixedWorkers(t *testing.T) {
	const jobs = 600
	path, db := testkit.OpenShared(t)
	q := honker.NewQueue[int](db, "jobs", nil)
	one, two := readyPeer(t, path, "work", "jobs", "python 1", "60"), readyPeer(t, path, "work", "jobs", "python 2", "60")
	ran, stop := collect(t, q, &honker.WorkOptions{Workers: 2})
	ctx := testkit.Context(t, later)
	var feeders sync.WaitGroup
	feeders.Go(func() {
		for i := range jobs / 2 {
			if _, err := q.Enqueue(ctx, i); err != nil {
				t.Errorf("enqueue: %v", err)
			}
		}
	})
	caller := readyPeer(t, path, "answer")
	for i := jobs / 2; i < jobs; i++ {
		caller.call("enqueue", "jobs", i)
	}
	feeders.Wait()
	testkit.Eventually(t, later, "the queue is empty", func() bool {
		return testkit.QueryInt(t, db.SQL(), testkit.CountJobs) == 0
	})
	require.NoError(t, stop())

	all := take(t, ran, len(ran))
	for _, p := range []*peer{one, two} {
		for _, line := range p.End() {
			var n int
			_, err := fmt.Sscan(line, &n)
			require.NoError(t, err, line)
			all = append(all, n)
		}
	}
	slices.Sort(all)
	require.Equal(t, upTo(jobs), all)
}

// When a process is killed, the other language gets its job after the lease has expired.
func TestInterop_Queue_Kill(t *testing.T) {
	path, db := testkit.OpenShared(t)
	q := honker.NewQueue[int](db, "jobs", nil)

	testkit.Enqueue(t, q, 1)
	killed := startPeer(t, path, "hold", "jobs", "python", "2")
	require.Equal(t, "held 1", killed.Line(soon))
	killed.Kill()
	ran, stop := collect(t, q, nil)
	require.Equal(t, []int{1}, take(t, ran, 1))
	require.NoError(t, stop())

	testkit.Enqueue(t, q, 2)
	child := testkit.StartChild(t, "hold", path)
	require.Equal(t, "held 2", child.Line(soon))
	child.Kill()
	worker := readyPeer(t, path, "work", "jobs", "python", "60")
	require.Equal(t, []int{2}, worker.numbers(1))
	require.Empty(t, worker.End())
	require.Zero(t, testkit.QueryInt(t, db.SQL(), testkit.CountJobs))
}

// Go reads results saved by Python, and Python reads results saved by Go.
func TestInterop_Queue_Results(t *testing.T) {
	path, db := testkit.OpenShared(t)
	ctx := testkit.Context(t, later)
	q := honker.NewQueue[int](db, "jobs", nil)
	caller := readyPeer(t, path, "answer")
	theirs, ours := caller.id("enqueue", "jobs", 1), testkit.Enqueue(t, q, 2)

	caller.call("save result", "jobs", ours, map[string]any{"by": "python", "ü": nil})
	got, err := honker.WaitResult[struct{ By string }](ctx, db, ours)
	require.NoError(t, err)
	require.Equal(t, "python", got.By)
	require.NoError(t, q.SaveResult(ctx, theirs, []string{"by", "go"}, time.Hour))
	require.Equal(t, []any{true, []any{"by", "go"}}, caller.call("get result", "jobs", theirs))
}

// Go opens a file created by Python, and both assign ids from the same sequence.
func TestInterop_File_MadeByPython(t *testing.T) {
	path := t.TempDir() + "/app.db"
	caller := readyPeer(t, path, "answer")
	id := caller.id("enqueue", "jobs", 7)
	db := honkertest.OpenFile(t, path, nil)
	q := honker.NewQueue[int](db, "jobs", nil)
	job := testkit.ClaimOne(t, q)
	require.Equal(t, id, job.ID)
	require.Equal(t, 7, job.Args)
	require.NoError(t, job.Ack(testkit.Context(t, soon)))
	require.Equal(t, id+1, testkit.Enqueue(t, q, 8), "one sequence of ids")
	require.Equal(t, id+2, caller.id("enqueue", "jobs", 9))
}
