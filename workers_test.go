package honker_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// queuesOf returns handles for the named queues.
func queuesOf(db *honker.DB, names []string) (queues []*honker.Queue[int]) {
	for _, name := range names {
		queues = append(queues, honker.NewQueue[int](db, name, nil))
	}
	return queues
}

// kinds creates queues a, b, … with n jobs each. The arguments count up within each queue.
func kinds(t *testing.T, db *honker.DB, sizes ...int) (names []string) {
	t.Helper()
	for i, n := range sizes {
		name := string(rune('a' + i))
		names = append(names, name)
		if n > 0 {
			args := make([]int, n)
			for i := range args {
				args[i] = i
			}
			_, err := honker.NewQueue[int](db, name, nil).EnqueueMany(context.Background(), args)
			require.NoError(t, err)
		}
	}
	return names
}

// orders are all orders of a Workers.
var orders = []honker.Order{honker.ByPriority, honker.InTurns, honker.Strict}

// one makes Work run a single job at a time and claim nothing ahead.
func one() *honker.WorkOptions { return &honker.WorkOptions{Pool: honker.NewPool(1)} }

// Work and WorkDue refuse invalid registrations and options, and claim nothing.
func TestWorkers_Invalid(t *testing.T) {
	t.Parallel()
	db, other := honkertest.Open(t, nil), honkertest.Open(t, nil)
	kinds(t, db, 1, 1)
	a, b := honker.NewQueue[int](db, "a", nil), honker.NewQueue[string](db, "b", nil)
	bytes := honker.NewQueue[[]byte](db, "c", nil)
	weights := func(order honker.Order, weights map[string]int) *honker.WorkersOptions {
		return &honker.WorkersOptions{Order: order, Weights: weights}
	}
	for name, c := range map[string]struct {
		opts     *honker.WorkersOptions
		register func(w *honker.Workers)
		text     string
	}{
		"no handler":       {nil, func(*honker.Workers) {}, "register them with Handle"},
		"a repeated queue": {nil, func(w *honker.Workers) { honker.Handle(w, a, testkit.Succeed[int]) }, `queue "a" has two handlers`},
		"the queue twice": {nil, func(w *honker.Workers) {
			honker.HandleTx(w, honker.NewQueue[int](db, "a", nil), testkit.SucceedTx[int])
		}, "two handlers"},
		"a nil queue":       {nil, func(w *honker.Workers) { honker.Handle(w, nil, testkit.Succeed[int]) }, "nil or zero Queue"},
		"a zero queue":      {nil, func(w *honker.Workers) { honker.Handle(w, new(honker.Queue[int]), testkit.Succeed[int]) }, "zero Queue"},
		"a nil function":    {nil, func(w *honker.Workers) { honker.Handle(w, b, nil) }, "nil"},
		"a nil Tx function": {nil, func(w *honker.Workers) { honker.HandleTx(w, b, nil) }, "nil"},
		"another DB":        {nil, func(w *honker.Workers) { honker.Handle(w, honker.NewQueue[int](other, "b", nil), testkit.Succeed[int]) }, "another DB"},
		"an invalid name":   {nil, func(w *honker.Workers) { honker.Handle(w, honker.NewQueue[int](db, "", nil), testkit.Succeed[int]) }, "queue name"},
		"invalid options": {nil, func(w *honker.Workers) {
			honker.Handle(w, honker.NewQueue[int](db, "b", &honker.QueueOptions{Timeout: -1}), testkit.Succeed[int])
		}, "Timeout"},
		"an invalid type":    {nil, func(w *honker.Workers) { honker.Handle(w, bytes, testkit.Succeed[[]byte]) }, "payload type"},
		"an unknown order":   {weights(3, nil), nil, "unknown Order 3"},
		"a negative order":   {weights(-1, nil), nil, "unknown Order -1"},
		"weight 0":           {weights(honker.InTurns, map[string]int{"a": 0}), nil, "weight 0"},
		"a negative weight":  {weights(honker.InTurns, map[string]int{"a": -1}), nil, "weight -1"},
		"an unknown weight":  {weights(honker.InTurns, map[string]int{"c": 1}), nil, `queue "c", which has no handler`},
		"strict and weights": {weights(honker.Strict, map[string]int{"a": 1}), nil, "Weights require"},
		"weights":            {weights(honker.ByPriority, map[string]int{"a": 1}), nil, "Weights require"},
	} {
		w := honker.NewWorkers(db, c.opts)
		if name != "no handler" {
			honker.Handle(w, a, testkit.Succeed[int])
		}
		if c.register != nil {
			c.register(w)
		}
		err := w.Work(t.Context(), nil)
		require.ErrorIs(t, err, honker.ErrInvalid, name)
		require.ErrorContains(t, err, c.text, name)
		n, err := w.WorkDue(t.Context(), nil)
		require.ErrorIs(t, err, honker.ErrInvalid, name)
		require.Zero(t, n)
	}
	require.ErrorIs(t, new(honker.Workers).Work(t.Context(), nil), honker.ErrInvalid)
	w := testkit.Workers(db, nil, []string{"a", "b"}, testkit.Succeed[int])
	require.ErrorIs(t, w.Work(t.Context(), &honker.WorkOptions{Workers: -1}), honker.ErrInvalid)
	require.Zero(t, claimedJobs(t, a))
	n, err := w.WorkDue(t.Context(), nil)
	require.NoError(t, err, "the refused call has changed nothing")
	require.Equal(t, 2, n)
}

// A handler that is registered after Work has begun is logged and not used. The running Work goes on and
// returns the error when it ends.
func TestWorkers_Handle_TooLate(t *testing.T) {
	t.Parallel()
	log := new(testkit.Log)
	db := honkertest.Open(t, &honker.Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
	a, b := honker.NewQueue[int](db, "a", nil), honker.NewQueue[int](db, "b", nil)
	ran := make(chan string, 1)
	w := testkit.Workers(db, nil, []string{"a"}, func(_ context.Context, job *honker.Job[int]) error {
		ran <- job.Queue
		return nil
	})
	ctx, cancel := context.WithCancel(testkit.Context(t, testkit.Timeout))
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- w.Work(ctx, nil) }()
	testkit.Enqueue(t, a, 1)
	require.Equal(t, "a", <-ran)
	honker.Handle(w, b, testkit.Succeed[int])
	require.Equal(t, 1, log.Times("a handler was not registered"))
	id := testkit.Enqueue(t, b, 1)
	testkit.Enqueue(t, a, 2)
	require.Equal(t, "a", <-ran, "Work goes on")
	require.Equal(t, honker.StatePending, testkit.GetJob(t, b, id).State)
	cancel()
	require.ErrorIs(t, <-done, honker.ErrInvalid)
	require.ErrorIs(t, w.Work(t.Context(), nil), honker.ErrInvalid)
}

// Each kind of job has its own type, function and options. Middleware and OnError see its queue.
func TestWorkers_Kinds(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		ctx := t.Context()
		mails := honker.NewQueue[string](db, "mails", &honker.QueueOptions{Timeout: time.Second, Backoff: honker.Constant(time.Hour)})
		sums := honker.NewQueue[[]int](db, "sums", &honker.QueueOptions{Timeout: time.Minute, Backoff: honker.Constant(2 * time.Hour)})
		books := honker.NewQueue[struct{ Amount int }](db, "books", nil)
		testkit.Exec(t, db, `CREATE TABLE booked (amount)`)
		var lines []string
		slow := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		w := honker.NewWorkers(db, nil)
		honker.Handle(w, mails, func(ctx context.Context, job *honker.Job[string]) error {
			lines = append(lines, "to "+job.Args)
			return slow(ctx)
		})
		honker.Handle(w, sums, func(ctx context.Context, job *honker.Job[[]int]) error {
			lines = append(lines, fmt.Sprint("sum of ", len(job.Args)))
			return slow(ctx)
		})
		honker.HandleTx(w, books, func(ctx context.Context, tx *sql.Tx, job *honker.Job[struct{ Amount int }]) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO booked VALUES ($1)`, job.Args.Amount)
			return err
		})
		testkit.Enqueue(t, mails, "ada")
		testkit.Enqueue(t, sums, []int{1, 2})
		testkit.Enqueue(t, books, struct{ Amount int }{7})
		seen := map[string]time.Duration{}
		opts := &honker.WorkOptions{
			Middleware: []honker.Middleware{func(next honker.WorkFunc) honker.WorkFunc {
				return func(ctx context.Context, job *honker.JobInfo) error {
					began := time.Now()
					defer func() { seen[job.Queue] = time.Since(began) }()
					return next(ctx, job)
				}
			}},
			OnError: func(_ context.Context, job *honker.JobInfo, _ error) { lines = append(lines, job.Queue+" failed") },
		}
		n, err := w.WorkDue(ctx, opts)
		require.NoError(t, err)
		require.Equal(t, 3, n)
		require.Equal(t, []string{"to ada", "mails failed", "sum of 2", "sums failed"}, lines)
		require.Equal(t, map[string]time.Duration{"mails": time.Second, "sums": time.Minute, "books": 0}, seen)
		require.EqualValues(t, 7, testkit.QueryInt(t, db.SQL(), `SELECT sum(amount) FROM booked`))
		next, err := mails.NextClaimAt(ctx)
		require.NoError(t, err)
		require.InDelta(t, 59*time.Minute, time.Until(next), float64(2*time.Second))
		next, err = sums.NextClaimAt(ctx)
		require.NoError(t, err)
		require.InDelta(t, 2*time.Hour, time.Until(next), float64(2*time.Second))
	})
}

// With the order ByPriority, the queues are served like a single queue: by priority, then by time, then by
// id. A job of high priority that is enqueued meanwhile runs next.
func TestWorkers_ByPriority(t *testing.T) {
	t.Parallel()
	ctx, db, low := testkit.NewQueue[string](t, nil)
	high := honker.NewQueue[string](db, "high", &honker.QueueOptions{Enqueue: []honker.EnqueueOption{honker.Priority(100)}})
	for i := range 3 {
		testkit.Enqueue(t, low, fmt.Sprint("low", i))
	}
	testkit.Enqueue(t, low, "urgent", honker.Priority(101))
	for i := range 3 {
		testkit.Enqueue(t, high, fmt.Sprint("high", i))
	}
	testkit.Enqueue(t, high, "ordinary", honker.Priority(0))
	var ran []string
	handle := func(ctx context.Context, job *honker.Job[string]) error {
		if ran = append(ran, job.Args); job.Args == "low1" {
			_, err := high.Enqueue(ctx, "late")
			return err
		}
		return nil
	}
	w := honker.NewWorkers(db, nil)
	honker.Handle(w, low, handle)
	honker.Handle(w, high, handle)
	n, err := w.WorkDue(ctx, nil)
	require.NoError(t, err)
	require.Equal(t, 9, n)
	require.Equal(t, []string{"urgent", "high0", "high1", "high2", "low0", "low1", "late", "low2", "ordinary"}, ran)
}

// An idle worker of several queues has claimed a job by the time the job is committed, whichever its queue.
func TestWorkers_Handoff(t *testing.T) {
	for _, order := range orders {
		testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
			a, b := honker.NewQueue[int](db, "a", nil), honker.NewQueue[int](db, "b", nil)
			release, began := make(chan struct{}), make(chan string, 9)
			w := testkit.Workers(db, &honker.WorkersOptions{Order: order}, []string{"a", "b"}, func(_ context.Context, job *honker.Job[int]) error {
				began <- job.Queue
				<-release
				return nil
			})
			stop := testkit.Background(t, func(ctx context.Context) error { return w.Work(ctx, &honker.WorkOptions{Workers: 2}) })
			for _, q := range []*honker.Queue[int]{b, a, b, a} {
				synctest.Wait()
				id := testkit.Enqueue(t, q, 1)
				require.Equal(t, honker.StateProcessing, testkit.GetJob(t, q, id).State, order)
				release <- struct{}{}
				require.Equal(t, q.Name(), <-began)
			}
			require.NoError(t, stop())
		})
	}
}

// A job of another queue that was committed before a handoff comes first.
func TestWorkers_Handoff_OthersFirst(t *testing.T) {
	testkit.FileOnly(t)
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		began := make(chan string, 2)
		w := testkit.Workers(db, nil, []string{"a", "b"}, func(_ context.Context, job *honker.Job[int]) error {
			began <- job.Queue
			return nil
		})
		stop := testkit.Background(t, func(ctx context.Context) error { return w.Work(ctx, one()) })
		synctest.Wait()
		testkit.Exec(t, db, `INSERT INTO _honker_live (queue, payload, run_at) VALUES ('b', '7', 1)`)
		testkit.Enqueue(t, honker.NewQueue[int](db, "a", nil), 1)
		require.Equal(t, "b", <-began)
		require.Equal(t, "a", <-began)
		require.NoError(t, stop())
	})
}

// With the order Strict, a later queue runs only while the earlier queues are empty, even if an earlier
// queue gets a job meanwhile.
func TestWorkers_Strict(t *testing.T) {
	t.Parallel()
	db := honkertest.Open(t, nil)
	names := kinds(t, db, 0, 3, 4)
	a := honker.NewQueue[int](db, "a", nil)
	var order []string
	ctx, cancel := context.WithCancel(testkit.Context(t, testkit.Timeout))
	defer cancel()
	w := testkit.Workers(db, &honker.WorkersOptions{Order: honker.Strict}, names, func(ctx context.Context, job *honker.Job[int]) error {
		order = append(order, fmt.Sprint(job.Queue, job.Args))
		if job.Queue == "c" && job.Args == 1 {
			_, err := a.Enqueue(ctx, 9)
			require.NoError(t, err)
		}
		if len(order) == 8 {
			cancel()
		}
		return nil
	})
	require.NoError(t, w.Work(ctx, one()))
	require.Equal(t, []string{"b0", "b1", "b2", "c0", "c1", "a9", "c2", "c3"}, order)
}

// Queues that take turns share the worker equally, or in the proportion of their weights.
func TestWorkers_InTurns_Shares(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		weights map[string]int
		want    map[string]int // of 60 jobs
	}{
		{nil, map[string]int{"a": 20, "b": 20, "c": 20}},
		{map[string]int{"a": 3, "b": 2}, map[string]int{"a": 30, "b": 20, "c": 10}},
		{map[string]int{"c": 10}, map[string]int{"a": 5, "b": 5, "c": 50}},
	} {
		for _, workers := range []int{1, 5} {
			db := honkertest.Open(t, nil)
			got := map[string]int{}
			taken := make(chan string, 200)
			w := testkit.Workers(db, &honker.WorkersOptions{Order: honker.InTurns, Weights: c.weights}, kinds(t, db, 60, 60, 60),
				func(_ context.Context, job *honker.Job[int]) error {
					taken <- job.Queue
					return nil
				})
			stop := testkit.Background(t, func(ctx context.Context) error {
				return w.Work(ctx, &honker.WorkOptions{Pool: honker.NewPool(workers)})
			})
			for range 60 {
				got[<-taken]++
			}
			require.NoError(t, stop())
			for name, want := range c.want {
				require.InDelta(t, want, got[name], float64(2*workers), "%v, %d workers: %v", c.weights, workers, got)
			}
		}
	}
}

// A queue that was empty does not catch up on missed turns.
func TestWorkers_InTurns_NoCredit(t *testing.T) {
	t.Parallel()
	db := honkertest.Open(t, nil)
	b := honker.NewQueue[int](db, "b", nil)
	var order []string
	ctx, cancel := context.WithCancel(testkit.Context(t, testkit.Timeout))
	defer cancel()
	w := testkit.Workers(db, &honker.WorkersOptions{Order: honker.InTurns}, kinds(t, db, 60, 0), func(ctx context.Context, job *honker.Job[int]) error {
		if order = append(order, job.Queue); len(order) == 40 {
			enqueueN(t, b, 10)
		}
		if len(order) == 60 {
			cancel()
		}
		return nil
	})
	require.NoError(t, w.Work(ctx, one()))
	require.NotContains(t, order[:40], "b")
	n := 0
	for _, name := range order[40:50] {
		if name == "b" {
			n++
		}
	}
	require.InDelta(t, 5, n, 1, "they take turns: %v", order[40:])
}

// With each order, the jobs of a queue run in its claim order.
func TestWorkers_OrderWithin(t *testing.T) {
	t.Parallel()
	for _, order := range orders {
		db := honkertest.Open(t, nil)
		names := kinds(t, db, 2, 2)
		for _, name := range names {
			q := honker.NewQueue[int](db, name, nil)
			testkit.Enqueue(t, q, 100, honker.Priority(5))
			testkit.Enqueue(t, q, 101, honker.Priority(-5))
			testkit.Enqueue(t, q, 102, honker.Priority(5))
			testkit.Enqueue(t, q, 103, honker.Delay(time.Hour), honker.Priority(9))
		}
		got := map[string][]int{}
		ctx, cancel := context.WithCancel(testkit.Context(t, testkit.Timeout))
		n := 0
		w := testkit.Workers(db, &honker.WorkersOptions{Order: order}, names, func(_ context.Context, job *honker.Job[int]) error {
			got[job.Queue] = append(got[job.Queue], job.Args)
			if n++; n == 10 {
				cancel()
			}
			return nil
		})
		require.NoError(t, w.Work(ctx, &honker.WorkOptions{Workers: 1}))
		for _, name := range names {
			require.Equal(t, []int{100, 102, 0, 1, 101}, got[name])
		}
	}
}

// Each queue has many jobs of the same second with two priorities. Single-job and multi-job claims keep the
// turns of the queues and the order within each queue.
func TestWorkers_InTurns_SameSecond(t *testing.T) {
	names := []string{"a", "b", "c"}
	for _, handlers := range []int{1, 7, 64} {
		testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
			want := map[string][]int64{} // ids in claim order
			for _, name := range names {
				q := honker.NewQueue[int](db, name, nil)
				usual, err := q.EnqueueMany(t.Context(), make([]int, 1000))
				require.NoError(t, err)
				urgent, err := q.EnqueueMany(t.Context(), make([]int, 50), honker.Priority(1))
				require.NoError(t, err)
				want[name] = append(urgent, usual...)
			}
			taken, gate := make(chan *honker.Job[int], handlers), make(chan struct{})
			w := testkit.Workers(db, &honker.WorkersOptions{Order: honker.InTurns, Weights: map[string]int{"a": 2}}, names,
				func(ctx context.Context, job *honker.Job[int]) error {
					taken <- job
					select {
					case <-gate:
					case <-ctx.Done():
					}
					return nil
				})
			stop := testkit.Background(t, func(ctx context.Context) error {
				return w.Work(ctx, &honker.WorkOptions{Pool: honker.NewPool(handlers), DrainTimeout: time.Second})
			})
			got := map[string][]int64{}
			for n := handlers; n <= 400; n += handlers {
				for range handlers {
					job := <-taken
					got[job.Queue] = append(got[job.Queue], job.ID)
				}
				for name, quarters := range map[string]int{"a": 2, "b": 1, "c": 1} {
					require.InDelta(t, float64(n*quarters)/4, len(got[name]), 1, "%s of %d", name, n)
					require.Equal(t, slices.Sorted(slices.Values(want[name][:len(got[name])])), slices.Sorted(slices.Values(got[name])))
				}
				for range handlers {
					gate <- struct{}{}
				}
			}
			require.NoError(t, stop())
		})
	}
}

// A commit to any of the queues wakes the worker.
func TestWorkers_Wake(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		names := kinds(t, db, 0, 0, 0)
		got := make(chan string, 1)
		w := testkit.Workers(db, nil, names, func(_ context.Context, job *honker.Job[int]) error {
			got <- job.Queue
			return nil
		})
		testkit.Background(t, func(ctx context.Context) error { return w.Work(ctx, nil) })
		for _, name := range []string{"c", "a", "b"} {
			time.Sleep(time.Minute)
			began := time.Now()
			q := honker.NewQueue[int](db, name, nil)
			testkit.Enqueue(t, q, 1)
			require.Equal(t, name, <-got)
			require.Zero(t, time.Since(began))
			testkit.Enqueue(t, q, 2, honker.Delay(5*time.Second))
			require.Equal(t, name, <-got)
			require.Equal(t, 5*time.Second, time.Since(began))
		}
	})
}

// In each queue, failures are retried and dead-lettered, lapsed claims are claimed again, and spent and
// expired jobs are dead-lettered. The observer hears of each of these with its queue.
func TestWorkers_EveryEnd(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, seen *testkit.Recorder) {
		ctx := context.Background()
		names := kinds(t, db, 0, 0)
		opts := &honker.QueueOptions{MaxAttempts: 2, Backoff: honker.Constant(time.Second), Timeout: time.Minute}
		want := map[string]int{}
		for _, name := range names {
			q := honker.NewQueue[int](db, name, &honker.QueueOptions{MaxAttempts: 2, Lease: time.Second})
			once := honker.NewQueue[int](db, name, &honker.QueueOptions{MaxAttempts: 1, Lease: time.Second})
			testkit.Enqueue(t, once, 3)
			_, err := once.Claim(ctx, "gone", 1) // spends the only attempt
			require.NoError(t, err)
			testkit.Enqueue(t, q, 4)
			_, err = q.Claim(ctx, "gone", 1) // lets the claim lapse
			require.NoError(t, err)
			testkit.Enqueue(t, q, 1)
			testkit.Enqueue(t, q, 2)
			want[name+" acked"], want[name+" retried"], want[name+" died"] = 2, 1, 2
		}
		time.Sleep(3 * time.Second)
		w := honker.NewWorkers(db, nil)
		for _, name := range names {
			honker.Handle(w, honker.NewQueue[int](db, name, opts), func(ctx context.Context, job *honker.Job[int]) error {
				require.NotEqual(t, 3, job.Args)
				if job.Args == 2 {
					<-ctx.Done()
					return errors.New("too long")
				}
				return nil
			})
		}
		stop := testkit.Background(t, func(ctx context.Context) error { return w.Work(ctx, &honker.WorkOptions{Workers: 4}) })
		time.Sleep(10 * time.Minute)
		require.NoError(t, stop())
		got := map[string]int{}
		for _, e := range testkit.Recorded(seen, &seen.Settled) {
			got[fmt.Sprint(e.Queue, " ", e.Outcome)]++
		}
		require.Equal(t, want, got)
		for _, q := range queuesOf(db, names) {
			require.Zero(t, liveJobs(t, q))
			require.EqualValues(t, 2, stats(t, q).Dead.N)
		}
	})
}

// The handlers of all queues together do not exceed Workers, and every job runs once.
func TestWorkers_Bound(t *testing.T) {
	t.Parallel()
	db := honkertest.Open(t, nil)
	names := kinds(t, db, 300, 200, 100)
	r := new(running)
	stop := testkit.Background(t, func(ctx context.Context) error {
		return testkit.Workers(db, nil, names, r.lasting(0)).Work(ctx, &honker.WorkOptions{Workers: 3})
	})
	testkit.Eventually(t, testkit.Timeout, "all done", func() bool {
		return liveJobs(t, queuesOf(db, names)...) == 0
	})
	require.NoError(t, stop())
	require.EqualValues(t, 600, r.total.Load())
	require.LessOrEqual(t, r.most.Load(), int64(3))
}

// In any queue, a running job can be cancelled, and HandleTx settles jobs.
func TestWorkers_CancelAndTx(t *testing.T) {
	t.Parallel()
	db := honkertest.Open(t, nil)
	names := kinds(t, db, 0, 0)
	began, ended := make(chan int64), make(chan error)
	w := testkit.Workers(db, nil, names, func(ctx context.Context, job *honker.Job[int]) error {
		began <- job.ID
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return nil
	})
	stop := testkit.Background(t, func(ctx context.Context) error { return w.Work(ctx, nil) })
	for _, name := range names {
		q := honker.NewQueue[int](db, name, nil)
		testkit.Enqueue(t, q, 1)
		ok, err := q.Cancel(t.Context(), <-began)
		require.NoError(t, err)
		require.True(t, ok)
		require.ErrorIs(t, <-ended, honker.ErrCancelled)
	}
	require.NoError(t, stop())

	testkit.Exec(t, db, `CREATE TABLE finished (queue TEXT)`)
	kinds(t, db, 2, 2)
	ctx, cancel := context.WithCancel(testkit.Context(t, testkit.Timeout))
	defer cancel()
	w = honker.NewWorkers(db, nil)
	for _, name := range names {
		honker.HandleTx(w, honker.NewQueue[int](db, name, nil), func(ctx context.Context, tx *sql.Tx, job *honker.Job[int]) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO finished VALUES ($1)`, job.Queue)
			return err
		})
	}
	testkit.Background(t, func(context.Context) error { return w.Work(ctx, nil) })
	testkit.Eventually(t, testkit.Timeout, "all done", func() bool {
		return liveJobs(t, queuesOf(db, names)...) == 0
	})
	rows, err := testkit.Rows(db.SQL(), `SELECT queue FROM finished ORDER BY queue`)
	require.NoError(t, err)
	require.Len(t, rows, 4)
	require.Equal(t, 2, slices.Index(rows, rows[2]), "two of each: %v", rows)
}

// A paused queue is skipped until its pause ends, without a busy loop.
func TestWorkers_Pause(t *testing.T) {
	t.Parallel()
	for _, order := range orders {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			db := honkertest.Open(t, nil)
			ran := make(chan string, 3)
			w := testkit.Workers(db, &honker.WorkersOptions{Order: order}, kinds(t, db, 3, 2), func(_ context.Context, job *honker.Job[int]) error {
				ran <- job.Queue
				return nil
			})
			a, b := honker.NewQueue[int](db, "a", nil), honker.NewQueue[int](db, "b", nil)
			_, err := a.Pause(t.Context(), nil)
			require.NoError(t, err)
			stop := testkit.Background(t, func(ctx context.Context) error { return w.Work(ctx, one()) })
			within := testkit.Context(t, testkit.Timeout)
			next := func() string {
				select {
				case queue := <-ran:
					return queue
				case <-within.Done():
					return "none"
				}
			}
			testkit.Enqueue(t, b, 7)
			for range 3 {
				require.Equal(t, "b", next())
			}
			_, err = a.Resume(t.Context())
			require.NoError(t, err)
			for range 3 {
				require.Equal(t, "a", next())
			}
			require.NoError(t, stop())
		})
	}
}
