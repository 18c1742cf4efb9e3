package honker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// A handler that runs for ten leases keeps its job.
func TestWorker_Lease_Renewed(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, s *testkit.Recorder) {
		q := honker.NewQueue[int](db, "jobs", nil)
		stop := testkit.Work(t, q, func(ctx context.Context, job *honker.Job[int]) error {
			time.Sleep(30 * time.Second)
			require.Equal(t, 1, job.Attempts)
			return ctx.Err()
		}, &honker.WorkOptions{Workers: 2, WorkerID: "me", Lease: 3 * time.Second})
		for range 2 { // the second job comes after a time without jobs
			id := testkit.Enqueue(t, q, 1)
			for range 59 {
				time.Sleep(500 * time.Millisecond)
				require.Empty(t, testkit.Claim(t, q, 1))
				info := testkit.GetJob(t, q, id)
				require.Equal(t, "me", info.WorkerID)
				require.Equal(t, 1, info.Attempts)
				require.GreaterOrEqual(t, time.Until(info.ClaimExpiresAt), time.Second, "renewed long before it ends")
			}
			time.Sleep(time.Second)
			testkit.RequireGone(t, q, id)
			time.Sleep(time.Minute)
		}
		require.NoError(t, stop())
		require.Equal(t, []honker.Outcome{honker.OutcomeAcked, honker.OutcomeAcked}, s.Outcomes())
	})
}

// Work starts no goroutines before there are jobs.
func TestWorker_NoIdleGoroutines(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		q := honker.NewQueue[int](db, "jobs", nil)
		end := make(chan struct{})
		before := runtime.NumGoroutine()
		stop := testkit.Work(t, q, func(context.Context, *honker.Job[int]) error { <-end; return nil },
			&honker.WorkOptions{Workers: 64})
		synctest.Wait()
		require.LessOrEqual(t, runtime.NumGoroutine()-before, 2, "Work and the watcher")
		_, err := q.EnqueueMany(context.Background(), []int{1, 2, 3, 4, 5})
		require.NoError(t, err)
		synctest.Wait()
		busy := runtime.NumGoroutine() - before
		close(end) // before the checks: a failure must not leave the handlers waiting
		require.LessOrEqual(t, busy, 2+5+2, "the jobs, the renewal of their leases, and the watch for cancelled ones")
		require.NoError(t, stop())
	})
}

// endings are the ways in which a handler can return.
var endings = []func(context.Context) error{
	func(context.Context) error { return nil },
	func(ctx context.Context) error { return ctx.Err() },
	func(context.Context) error { return honker.Snooze(time.Second) },
	func(context.Context) error { return honker.Reject(testkit.ErrCause) },
	func(context.Context) error { panic("lost") },
}

// A lost lease ends the handler's ctx, and the handler can no longer change its job.
func TestWorker_Lease_Lost(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, s *testkit.Recorder) {
		q := honker.NewQueue[int](db, "jobs", nil)
		ids, err := q.EnqueueMany(context.Background(), []int{0, 1, 2, 3, 4})
		require.NoError(t, err)
		var mu sync.Mutex
		told := map[int64]int{}
		stop := testkit.Work(t, q, func(ctx context.Context, job *honker.Job[int]) error {
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), honker.ErrClaimLost)
			require.NoError(t, job.SetResult("stale"))
			require.ErrorIs(t, job.Ack(context.WithoutCancel(ctx)), honker.ErrClaimLost)
			return endings[job.Args](ctx)
		}, &honker.WorkOptions{Workers: len(ids), Lease: 3 * time.Second, OnError: func(_ context.Context, job *honker.JobInfo, err error) {
			if errors.Is(err, honker.ErrClaimLost) {
				mu.Lock()
				told[job.ID]++
				mu.Unlock()
			}
		}})
		synctest.Wait()
		testkit.Exec(t, db, `UPDATE _honker_live SET worker_id = 'thief', attempts = attempts + 1, claim_expires_at = claim_expires_at + 99`)
		var theirs []honker.JobInfo
		for _, id := range ids {
			theirs = append(theirs, *testkit.GetJob(t, q, id))
		}
		time.Sleep(1001 * time.Millisecond) // more than a third of the lease
		synctest.Wait()
		for i, id := range ids {
			require.Equal(t, theirs[i], *testkit.GetJob(t, q, id))
			require.Equal(t, 1, told[id], "OnError")
			_, err := honker.Result[string](context.Background(), db, id)
			require.ErrorIs(t, err, honker.ErrNotFound)
		}
		require.NoError(t, stop())
		// Each loss is reported twice: by the handler's own Ack and by Work.
		require.Equal(t, strings.Repeat(" lost", 2*len(ids)), fmtAll(s.Outcomes()))
	})
}

func fmtAll[T any](all []T) string {
	var b strings.Builder
	for _, v := range all {
		fmt.Fprintf(&b, " %v", v)
	}
	return b.String()
}

// A handler may settle its job and then linger to clean up while the same Work runs the job again. The
// return of the first handler must not settle the second attempt.
func TestWorker_LingeringHandler(t *testing.T) {
	for name, again := range map[string]func(context.Context, *honker.DB, *honker.Job[int]) error{
		"Retry": func(ctx context.Context, _ *honker.DB, job *honker.Job[int]) error {
			return job.Retry(ctx, 0, testkit.ErrCause)
		},
		"Snooze": func(ctx context.Context, _ *honker.DB, job *honker.Job[int]) error { return job.Snooze(ctx, 0) },
		// As after a suspend of the machine, the lease was not renewed in time.
		"lapsed": func(_ context.Context, db *honker.DB, job *honker.Job[int]) error {
			_, err := db.SQL().Exec(`UPDATE _honker_live SET claim_expires_at = ? WHERE id = ?`, time.Now().Unix()-1, job.ID)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
				q := honker.NewQueue[int](db, "jobs", nil)
				id := testkit.Enqueue(t, q, 1)
				var runs atomic.Int64
				stop := testkit.Work(t, q, func(ctx context.Context, job *honker.Job[int]) error {
					if runs.Add(1) > 1 {
						time.Sleep(10 * time.Second) // longer than the lease
						return ctx.Err()
					}
					err := again(ctx, db, job)
					time.Sleep(2 * time.Second)
					return err
				}, &honker.WorkOptions{Workers: 3, Lease: 3 * time.Second})
				time.Sleep(11 * time.Second)
				require.EqualValues(t, 2, runs.Load())
				testkit.RequireGone(t, q, id)
				require.NoError(t, stop())
			})
		})
	}
}

// A handler that has settled its job may continue.
func TestWorker_Settled_GoesOn(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, s *testkit.Recorder) {
		q := honker.NewQueue[int](db, "jobs", nil)
		testkit.Enqueue(t, q, 1)
		stop := testkit.Work(t, q, func(ctx context.Context, job *honker.Job[int]) error {
			require.NoError(t, job.Ack(ctx))
			time.Sleep(time.Minute)
			require.NoError(t, context.Cause(ctx), "its claim was not lost")
			return nil
		}, nil)
		time.Sleep(2 * time.Minute)
		require.NoError(t, stop())
		require.Equal(t, []honker.Outcome{honker.OutcomeAcked}, s.Outcomes())
	})
}

// Two Works can share a queue.
func TestWorker_TwoShareQueue(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		q := honker.NewQueue[int](db, "jobs", nil)
		ids, err := q.EnqueueMany(context.Background(), make([]int, 20))
		require.NoError(t, err)
		runs := make(chan int64, 2*len(ids))
		for range 2 {
			testkit.Work(t, q, func(_ context.Context, job *honker.Job[int]) error {
				time.Sleep(time.Second)
				runs <- job.ID
				return nil
			}, &honker.WorkOptions{Workers: 1})
		}
		time.Sleep(10*time.Second + time.Millisecond)
		synctest.Wait()
		require.Zero(t, testkit.QueryInt(t, db.SQL(), testkit.CountJobs), "each did its half")
		require.Len(t, runs, len(ids))
		ran := map[int64]bool{}
		for range ids {
			ran[<-runs] = true
		}
		require.Len(t, ran, len(ids))
	})
}

// Many Works on many queues run each job once.
func TestWorker_ManyQueues(t *testing.T) {
	t.Parallel()
	const queues, jobs = 10, 200
	db := honkertest.Open(t, nil)
	var mu sync.Mutex
	ran := map[string]int{}
	for i := range queues {
		q := honker.NewQueue[int](db, fmt.Sprint("queue", i), nil)
		testkit.Work(t, q, func(_ context.Context, job *honker.Job[int]) error {
			mu.Lock()
			ran[fmt.Sprint(job.Queue, " ", job.Args)]++
			mu.Unlock()
			return nil
		}, &honker.WorkOptions{Workers: 2})
		go func() {
			for n := range jobs { // enqueued while the Works run, half of them individually
				if _, err := q.Enqueue(context.Background(), n); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	testkit.Eventually(t, testkit.Timeout, "all have run", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(ran) == queues*jobs
	})
	testkit.Eventually(t, testkit.Timeout, "all are acked", func() bool { return testkit.QueryInt(t, db.SQL(), testkit.CountJobs) == 0 })
	for job, n := range ran {
		require.Equal(t, 1, n, job)
	}
}

// Delayed jobs start at their second and not earlier.
func TestWorker_Delayed(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		q := honker.NewQueue[int](db, "jobs", nil)
		var mu sync.Mutex
		started := map[int64]time.Time{}
		stop := testkit.Work(t, q, func(_ context.Context, job *honker.Job[int]) error {
			mu.Lock()
			defer mu.Unlock()
			started[job.ID] = time.Now()
			return nil
		}, nil)
		want := map[int64]time.Time{}
		time.Sleep(300 * time.Millisecond)
		for _, d := range []time.Duration{time.Hour, 7 * time.Second, 1500 * time.Millisecond, time.Second, time.Millisecond} {
			id := testkit.Enqueue(t, q, 1, honker.Delay(d))
			want[id] = testkit.GetJob(t, q, id).RunAt
			require.Equal(t, time.Now().Add(d+time.Second-1).Truncate(time.Second), want[id])
			time.Sleep(10 * time.Millisecond)
		}
		id := testkit.Enqueue(t, q, 1, honker.RunAt(time.Now().Add(90*time.Second)))
		want[id] = time.Now().Add(90*time.Second + time.Second - 1).Truncate(time.Second)
		time.Sleep(2 * time.Hour)
		require.NoError(t, stop())
		require.Len(t, started, len(want))
		for id, at := range want {
			require.True(t, started[id].Equal(at), "job %d: %v, not %v", id, started[id], at)
		}
	})
}

// An expired job is never started.
func TestWorker_Expired(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		q := honker.NewQueue[int](db, "jobs", nil)
		var ran []int64
		stop := testkit.Work(t, q, func(_ context.Context, job *honker.Job[int]) error {
			ran = append(ran, job.ID)
			time.Sleep(10 * time.Second)
			return nil
		}, &honker.WorkOptions{Workers: 1})
		long := testkit.Enqueue(t, q, 1)
		synctest.Wait()
		late := testkit.Enqueue(t, q, 1, honker.ExpiresIn(9*time.Second))
		tight := testkit.Enqueue(t, q, 1, honker.ExpiresIn(10*time.Second))
		never := testkit.Enqueue(t, q, 1, honker.ExpiresIn(5*time.Second), honker.Delay(5*time.Second))
		fine := testkit.Enqueue(t, q, 1, honker.ExpiresIn(11*time.Second), honker.Delay(time.Second))
		time.Sleep(time.Hour)
		require.NoError(t, stop())
		require.Equal(t, []int64{long, fine}, ran)
		swept, err := q.SweepExpired(context.Background())
		require.NoError(t, err)
		require.Equal(t, 3, swept)
		for _, id := range []int64{late, tight, never} {
			info := testkit.GetJob(t, q, id)
			require.Equal(t, honker.StateDead, info.State)
			require.Zero(t, info.Attempts)
		}
	})
}

// A job that does not decode is dead-lettered and does not stop the others.
func TestWorker_Undecodable(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		q := honker.NewQueue[int](db, "jobs", nil)
		text := honker.NewQueue[json.RawMessage](db, "jobs", nil)
		var bad, good []int64
		for range 10 {
			good = append(good, testkit.Enqueue(t, q, 1))
			bad = append(bad, testkit.Enqueue(t, text, json.RawMessage(`{"not": "a number"}`)))
		}
		var told []int64
		stop := testkit.Work(t, q, func(context.Context, *honker.Job[int]) error { return nil },
			&honker.WorkOptions{Workers: 1, OnError: func(_ context.Context, job *honker.JobInfo, err error) {
				require.ErrorContains(t, err, "cannot decode payload")
				told = append(told, job.ID)
			}})
		time.Sleep(time.Minute)
		require.NoError(t, stop())
		require.Equal(t, bad, told)
		for i := range bad {
			testkit.RequireGone(t, q, good[i])
			info := testkit.GetJob(t, q, bad[i])
			require.Equal(t, honker.StateDead, info.State)
			require.Equal(t, 1, info.Attempts)
			require.Contains(t, info.LastError, "cannot decode payload")
		}
	})
}

// The result of a handler reaches the caller that waits for it.
func TestWorker_Result(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		q := honker.NewQueue[int](db, "jobs", nil)
		id := testkit.Enqueue(t, q, 20)
		got := make(chan int, 1)
		go func() {
			n, err := honker.WaitResult[int](context.Background(), db, id)
			if err == nil {
				got <- n
			}
			close(got)
		}()
		synctest.Wait()
		testkit.Work(t, q, func(_ context.Context, job *honker.Job[int]) error {
			return errors.Join(job.SetResult(0), job.SetResult(job.Args+job.Attempts))
		}, nil)
		require.Equal(t, 21, <-got)
		testkit.RequireGone(t, q, id)
		n, err := honker.WaitResult[int](context.Background(), db, id)
		require.NoError(t, err)
		require.Equal(t, 21, n, "also afterwards")
	})
}

// The handler's ctx carries the values of the ctx passed to Work.
func TestWorker_Context_Values(t *testing.T) {
	type key struct{}
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		q := honker.NewQueue[int](db, "jobs", nil)
		testkit.Enqueue(t, q, 1)
		ctx, cancel := context.WithCancel(context.WithValue(context.Background(), key{}, "value"))
		require.NoError(t, q.Work(ctx, func(ctx context.Context, _ *honker.Job[int]) error {
			cancel()
			time.Sleep(time.Second)
			require.NoError(t, ctx.Err(), "it outlives Work's")
			require.Equal(t, "value", ctx.Value(key{}))
			return nil
		}, nil))
		require.Zero(t, testkit.QueryInt(t, db.SQL(), testkit.CountJobs))
	})
}

// Jobs claimed ahead are released at once when the ctx of Work ends.
func TestWorker_Prefetch_Released(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, s *testkit.Recorder) {
		const fast, slow, workers = 300, 60, 2
		q := honker.NewQueue[int](db, "jobs", nil)
		_, err := q.EnqueueMany(context.Background(), make([]int, fast), honker.Priority(1))
		require.NoError(t, err)
		_, err = q.EnqueueMany(context.Background(), slices.Repeat([]int{10}, slow))
		require.NoError(t, err)
		stop := testkit.Work(t, q, func(_ context.Context, job *honker.Job[int]) error {
			time.Sleep(time.Duration(job.Args) * time.Second)
			return nil
		}, &honker.WorkOptions{Workers: workers})
		synctest.Wait() // no time has passed, so the last handlers were fast
		require.Greater(t, testkit.QueryInt(t, db.SQL(), processing), int64(workers), "some are claimed ahead")
		go func() { _ = stop() }()
		synctest.Wait()
		require.EqualValues(t, workers, testkit.QueryInt(t, db.SQL(), processing), "those that run")
		require.NoError(t, stop())
		require.EqualValues(t, slow-workers, testkit.QueryInt(t, db.SQL(), testkit.CountJobs))
		require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT total(attempts) FROM _honker_live`))
	})
}
