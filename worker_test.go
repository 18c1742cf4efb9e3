package honker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// life records what happened to a job during an hour of Work.
type life struct {
	began    []time.Duration // start of each attempt, since the enqueue
	attempts []int           // attempt numbers that the handler saw
	failed   []error         // errors that OnError received
	outcomes []honker.Outcome
	left     *honker.JobInfo // the job afterwards; nil if it is gone
}

// lifeOf runs Work with fn on a single job in a bubble.
func lifeOf(t *testing.T, opts honker.QueueOptions, fn testkit.Handler[int]) (l life) {
	t.Helper()
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, s *testkit.Recorder) {
		q := honker.NewQueue[int](db, "jobs", &opts)
		began := time.Now()
		id := testkit.Enqueue(t, q, 1)
		stop := testkit.Work(t, q, func(ctx context.Context, job *honker.Job[int]) error {
			l.began = append(l.began, time.Since(began))
			l.attempts = append(l.attempts, job.Attempts)
			return fn(ctx, job)
		}, &honker.WorkOptions{Workers: 1, OnError: func(_ context.Context, job *honker.JobInfo, err error) {
			require.Equal(t, id, job.ID)
			require.Equal(t, len(l.attempts), job.Attempts)
			l.failed = append(l.failed, err)
		}})
		time.Sleep(time.Hour)
		require.NoError(t, stop())
		l.outcomes = s.Outcomes()
		info, err := q.Get(context.Background(), id)
		if !errors.Is(err, honker.ErrNotFound) {
			require.NoError(t, err)
			l.left = info
		}
	})
	return l
}

func secs(all ...int) (spans []time.Duration) {
	for _, n := range all {
		spans = append(spans, time.Duration(n)*time.Second)
	}
	return spans
}

// Exponential doubles the delay up to its maximum, with a jitter of a fifth.
func TestBackoff_Exponential_Doubles(t *testing.T) {
	t.Parallel()
	backoff := honker.Exponential(time.Second, time.Minute)
	for attempt := 1; attempt < 100; attempt++ {
		want := time.Minute
		if attempt <= 6 {
			want = time.Second << (attempt - 1)
		}
		low, high := backoff(attempt, nil), backoff(attempt, nil)
		for range 200 {
			d := backoff(attempt, testkit.ErrCause)
			low, high = min(low, d), max(high, d)
		}
		require.GreaterOrEqual(t, low, want-want/5)
		require.LessOrEqual(t, high, want+want/5)
		require.Less(t, low, want-want/10, "they must spread")
		require.Greater(t, high, want+want/10)
	}
	require.LessOrEqual(t, honker.Exponential(time.Hour, time.Second)(1, nil), 1200*time.Millisecond)
	require.Equal(t, time.Minute, honker.Constant(time.Minute)(1, nil))
	require.Equal(t, time.Minute, honker.Constant(time.Minute)(1000, testkit.ErrCause))
}

// Exponential stays within its bounds for extreme arguments.
func TestBackoff_Exponential_Edges(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ base, max, low time.Duration }{
		"twice nothing":            {0, time.Hour, 0},
		"no maximum to speak of":   {time.Second, math.MaxInt64, math.MaxInt64 / 2},
		"no maximum, at the limit": {math.MaxInt64, math.MaxInt64, math.MaxInt64 / 2},
	} {
		for range 20 {
			d := honker.Exponential(c.base, c.max)(100, nil)
			assert.GreaterOrEqual(t, d, c.low, name)
			if c.base == 0 {
				assert.Zero(t, d, name)
			}
		}
	}
}

// With the default options, a ten-second outage dead-letters no job.
func TestQueue_Defaults_Outage(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		ctx, q := context.Background(), honker.NewQueue[int](db, "jobs", nil)
		ids, err := q.EnqueueMany(ctx, make([]int, 1000))
		require.NoError(t, err)
		require.Equal(t, 25, testkit.GetJob(t, q, ids[0]).MaxAttempts)
		restored := time.Now().Add(10 * time.Second)
		var delivered atomic.Int64
		stop := testkit.Work(t, q, func(context.Context, *honker.Job[int]) error {
			if time.Now().Before(restored) {
				return testkit.ErrCause
			}
			delivered.Add(1)
			return nil
		}, nil)
		time.Sleep(time.Minute)
		require.NoError(t, stop())
		require.EqualValues(t, 1000, delivered.Load())
		require.Zero(t, stats(t, q).Dead.N)
	})
}

// No delay is shorter than requested, whatever the fraction of a second at which the call is made.
func TestWorker_Delays_NeverEarly(t *testing.T) {
	const second = time.Second
	for _, at := range []time.Duration{50 * time.Millisecond, 500 * time.Millisecond, 950 * time.Millisecond} {
		for _, d := range []time.Duration{100 * time.Millisecond, second, 1500 * time.Millisecond, 5 * second} {
			t.Run(fmt.Sprint(at, " ", d), func(t *testing.T) {
				testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
					neverEarly(t, db, at, d)
				})
			})
		}
	}
}

// neverEarly checks how long jobs wait for d when the call is made at the fraction at of a second.
func neverEarly(t *testing.T, db *honker.DB, at, d time.Duration) {
	waits := map[string]error{"retry after": honker.RetryAfter(d, testkit.ErrCause), "snooze": honker.Snooze(d), "backoff": testkit.ErrCause}
	q := honker.NewQueue[string](db, "jobs", &honker.QueueOptions{Backoff: honker.Constant(d), ResultTTL: d})
	var mu sync.Mutex
	began, waited := make(map[string]time.Time), make(map[string]time.Duration)
	testkit.Work(t, q, func(_ context.Context, job *honker.Job[string]) error {
		mu.Lock()
		defer mu.Unlock()
		if first, found := began[job.Args]; found {
			waited[job.Args] = time.Since(first)
			return nil
		}
		began[job.Args] = time.Now()
		return waits[job.Args]
	}, nil)
	time.Sleep(at)
	began["delay"] = time.Now()
	testkit.Enqueue(t, q, "delay", honker.Delay(d))
	for how := range waits {
		testkit.Enqueue(t, q, how)
	}
	expiring := honker.NewQueue[int](db, "expiring", nil)
	testkit.Enqueue(t, expiring, 1, honker.ExpiresIn(d))
	require.NoError(t, expiring.SaveResult(context.Background(), 1, 1, d))
	time.Sleep(d - time.Nanosecond)
	require.Len(t, testkit.Claim(t, expiring, 1), 1, "expired too early")
	_, err := honker.Result[int](context.Background(), db, 1)
	require.NoError(t, err, "the result is gone too early")
	time.Sleep(time.Minute)
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, waited, 4)
	for how, w := range waited {
		require.GreaterOrEqual(t, w, d, how)
		require.Less(t, w, d+time.Second, how)
	}
}

// Failed attempts are retried after Backoff, rounded up to whole seconds.
func TestWorker_Backoff_WholeSeconds(t *testing.T) {
	var asked []string
	l := lifeOf(t, honker.QueueOptions{MaxAttempts: 4, Backoff: func(attempt int, err error) time.Duration {
		asked = append(asked, fmt.Sprint(attempt, " ", err))
		return time.Duration(attempt) * 1500 * time.Millisecond
	}}, func(_ context.Context, job *honker.Job[int]) error { return fmt.Errorf("try %d", job.Attempts) })
	require.Equal(t, secs(0, 2, 5, 10), l.began)
	require.Equal(t, []int{1, 2, 3, 4}, l.attempts)
	require.Subset(t, asked, []string{"1 try 1", "2 try 2", "3 try 3"})
	require.Len(t, l.failed, 4)
	require.Equal(t, []honker.Outcome{honker.OutcomeRetried, honker.OutcomeRetried, honker.OutcomeRetried, honker.OutcomeDied}, l.outcomes)
	require.Equal(t, honker.StateDead, l.left.State)
	require.Equal(t, "try 4", l.left.LastError)
	require.Equal(t, 4, l.left.Attempts)
}

// A Backoff that panics or returns a negative delay does not stop Work.
func TestWorker_Backoff_Panics(t *testing.T) {
	fail := func(context.Context, *honker.Job[int]) error { return testkit.ErrCause }
	l := lifeOf(t, honker.QueueOptions{MaxAttempts: 3, Backoff: func(int, error) time.Duration { panic("no idea") }}, fail)
	require.Len(t, l.began, 3)
	require.GreaterOrEqual(t, l.began[1], time.Second, "no hot loop")
	require.Equal(t, testkit.ErrCause.Error(), l.left.LastError)

	l = lifeOf(t, honker.QueueOptions{MaxAttempts: 3, Backoff: honker.Constant(-time.Hour)}, fail)
	require.Equal(t, secs(0, 0, 0), l.began)
	require.Equal(t, honker.StateDead, l.left.State)
}

// A handler's error determines what happens to its job.
func TestWorker_Outcomes(t *testing.T) {
	never := func(int, error) time.Duration { panic("the handler has decided") }
	first := func(n int, err error) testkit.Handler[int] { // returns err for the first n attempts, then nil
		return func(context.Context, *honker.Job[int]) error {
			if n--; n >= 0 {
				return err
			}
			return nil
		}
	}
	for name, wrap := range map[string]func(error) error{
		"plain":   func(err error) error { return err },
		"wrapped": func(err error) error { return fmt.Errorf("printing: %w", err) },
		"joined":  func(err error) error { return errors.Join(errors.New("smoke"), err) },
	} {
		t.Run(name, func(t *testing.T) {
			opts := honker.QueueOptions{Backoff: never, MaxAttempts: 2}
			l := lifeOf(t, opts, first(1, wrap(honker.RetryAfter(90500*time.Millisecond, testkit.ErrCause))))
			require.Equal(t, secs(0, 91), l.began)
			require.Equal(t, []int{1, 2}, l.attempts)
			require.Equal(t, []honker.Outcome{honker.OutcomeRetried, honker.OutcomeAcked}, l.outcomes)
			require.Len(t, l.failed, 1)
			require.ErrorIs(t, l.failed[0], testkit.ErrCause)

			l = lifeOf(t, opts, first(2, wrap(honker.RetryAfter(0, testkit.ErrCause))))
			require.Equal(t, secs(0, 0), l.began)
			require.Equal(t, honker.StateDead, l.left.State, "its attempts were spent")
			require.Contains(t, l.left.LastError, testkit.ErrCause.Error())

			l = lifeOf(t, opts, first(4, wrap(honker.Snooze(1500*time.Millisecond))))
			require.Equal(t, secs(0, 2, 4, 6, 8), l.began)
			require.Equal(t, []int{1, 1, 1, 1, 1}, l.attempts)
			require.Empty(t, l.failed)
			require.Equal(t, honker.OutcomeSnoozed, l.outcomes[3])
			require.Nil(t, l.left)

			l = lifeOf(t, opts, first(1, wrap(honker.Reject(testkit.ErrCause))))
			require.Equal(t, secs(0), l.began)
			require.Equal(t, honker.StateDead, l.left.State)
			require.Equal(t, 1, l.left.Attempts)
			require.Contains(t, l.left.LastError, testkit.ErrCause.Error())
			require.Len(t, l.failed, 1)
			require.ErrorIs(t, l.failed[0], testkit.ErrCause)
		})
	}
}

// Work respects a handler's own settle, whatever the handler returns.
func TestWorker_Settled_Believed(t *testing.T) {
	for name, want := range map[string]struct {
		outcome honker.Outcome
		state   honker.State
	}{"Ack": {honker.OutcomeAcked, ""}, "Retry": {honker.OutcomeRetried, honker.StatePending}, "Reject": {honker.OutcomeDied, honker.StateDead}, "Snooze": {honker.OutcomeSnoozed, honker.StatePending}} {
		for _, end := range []error{nil, testkit.ErrCause} {
			testkit.Bubble(t, func(t *testing.T, db *honker.DB, s *testkit.Recorder) {
				q := honker.NewQueue[int](db, "jobs", nil)
				id := testkit.Enqueue(t, q, 1)
				runs := 0
				stop := testkit.Work(t, q, func(ctx context.Context, job *honker.Job[int]) error {
					runs++
					switch name {
					case "Ack":
						return errors.Join(job.Ack(ctx), end)
					case "Retry":
						return errors.Join(job.Retry(ctx, 2*time.Hour, testkit.ErrCause), end)
					case "Reject":
						return errors.Join(job.Reject(ctx, testkit.ErrCause), end)
					}
					return errors.Join(job.Snooze(ctx, 2*time.Hour), end)
				}, &honker.WorkOptions{Workers: 1})
				time.Sleep(time.Hour)
				require.NoError(t, stop())
				require.Equal(t, 1, runs)
				require.Equal(t, []honker.Outcome{want.outcome}, s.Outcomes(), name)
				if want.state == "" {
					testkit.RequireGone(t, q, id)
					return
				}
				require.Equal(t, want.state, testkit.GetJob(t, q, id).State)
			})
		}
	}
}

// Timeout ends an attempt.
func TestWorker_Timeout(t *testing.T) {
	opts := honker.QueueOptions{Timeout: 5 * time.Second, Backoff: honker.Constant(10 * time.Second), MaxAttempts: 2}
	l := lifeOf(t, opts, func(ctx context.Context, _ *honker.Job[int]) error {
		at, ok := ctx.Deadline()
		require.True(t, ok)
		require.Equal(t, 5*time.Second, time.Until(at))
		<-ctx.Done()
		return errors.Join(ctx.Err(), testkit.ErrCause)
	})
	require.Equal(t, secs(0, 15), l.began)
	require.Contains(t, l.left.LastError, "timeout after 5s")
	require.Contains(t, l.left.LastError, testkit.ErrCause.Error())
	require.ErrorIs(t, l.failed[0], context.DeadlineExceeded)

	l = lifeOf(t, opts, func(ctx context.Context, _ *honker.Job[int]) error { <-ctx.Done(); return nil })
	require.Nil(t, l.left, "it has succeeded after all")

	opts.Timeout = 0
	lifeOf(t, opts, func(ctx context.Context, _ *honker.Job[int]) error {
		_, ok := ctx.Deadline()
		require.False(t, ok)
		return nil
	})
}

// A handler that panics or ends its goroutine counts as failed.
func TestWorker_HandlerPanics(t *testing.T) {
	for name, end := range map[string]func(){
		"panic: boom":                        func() { panic("boom") },
		"panic: " + testkit.ErrCause.Error(): func() { panic(testkit.ErrCause) },
		"nil pointer":                        func() { var p *int; *p = 1 },
		"runtime.Goexit":                     runtime.Goexit,
	} {
		testkit.Bubble(t, func(t *testing.T, db *honker.DB, s *testkit.Recorder) {
			q := honker.NewQueue[int](db, "jobs", &honker.QueueOptions{MaxAttempts: 2})
			bad, good := testkit.Enqueue(t, q, 1), testkit.Enqueue(t, q, 2)
			var told atomic.Int64
			stop := testkit.Work(t, q, func(_ context.Context, job *honker.Job[int]) error {
				if job.Args == 1 {
					end()
				}
				return nil
			}, &honker.WorkOptions{Workers: 1, OnError: func(context.Context, *honker.JobInfo, error) {
				time.Sleep(time.Second)
				if testkit.GetJob(t, q, bad).State == honker.StateProcessing { // the attempt is settled afterwards
					told.Add(1)
				}
			}})
			time.Sleep(time.Hour)
			require.NoError(t, stop())
			testkit.RequireGone(t, q, good)
			info := testkit.GetJob(t, q, bad)
			require.Equal(t, honker.StateDead, info.State, name)
			require.Equal(t, 2, info.Attempts)
			require.Contains(t, info.LastError, name)
			if name != "runtime.Goexit" {
				require.Contains(t, info.LastError, "worker_test.go", "where it happened")
			}
			require.EqualValues(t, 2, told.Load())
		})
	}
}

// Middleware wraps the handler once, and the first is outermost.
func TestWorker_Middleware_Order(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		q := honker.NewQueue[int](db, "jobs", nil)
		const jobs = 5
		ids, err := q.EnqueueMany(context.Background(), make([]int, jobs))
		require.NoError(t, err)
		var said []string
		type key string
		layer := func(name string) honker.Middleware {
			said = append(said, "wrap "+name)
			return func(next honker.WorkFunc) honker.WorkFunc {
				said = append(said, "wrapped "+name)
				return func(ctx context.Context, job *honker.JobInfo) error {
					said = append(said, fmt.Sprint(name, job.ID))
					err := next(context.WithValue(ctx, key(name), job.ID), job)
					said = append(said, fmt.Sprint("/", name, job.ID))
					return err
				}
			}
		}
		opts := &honker.WorkOptions{Workers: 1, Middleware: []honker.Middleware{layer("a"), layer("b")}}
		stop := testkit.Work(t, q, func(ctx context.Context, job *honker.Job[int]) error {
			require.Equal(t, job.ID, ctx.Value(key("a")))
			require.Equal(t, job.ID, ctx.Value(key("b")))
			said = append(said, "run")
			return nil
		}, opts)
		time.Sleep(time.Minute)
		require.NoError(t, stop())
		want := []string{"wrap a", "wrap b"}
		for _, id := range ids {
			want = append(want, "wrapped b", "wrapped a", fmt.Sprint("a", id), fmt.Sprint("b", id), "run", fmt.Sprint("/b", id), fmt.Sprint("/a", id))
		}
		require.Equal(t, want, said)
	})
}

// The error that a middleware returns determines the attempt's outcome.
func TestWorker_Middleware_Error(t *testing.T) {
	for name, c := range map[string]struct {
		wrap honker.Middleware
		runs int
		left string // the LastError; empty if the job is gone
	}{
		"forgives": {func(next honker.WorkFunc) honker.WorkFunc {
			return func(ctx context.Context, job *honker.JobInfo) error { _ = next(ctx, job); return nil }
		}, 1, ""},
		"replaces": {func(next honker.WorkFunc) honker.WorkFunc {
			return func(ctx context.Context, job *honker.JobInfo) error {
				return honker.Reject(fmt.Errorf("replaced: %w", next(ctx, job)))
			}
		}, 1, "replaced: " + testkit.ErrCause.Error()},
		"skips": {func(honker.WorkFunc) honker.WorkFunc {
			return func(context.Context, *honker.JobInfo) error { return nil }
		}, 0, ""},
		"has a ctx of its own": {func(next honker.WorkFunc) honker.WorkFunc {
			return func(_ context.Context, job *honker.JobInfo) error { return next(context.Background(), job) }
		}, 1, testkit.ErrCause.Error()},
		"panics": {func(honker.WorkFunc) honker.WorkFunc {
			return func(context.Context, *honker.JobInfo) error { panic("layer") }
		}, 0, "panic: layer"},
	} {
		testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
			q := honker.NewQueue[int](db, "jobs", &honker.QueueOptions{MaxAttempts: 1})
			id := testkit.Enqueue(t, q, 1)
			runs := 0
			stop := testkit.Work(t, q, func(context.Context, *honker.Job[int]) error { runs++; return testkit.ErrCause },
				&honker.WorkOptions{Middleware: []honker.Middleware{c.wrap}})
			time.Sleep(time.Minute)
			require.NoError(t, stop())
			require.Equal(t, c.runs, runs, name)
			if c.left == "" {
				testkit.RequireGone(t, q, id)
				return
			}
			require.Contains(t, testkit.GetJob(t, q, id).LastError, c.left)
		})
	}
}

// WorkDue returns the number of attempts. It counts a dead-lettered job whose payload does not decode, and
// an attempt for which a middleware does not call the handler.
func TestQueue_WorkDue_CountsAttempts(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx, db, q := testkit.NewQueue[int](t, nil)
	id := testkit.Enqueue(t, q, 1)
	testkit.Exec(t, db, `UPDATE _honker_live SET payload = '"text"' WHERE id = ?`, id)
	calls := 0
	handle := func(context.Context, *honker.Job[int]) error { calls++; return nil }
	n, err := q.WorkDue(ctx, handle, nil)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Zero(t, calls)
	require.Equal(t, honker.PhaseDead, testkit.PhaseOf(t, db, id))
	testkit.Enqueue(t, q, 2)
	odd := func(next honker.WorkFunc) honker.WorkFunc {
		return func(ctx context.Context, job *honker.JobInfo) error {
			if job.Attempts == 1 {
				return honker.RetryAfter(0, testkit.ErrCause)
			}
			return next(ctx, job)
		}
	}
	n, err = q.WorkDue(ctx, handle, &honker.WorkOptions{Middleware: []honker.Middleware{odd}})
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Equal(t, 1, calls)
}

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
	testkit.FileOnly(t)
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

// A handler may settle its job and then continue to clean up while the same Work runs the job again. The
// first handler's return must not settle the second attempt.
func TestWorker_LingeringHandler(t *testing.T) {
	testkit.FileOnly(t)
	for name, again := range map[string]func(context.Context, *honker.DB, *honker.Job[int]) error{
		"Retry": func(ctx context.Context, _ *honker.DB, job *honker.Job[int]) error {
			return job.Retry(ctx, 0, testkit.ErrCause)
		},
		"Snooze": func(ctx context.Context, _ *honker.DB, job *honker.Job[int]) error { return job.Snooze(ctx, 0) },
		// The lease was not renewed in time, as happens when the machine is suspended.
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

// A handler's result reaches the caller that waits for it.
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

// Jobs claimed ahead are released immediately when Work's ctx ends.
func TestWorker_Prefetch_Released(t *testing.T) {
	testkit.FileOnly(t)
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
		require.Greater(t, claimedJobs(t, q), int64(workers), "some are claimed ahead")
		go func() { _ = stop() }()
		synctest.Wait()
		require.EqualValues(t, workers, claimedJobs(t, q), "those that run")
		require.NoError(t, stop())
		require.EqualValues(t, slow-workers, testkit.QueryInt(t, db.SQL(), testkit.CountJobs))
		require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT total(attempts) FROM _honker_live`))
	})
}
