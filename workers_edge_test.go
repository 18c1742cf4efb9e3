package honker_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/observe"
)

// An observer that changes the list of queues changes its own copy. Each job reaches the handler of its queue.
func TestWorkers_Observer_OwnList(t *testing.T) {
	t.Parallel()
	db := honkertest.Open(t, &honker.Options{Observer: &observe.Observer{Working: func(w observe.Working) { slices.Reverse(w.Queues) }}})
	numbers, texts := honker.NewQueue[int](db, "a", nil), honker.NewQueue[string](db, "b", nil)
	w := honker.NewWorkers(db, nil)
	var got []any
	honker.Handle(w, numbers, func(_ context.Context, job *honker.Job[int]) error { got = append(got, job.Args); return nil })
	honker.Handle(w, texts, func(_ context.Context, job *honker.Job[string]) error { got = append(got, job.Args); return nil })
	testkit.Enqueue(t, numbers, 1)
	testkit.Enqueue(t, texts, "x")
	n, err := w.WorkDue(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Equal(t, []any{1, "x"}, got)
}

// A claim holds only some of the jobs whose key is full, and may then return no job. WorkDue goes on to the
// jobs behind them.
func TestWorkers_WorkDue_BehindHeldJobs(t *testing.T) {
	t.Parallel()
	ctx, db, a := testkit.NewQueue[int](t, nil)
	b := honker.NewQueue[int](db, "b", nil)
	require.NoError(t, a.SetLimits(ctx, honker.Limits{PerKey: 1}))
	_, err := a.EnqueueMany(ctx, make([]int, 3000), honker.Key("full"), honker.Priority(1))
	require.NoError(t, err)
	held := testkit.ClaimOne(t, a)
	testkit.Enqueue(t, a, 1, honker.Key("free"))
	testkit.Enqueue(t, b, 1)
	var ran []string
	w := testkit.Workers(db, nil, []string{a.Name(), "b"}, func(_ context.Context, job *honker.Job[int]) error {
		ran = append(ran, job.Queue+" "+job.Key)
		return nil
	})
	n, err := w.WorkDue(ctx, nil)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Equal(t, []string{a.Name() + " free", "b "}, ran)
	require.NoError(t, held.Ack(ctx))
}

// The names of queues may need escapes, and a Workers may have hundreds of queues.
func TestWorkers_ManyNames(t *testing.T) {
	t.Parallel()
	_, db, _ := testkit.NewQueue[int](t, nil)
	names := []string{`quote"back\slash`, "line\nbreak\ttab", "<&>\u2028 日本", `["x",1]`, "null", "a, b", "'; --"}
	for i := range 120 {
		names = append(names, fmt.Sprint("kind", i))
	}
	for _, order := range []honker.Order{honker.ByPriority, honker.InTurns, honker.Strict} {
		for i, name := range names {
			if i < 20 || i%10 == 0 {
				testkit.Enqueue(t, honker.NewQueue[int](db, name, nil), 1)
			}
		}
		ran := map[string]int{}
		w := testkit.Workers(db, &honker.WorkersOptions{Order: order}, names, func(_ context.Context, job *honker.Job[int]) error {
			ran[job.Queue]++
			return nil
		})
		n, err := w.WorkDue(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, len(ran), n)
		for i, name := range names {
			require.Equal(t, i < 20 || i%10 == 0, ran[name] == 1, name)
		}
	}
}

// Several Works of the same Workers, on the same pool and each with turns of its own, share the jobs that several
// goroutines enqueue. Each job runs once, also while Works come and go.
func TestWorkers_ManyWorks(t *testing.T) {
	t.Parallel()
	ctx, db, _ := testkit.NewQueue[int](t, nil)
	names := []string{"a", "b", "c"}
	const each = 150
	var mu sync.Mutex
	ran := map[string]int{}
	var all sync.WaitGroup
	all.Add(len(names) * each)
	w := testkit.Workers(db, &honker.WorkersOptions{Order: honker.InTurns, Weights: map[string]int{"a": 3}}, names,
		func(_ context.Context, job *honker.Job[int]) error {
			mu.Lock()
			defer mu.Unlock()
			if what := fmt.Sprint(job.Queue, job.Args); ran[what] == 0 {
				ran[what]++
				all.Done()
			} else {
				ran[what]++
			}
			return nil
		})
	pool := honker.NewPool(4)
	var stops []func() error
	for i := range 4 {
		o := &honker.WorkOptions{Workers: 2}
		if i%2 == 0 {
			o = &honker.WorkOptions{Pool: pool}
		}
		stops = append(stops, testkit.Background(t, func(ctx context.Context) error { return w.Work(ctx, o) }))
	}
	var enqueues sync.WaitGroup
	for _, name := range names {
		q := honker.NewQueue[int](db, name, nil)
		enqueues.Go(func() {
			for i := range each {
				if _, err := q.Enqueue(ctx, i); err != nil {
					t.Error(err)
				}
				_ = testkit.Within(ctx, nil, time.Duration(i%4)*200*time.Microsecond)
			}
		})
	}
	require.NoError(t, stops[0]())
	require.NoError(t, stops[1]())
	enqueues.Wait()
	done := make(chan error, 1)
	go func() { all.Wait(); close(done) }()
	require.NoError(t, testkit.Within(ctx, done, testkit.Timeout))
	require.NoError(t, stops[2]())
	require.NoError(t, stops[3]())
	require.Len(t, ran, len(names)*each)
	for what, n := range ran {
		require.Equal(t, 1, n, what)
	}
}

// A job that was handed over takes the turn of its queue. The next job is of the other queue.
func TestWorkers_InTurns_HandoffTakesTurn(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		release, began := make(chan struct{}), make(chan string, 9)
		w := testkit.Workers(db, &honker.WorkersOptions{Order: honker.InTurns}, []string{"a", "b"}, func(_ context.Context, job *honker.Job[int]) error {
			began <- job.Queue
			<-release
			return nil
		})
		a, b := honker.NewQueue[int](db, "a", nil), honker.NewQueue[int](db, "b", nil)
		stop := testkit.Background(t, func(ctx context.Context) error { return w.Work(ctx, one()) })
		for i := range 5 {
			synctest.Wait()
			id := testkit.Enqueue(t, a, 1)
			require.Equal(t, honker.StateProcessing, testkit.GetJob(t, a, id).State, "handed over")
			require.Equal(t, "a", <-began)
			if i < 4 {
				release <- struct{}{}
			}
		}
		for range 2 {
			testkit.Enqueue(t, a, 1)
			testkit.Enqueue(t, b, 1)
		}
		for _, want := range []string{"b", "a", "b", "a"} {
			release <- struct{}{}
			require.Equal(t, want, <-began)
		}
		release <- struct{}{}
		require.NoError(t, stop())
	})
}

// Each kind keeps its results for the ResultTTL of its queue.
func TestWorkers_ResultTTL_PerKind(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx, db, a := testkit.NewQueue[int](t, &honker.QueueOptions{ResultTTL: time.Minute})
	b := honker.NewQueue[int](db, "b", &honker.QueueOptions{ResultTTL: 3 * time.Hour})
	w := honker.NewWorkers(db, nil)
	for _, q := range []*honker.Queue[int]{a, b} {
		honker.Handle(w, q, func(_ context.Context, job *honker.Job[int]) error { return job.SetResult(1) })
	}
	first, second := testkit.Enqueue(t, a, 1), testkit.Enqueue(t, b, 1)
	n, err := w.WorkDue(ctx, nil)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	requireKept(t, time.Minute, resultTTL(t, db, first))
	requireKept(t, 3*time.Hour, resultTTL(t, db, second))
}

// A change of the caller's Weights after NewWorkers has no effect.
func TestWorkers_Weights_Copied(t *testing.T) {
	t.Parallel()
	db := honkertest.Open(t, nil)
	weights := map[string]int{"a": 2}
	w := testkit.Workers(db, &honker.WorkersOptions{Order: honker.InTurns, Weights: weights}, kinds(t, db, 1, 1),
		func(context.Context, *honker.Job[int]) error { return nil })
	weights["a"] = -1
	n, err := w.WorkDue(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, 2, n)
}
