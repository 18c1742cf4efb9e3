package honker_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// running counts the handlers that run now, their maximum and their total.
type running struct{ now, most, total atomic.Int64 }

func (r *running) enter() (leave func()) {
	n := r.now.Add(1)
	for most := r.most.Load(); n > most && !r.most.CompareAndSwap(most, n); most = r.most.Load() {
	}
	r.total.Add(1)
	return func() { r.now.Add(-1) }
}

// lasting returns a handler that takes d.
func (r *running) lasting(d time.Duration) testkit.Handler[int] {
	return func(context.Context, *honker.Job[int]) error {
		defer r.enter()()
		time.Sleep(d)
		return nil
	}
}

func enqueueN(t testing.TB, q *honker.Queue[int], n int, opts ...honker.EnqueueOption) []int64 {
	t.Helper()
	ids, err := q.EnqueueMany(context.Background(), make([]int, n), opts...)
	require.NoError(t, err)
	return ids
}

// Each verb that takes a Pool refuses a Pool without slots.
func TestPool_Invalid(t *testing.T) {
	t.Parallel()
	ctx, db, q := testkit.NewQueue[int](t, nil)
	g := testkit.MemberGroup(db, time.Minute)
	for _, pool := range []*honker.Pool{honker.NewPool(0), honker.NewPool(-1), {}} {
		require.ErrorIs(t, q.Work(ctx, testkit.Succeed[int], &honker.WorkOptions{Pool: pool}), honker.ErrInvalid)
		_, err := q.WorkDue(ctx, testkit.Succeed[int], &honker.WorkOptions{Pool: pool})
		require.ErrorIs(t, err, honker.ErrInvalid)
		err = g.Work(ctx, func(context.Context, *honker.Delivery[int]) error { return nil }, &honker.GroupWorkOptions{Pool: pool})
		require.ErrorIs(t, err, honker.ErrInvalid)
	}
}

// Queues of many files share a single bound. The bound is reached and never exceeded, and each job runs
// once.
func TestPool_ManyFiles(t *testing.T) {
	t.Parallel()
	files, jobs := 300, 10
	if testing.Short() {
		files = 30
	}
	const slots = 8
	pool, r := honker.NewPool(slots), new(running)
	opts := &honker.WorkOptions{Pool: pool}
	dir := t.TempDir()
	for i := range files {
		db := honkertest.OpenFile(t, filepath.Join(dir, fmt.Sprint(i, ".db")), nil)
		q := honker.NewQueue[int](db, "jobs", nil)
		if i%2 == 0 {
			enqueueN(t, q, jobs)
		}
		stop := testkit.Work(t, q, r.lasting(time.Millisecond), opts)
		defer func() { require.NoError(t, stop()) }()
		if i%2 == 1 {
			enqueueN(t, q, jobs)
		}
	}
	testkit.Eventually(t, 3*testkit.Timeout, "all done", func() bool { return r.total.Load() >= int64(files*jobs) && r.now.Load() == 0 })
	require.EqualValues(t, files*jobs, r.total.Load())
	require.EqualValues(t, slots, r.most.Load())
}

// A busy queue may use the whole Pool while the other queues are idle, but no more slots than its Workers.
func TestPool_IdleReservesNothing(t *testing.T) {
	for _, c := range []struct{ workers, want int }{{0, 7}, {3, 3}, {100, 7}} {
		testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
			pool, r := honker.NewPool(7), new(running)
			for i := range 20 {
				q := honker.NewQueue[int](db, fmt.Sprint("idle-", i), nil)
				enqueueN(t, q, 1) // the idle queue has worked before
				testkit.Work(t, q, r.lasting(0), &honker.WorkOptions{Pool: pool})
			}
			time.Sleep(time.Second)
			r = new(running)
			busy := honker.NewQueue[int](db, "busy", nil)
			enqueueN(t, busy, 50)
			stop := testkit.Work(t, busy, r.lasting(time.Minute), &honker.WorkOptions{Pool: pool, Workers: c.workers})
			time.Sleep(30 * time.Minute)
			require.NoError(t, stop())
			require.EqualValues(t, 50, r.total.Load())
			require.EqualValues(t, c.want, r.most.Load())
		})
	}
}

// Beside a queue with a permanent backlog, a job of another queue waits for the end of a single handler and
// not for the backlog.
func TestPool_FullBesideTrickling(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		pool, full := honker.NewPool(2), new(running)
		opts := &honker.WorkOptions{Pool: pool}
		enqueueN(t, honker.NewQueue[int](db, "full", nil), 1000)
		testkit.Work(t, honker.NewQueue[int](db, "full", nil), full.lasting(10*time.Second), opts)
		trickle := honker.NewQueue[int](db, "trickle", nil)
		var began, enqueued []time.Time
		testkit.Work(t, trickle, func(context.Context, *honker.Job[int]) error {
			began = append(began, time.Now())
			return nil
		}, opts)
		for range 20 {
			time.Sleep(time.Minute + time.Second)
			enqueued = append(enqueued, time.Now())
			testkit.Enqueue(t, trickle, 1)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, began, 20)
		for i := range began {
			require.LessOrEqual(t, began[i].Sub(enqueued[i]), 10*time.Second)
		}
		require.Greater(t, full.total.Load(), int64(200), "and the other loses next to nothing")
	})
}

// Queues with permanent backlogs get equal shares, even of a single slot. Their Workers and order do not
// matter if their Workers are not below their share.
func TestPool_EqualShares(t *testing.T) {
	for _, slots := range []int{1, 3} {
		testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
			pool := honker.NewPool(slots)
			shares := make([]running, 5)
			for i := range shares {
				q := honker.NewQueue[int](db, fmt.Sprint(i), nil)
				enqueueN(t, q, 1000)
				testkit.Work(t, q, shares[i].lasting(time.Second), &honker.WorkOptions{Pool: pool, Workers: 3 + 3*i})
			}
			time.Sleep(500 * time.Second)
			for i := range shares {
				require.InDelta(t, 100*slots, shares[i].total.Load(), float64(5*slots), "queue %d of %d slots", i, slots)
			}
		})
	}
}

// A job that waits for a slot is not claimed. Neither its Timeout nor its attempts are used up, another
// worker can claim it, and a job of higher priority overtakes it.
func TestPool_NothingClaimedThatCannotStart(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		pool := honker.NewPool(1)
		opts := &honker.WorkOptions{Pool: pool, Workers: 5}
		holder := honker.NewQueue[int](db, "holder", nil)
		goOn := make(chan struct{})
		testkit.Work(t, holder, func(context.Context, *honker.Job[int]) error { <-goOn; return nil }, opts)

		q := honker.NewQueue[int](db, "waits", &honker.QueueOptions{Timeout: time.Second})
		var order []int
		testkit.Work(t, q, func(ctx context.Context, job *honker.Job[int]) error {
			order = append(order, job.Args)
			return ctx.Err()
		}, opts)
		time.Sleep(time.Second) // both workers are idle and can be handed jobs
		testkit.Enqueue(t, holder, 0)
		synctest.Wait()
		first := testkit.Enqueue(t, q, 1)
		second := testkit.Enqueue(t, q, 2)
		testkit.Enqueue(t, q, 3, honker.Priority(1))
		time.Sleep(time.Hour)
		for _, id := range []int64{first, second} {
			info := testkit.GetJob(t, q, id)
			require.Equal(t, honker.StatePending, info.State)
			require.Zero(t, info.Attempts)
		}
		jobs := testkit.Claim(t, q, 1)
		require.Equal(t, 3, jobs[0].Args)
		require.NoError(t, jobs[0].Ack(context.Background()))
		testkit.Enqueue(t, q, 4, honker.Priority(1))
		close(goOn)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, []int{4, 1, 2}, order)
	})
}

// A handler that never ends, even after its Work has returned, holds a single slot.
func TestPool_EndlessHandler(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		pool, r := honker.NewPool(3), new(running)
		stuck := honker.NewQueue[int](db, "stuck", &honker.QueueOptions{Timeout: time.Second})
		enqueueN(t, stuck, 1)
		goOn := make(chan struct{})
		stopStuck := testkit.Work(t, stuck, func(context.Context, *honker.Job[int]) error { <-goOn; return nil },
			&honker.WorkOptions{Pool: pool, DrainTimeout: time.Second})
		time.Sleep(time.Minute)
		ended := make(chan error, 1)
		go func() { ended <- stopStuck() }()
		time.Sleep(time.Minute) // the handler is given up and its job released
		require.Equal(t, honker.StatePending, testkit.GetJob(t, stuck, 1).State)

		others := honker.NewQueue[int](db, "others", nil)
		enqueueN(t, others, 20)
		testkit.Work(t, others, r.lasting(time.Second), &honker.WorkOptions{Pool: pool, Workers: 10})
		time.Sleep(time.Minute)
		require.EqualValues(t, 2, r.most.Load())
		require.EqualValues(t, 20, r.total.Load())
		close(goOn)
		require.NoError(t, <-ended)
		enqueueN(t, others, 20)
		time.Sleep(time.Minute)
		require.EqualValues(t, 3, r.most.Load(), "and gives it back")
	})
}

// However a handler ends, its slot is returned, in Work and in WorkDue.
func TestPool_HandlerEnds(t *testing.T) {
	ends := map[string]testkit.Handler[int]{
		"done":   testkit.Succeed[int],
		"error":  func(context.Context, *honker.Job[int]) error { return testkit.ErrCause },
		"reject": func(context.Context, *honker.Job[int]) error { return honker.Reject(testkit.ErrCause) },
		"snooze": func(context.Context, *honker.Job[int]) error { return honker.Snooze(time.Second) },
		"panic":  func(context.Context, *honker.Job[int]) error { panic("no") },
		"goexit": func(context.Context, *honker.Job[int]) error { runtime.Goexit(); return nil },
		"acked":  func(ctx context.Context, job *honker.Job[int]) error { return job.Ack(ctx) },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
				pool, r := honker.NewPool(2), new(running)
				q := honker.NewQueue[int](db, "ends", &honker.QueueOptions{MaxAttempts: 3})
				enqueueN(t, q, 10)
				stop := testkit.Work(t, q, end, &honker.WorkOptions{Pool: pool})
				time.Sleep(time.Minute)
				require.NoError(t, stop())
				enqueueN(t, q, 1)
				synctest.Wait()
				due := make(chan struct{})
				go func() { // runs in its own goroutine, because the handler may end it
					defer close(due)
					ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
					defer cancel()
					_, _ = q.WorkDue(ctx, end, &honker.WorkOptions{Pool: pool})
				}()
				<-due
				others := honker.NewQueue[int](db, "others", nil)
				enqueueN(t, others, 10)
				testkit.Work(t, others, r.lasting(time.Second), &honker.WorkOptions{Pool: pool, Workers: 10})
				time.Sleep(time.Minute)
				require.EqualValues(t, 10, r.total.Load())
				require.EqualValues(t, 2, r.most.Load())
			})
		})
	}
}

// A Work that waits for a slot returns at once when its ctx ends or its DB is closed. The other Works
// continue.
func TestPool_EndsWhileWaiting(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		pool, r := honker.NewPool(1), new(running)
		opts := &honker.WorkOptions{Pool: pool}
		holder := honker.NewQueue[int](db, "holder", nil)
		enqueueN(t, holder, 3)
		testkit.Work(t, holder, r.lasting(time.Minute), opts)
		synctest.Wait()

		q := honker.NewQueue[int](db, "waits", nil)
		enqueueN(t, q, 1)
		stop := testkit.Work(t, q, r.lasting(0), opts)
		other, err := honker.Open(context.Background(), filepath.Join(t.TempDir(), "other.db"),
			&honker.Options{NoFileNotices: true, PollInterval: time.Hour, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		inOther := honker.NewQueue[int](other, "waits", nil)
		enqueueN(t, inOther, 1)
		closed := make(chan error, 1)
		go func() { closed <- inOther.Work(context.Background(), r.lasting(0), opts) }()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		began := time.Now()
		n, err := q.WorkDue(ctx, r.lasting(0), opts)
		require.Zero(t, n)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, stop())
		require.NoError(t, other.Close())
		require.ErrorIs(t, <-closed, honker.ErrClosed)
		require.Equal(t, 5*time.Second, time.Since(began))

		time.Sleep(5 * time.Minute)
		require.EqualValues(t, 3, r.total.Load())
		_, err = q.WorkDue(context.Background(), r.lasting(0), opts)
		require.NoError(t, err)
		require.EqualValues(t, 4, r.total.Load(), "the slot is free again")
	})
}

// A Pool can be used after its DBs are closed.
func TestPool_OutlivesDB(t *testing.T) {
	t.Parallel()
	pool, r := honker.NewPool(2), new(running)
	for range 3 {
		db, err := honker.Open(context.Background(), filepath.Join(t.TempDir(), "gone.db"), nil)
		require.NoError(t, err)
		q := honker.NewQueue[int](db, "jobs", nil)
		before := r.total.Load()
		enqueueN(t, q, 100)
		ended := make(chan error, 1)
		go func() {
			ended <- q.Work(context.Background(), r.lasting(time.Millisecond), &honker.WorkOptions{Pool: pool})
		}()
		testkit.Eventually(t, testkit.Timeout, "it works", func() bool { return r.total.Load() > before+5 })
		require.NoError(t, db.Close())
		require.ErrorIs(t, <-ended, honker.ErrClosed)
	}
	require.EqualValues(t, 2, r.most.Load())
}

// A file with a busy writer holds a single slot, not one for each of its Workers.
func TestPool_BusyFile(t *testing.T) {
	t.Parallel()
	pool, r := honker.NewPool(2), new(running)
	opts := &honker.WorkOptions{Pool: pool}
	ctx, busy, locked := testkit.NewQueue[int](t, nil)
	enqueueN(t, locked, 100)
	goOn := make(chan struct{})
	begun := make(chan struct{})
	go func() { _ = busy.Tx(ctx, func(context.Context, *sql.Tx) error { close(begun); <-goOn; return nil }) }()
	<-begun
	testkit.Work(t, locked, r.lasting(0), opts)
	others := honker.NewQueue[int](honkertest.Open(t, nil), "jobs", nil)
	enqueueN(t, others, 50)
	testkit.Work(t, others, r.lasting(time.Millisecond), opts)
	testkit.Eventually(t, testkit.Timeout, "the others are done", func() bool { return r.total.Load() == 50 })
	close(goOn)
	testkit.Eventually(t, testkit.Timeout, "all done", func() bool { return r.total.Load() == 150 })
}

// A group and a queue share a bound. Events that wait for a slot are not leased to a member.
func TestPool_Group(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		pool, r := honker.NewPool(2), new(running)
		enqueueN(t, honker.NewQueue[int](db, "jobs", nil), 60)
		testkit.Work(t, honker.NewQueue[int](db, "jobs", nil), r.lasting(10*time.Second), &honker.WorkOptions{Pool: pool})
		g := testkit.MemberGroup(db, time.Minute)
		var events running
		workGroup(t, g, func(context.Context, *honker.Delivery[int]) error {
			defer r.enter()()
			defer events.enter()()
			time.Sleep(10 * time.Second)
			if events.total.Load()%5 == 0 {
				return testkit.ErrCause // the event is delivered again
			}
			return nil
		}, &honker.GroupWorkOptions{Pool: pool})
		time.Sleep(time.Second)
		stocked(t, db, 60)
		synctest.Wait()
		require.LessOrEqual(t, testkit.GroupInfo(t, g).Leased, int64(2))
		time.Sleep(200 * time.Second)
		require.InDelta(t, 20, events.total.Load(), 2, "half of the Pool")
		time.Sleep(time.Hour)
		require.EqualValues(t, 2, r.most.Load())
		require.EqualValues(t, 60, testkit.GroupInfo(t, g).LowWater)
		require.EqualValues(t, 2, events.most.Load(), "all of it, once the queue is empty")
	})
}

// Slots are returned once each after an event that does not decode, after a handler that panics, and after
// a claim that found fewer events than it had slots for.
func TestPool_Group_SlotsComeBack(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		pool, r := honker.NewPool(2), new(running)
		words := honker.NewStream[string](db, "orders", nil)
		for range 10 {
			_, err := words.Publish(context.Background(), "no number")
			require.NoError(t, err)
		}
		stocked(t, db, 10)
		g := testkit.MemberGroup(db, time.Minute)
		stop := workGroup(t, g, func(_ context.Context, d *honker.Delivery[int]) error {
			defer r.enter()()
			if d.Data == 3 && d.Attempts == 1 {
				panic("three")
			}
			return nil
		}, &honker.GroupWorkOptions{Pool: pool})
		time.Sleep(time.Minute)
		require.EqualValues(t, 11, r.total.Load())
		stocked(t, db, 1) // a single event for two idle workers
		time.Sleep(time.Minute)

		var jobs running
		q := honker.NewQueue[int](db, "jobs", nil)
		enqueueN(t, q, 10)
		testkit.Work(t, q, jobs.lasting(time.Second), &honker.WorkOptions{Pool: pool, Workers: 10})
		time.Sleep(time.Minute)
		require.EqualValues(t, 2, jobs.most.Load())
		require.EqualValues(t, 10, jobs.total.Load())
		require.NoError(t, stop())
	})
}

// lanesOf creates queues a, b, … with n jobs each. The arguments count up within each queue.
func lanesOf(t *testing.T, db *honker.DB, sizes ...int) (names []string) {
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

// takeLanes runs Work with a single worker and nothing claimed ahead until n jobs have run. It returns
// their queues in order.
func takeLanes(t *testing.T, l *honker.Lanes[int], n int) (order []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(testkit.Context(t, testkit.Timeout))
	defer cancel()
	require.NoError(t, l.Work(ctx, func(_ context.Context, job *honker.Job[int]) error {
		order = append(order, job.Queue)
		if len(order) == n {
			cancel()
		}
		return nil
	}, &honker.WorkOptions{Pool: honker.NewPool(1)}))
	require.Len(t, order, n)
	return order
}

// Work refuses invalid lanes and claims nothing.
func TestLanes_Invalid(t *testing.T) {
	t.Parallel()
	db := honkertest.Open(t, nil)
	lanesOf(t, db, 1, 1)
	ab := []string{"a", "b"}
	for name, l := range map[string]*honker.Lanes[int]{
		"no queue":           honker.NewLanes[int](db, nil, nil),
		"an empty list":      honker.NewLanes[int](db, []string{}, nil),
		"an empty name":      honker.NewLanes[int](db, []string{"a", ""}, nil),
		"a repeated name":    honker.NewLanes[int](db, []string{"a", "b", "a"}, nil),
		"a NUL":              honker.NewLanes[int](db, []string{"a\x00"}, nil),
		"weight 0":           honker.NewLanes[int](db, ab, &honker.LaneOptions{Weights: map[string]int{"a": 0}}),
		"a negative weight":  honker.NewLanes[int](db, ab, &honker.LaneOptions{Weights: map[string]int{"b": -1}}),
		"weight of no lane":  honker.NewLanes[int](db, ab, &honker.LaneOptions{Weights: map[string]int{"c": 1}}),
		"strict and weights": honker.NewLanes[int](db, ab, &honker.LaneOptions{Strict: true, Weights: map[string]int{"a": 1}}),
		"queue options":      honker.NewLanes[int](db, ab, &honker.LaneOptions{Queue: &honker.QueueOptions{Timeout: -1}}),
	} {
		require.ErrorIs(t, l.Work(t.Context(), testkit.Succeed[int], nil), honker.ErrInvalid, name)
		require.ErrorIs(t, l.WorkTx(t.Context(), testkit.SucceedTx[int], nil), honker.ErrInvalid, name)
	}
	bytes := honker.NewLanes[[]byte](db, ab, nil)
	require.ErrorIs(t, bytes.Work(t.Context(), testkit.Succeed[[]byte], nil), honker.ErrInvalid)
	l := honker.NewLanes[int](db, ab, nil)
	require.ErrorIs(t, l.Work(t.Context(), nil, nil), honker.ErrInvalid)
	require.ErrorIs(t, l.WorkTx(t.Context(), nil, nil), honker.ErrInvalid)
	require.ErrorIs(t, l.Work(t.Context(), testkit.Succeed[int], &honker.WorkOptions{Workers: -1}), honker.ErrInvalid)
	require.EqualValues(t, 2, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live WHERE state = 'pending' AND attempts = 0`))
}

// With Strict lanes a later queue runs only while the earlier queues are empty, even if an earlier queue
// gets a job meanwhile.
func TestLanes_Strict(t *testing.T) {
	t.Parallel()
	db := honkertest.Open(t, nil)
	names := lanesOf(t, db, 0, 3, 4)
	a := honker.NewQueue[int](db, "a", nil)
	l := honker.NewLanes[int](db, names, &honker.LaneOptions{Strict: true})
	var order []string
	ctx, cancel := context.WithCancel(testkit.Context(t, testkit.Timeout))
	defer cancel()
	require.NoError(t, l.Work(ctx, func(ctx context.Context, job *honker.Job[int]) error {
		order = append(order, fmt.Sprint(job.Queue, job.Args))
		if job.Queue == "c" && job.Args == 1 {
			_, err := a.Enqueue(ctx, 9)
			require.NoError(t, err)
		}
		if len(order) == 8 {
			cancel()
		}
		return nil
	}, &honker.WorkOptions{Pool: honker.NewPool(1)}))
	require.Equal(t, []string{"b0", "b1", "b2", "c0", "c1", "a9", "c2", "c3"}, order)
}

// Lanes without options take turns. With Weights they share the worker in the proportion and order of the
// weights.
func TestLanes_Weights_Shares(t *testing.T) {
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
			l := honker.NewLanes[int](db, lanesOf(t, db, 60, 60, 60), &honker.LaneOptions{Weights: c.weights})
			got := map[string]int{}
			taken := make(chan string, 200)
			stop := testkit.Background(t, func(ctx context.Context) error {
				return l.Work(ctx, func(_ context.Context, job *honker.Job[int]) error {
					taken <- job.Queue
					return nil
				}, &honker.WorkOptions{Pool: honker.NewPool(workers)})
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

// A lane that returns after a pause does not catch up on missed turns.
func TestLanes_Weights_NoCredit(t *testing.T) {
	t.Parallel()
	db := honkertest.Open(t, nil)
	l := honker.NewLanes[int](db, lanesOf(t, db, 60, 0), nil)
	b := honker.NewQueue[int](db, "b", nil)
	var order []string
	ctx, cancel := context.WithCancel(testkit.Context(t, testkit.Timeout))
	defer cancel()
	require.NoError(t, l.Work(ctx, func(ctx context.Context, job *honker.Job[int]) error {
		if order = append(order, job.Queue); len(order) == 40 {
			enqueueN(t, b, 10)
		}
		if len(order) == 60 {
			cancel()
		}
		return nil
	}, &honker.WorkOptions{Pool: honker.NewPool(1)}))
	require.NotContains(t, order[:40], "b")
	n := 0
	for _, name := range order[40:50] {
		if name == "b" {
			n++
		}
	}
	require.InDelta(t, 5, n, 1, "they take turns: %v", order[40:])
}

// Within a lane, jobs run in the claim order of their queue.
func TestLanes_OrderWithin(t *testing.T) {
	t.Parallel()
	for _, o := range []*honker.LaneOptions{nil, {Strict: true}} {
		db := honkertest.Open(t, nil)
		names := lanesOf(t, db, 2, 2)
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
		require.NoError(t, honker.NewLanes[int](db, names, o).Work(ctx, func(_ context.Context, job *honker.Job[int]) error {
			got[job.Queue] = append(got[job.Queue], job.Args)
			if n++; n == 10 {
				cancel()
			}
			return nil
		}, &honker.WorkOptions{Workers: 1}))
		for _, name := range names {
			require.Equal(t, []int{100, 102, 0, 1, 101}, got[name])
		}
	}
}

// Each lane has many jobs of the same second with two priorities. Single-job and multi-job claims keep the
// turns of the lanes and the order within each lane.
func TestLanes_SameSecond(t *testing.T) {
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
			stop := testkit.Background(t, func(ctx context.Context) error {
				return honker.NewLanes[int](db, names, &honker.LaneOptions{Weights: map[string]int{"a": 2}}).Work(ctx,
					func(ctx context.Context, job *honker.Job[int]) error {
						taken <- job
						select {
						case <-gate:
						case <-ctx.Done():
						}
						return nil
					}, &honker.WorkOptions{Pool: honker.NewPool(handlers), DrainTimeout: time.Second})
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

// A commit to any lane wakes the worker.
func TestLanes_Wake(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		names := lanesOf(t, db, 0, 0, 0)
		got := make(chan string, 1)
		testkit.Background(t, func(ctx context.Context) error {
			return honker.NewLanes[int](db, names, nil).Work(ctx, func(_ context.Context, job *honker.Job[int]) error {
				got <- job.Queue
				return nil
			}, nil)
		})
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

// In each lane, failures are retried and dead-lettered, lapsed claims are claimed again, and spent and
// expired jobs are dead-lettered. The observer hears of each of these with its queue.
func TestLanes_EveryEnd(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, seen *testkit.Recorder) {
		ctx := context.Background()
		names := lanesOf(t, db, 0, 0)
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
		l := honker.NewLanes[int](db, names, &honker.LaneOptions{Queue: opts})
		stop := testkit.Background(t, func(ctx context.Context) error {
			return l.Work(ctx, func(ctx context.Context, job *honker.Job[int]) error {
				require.NotEqual(t, 3, job.Args)
				if job.Args == 2 {
					<-ctx.Done()
					return errors.New("too long")
				}
				return nil
			}, &honker.WorkOptions{Workers: 4})
		})
		time.Sleep(10 * time.Minute)
		require.NoError(t, stop())
		got := map[string]int{}
		for _, e := range testkit.Recorded(seen, &seen.Settled) {
			got[fmt.Sprint(e.Queue, " ", e.Outcome)]++
		}
		require.Equal(t, want, got)
		require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live`))
		require.EqualValues(t, 4, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_dead`))
	})
}

// The handlers of all lanes together do not exceed Workers, and every job runs once.
func TestLanes_Workers(t *testing.T) {
	t.Parallel()
	db := honkertest.Open(t, nil)
	names := lanesOf(t, db, 300, 200, 100)
	r := new(running)
	stop := testkit.Background(t, func(ctx context.Context) error {
		return honker.NewLanes[int](db, names, nil).Work(ctx, r.lasting(0), &honker.WorkOptions{Workers: 3})
	})
	testkit.Eventually(t, testkit.Timeout, "all done", func() bool {
		return testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live`) == 0
	})
	require.NoError(t, stop())
	require.EqualValues(t, 600, r.total.Load())
	require.LessOrEqual(t, r.most.Load(), int64(3))
}

// In any lane, a running job can be cancelled, and WorkTx settles jobs.
func TestLanes_CancelAndTx(t *testing.T) {
	t.Parallel()
	db := honkertest.Open(t, nil)
	names := lanesOf(t, db, 0, 0)
	l := honker.NewLanes[int](db, names, nil)
	began, ended := make(chan int64), make(chan error)
	stop := testkit.Background(t, func(ctx context.Context) error {
		return l.Work(ctx, func(ctx context.Context, job *honker.Job[int]) error {
			began <- job.ID
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return nil
		}, nil)
	})
	for _, name := range names {
		q := honker.NewQueue[int](db, name, nil)
		testkit.Enqueue(t, q, 1)
		ok, err := q.Cancel(t.Context(), <-began)
		require.NoError(t, err)
		require.True(t, ok)
		require.ErrorIs(t, <-ended, honker.ErrCancelled)
	}
	require.NoError(t, stop())

	testkit.Exec(t, db, `CREATE TABLE done (queue TEXT)`)
	lanesOf(t, db, 2, 2)
	ctx, cancel := context.WithCancel(testkit.Context(t, testkit.Timeout))
	defer cancel()
	testkit.Background(t, func(context.Context) error {
		return l.WorkTx(ctx, func(ctx context.Context, tx *sql.Tx, job *honker.Job[int]) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO done VALUES (?)`, job.Queue)
			return err
		}, nil)
	})
	testkit.Eventually(t, testkit.Timeout, "all done", func() bool {
		return testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live`) == 0
	})
	rows, err := testkit.Rows(db.SQL(), `SELECT queue FROM done ORDER BY queue`)
	require.NoError(t, err)
	require.Len(t, rows, 4)
	require.Equal(t, 2, slices.Index(rows, rows[2]), "two of each: %v", rows)
}

// A paused lane is skipped until its pause ends, without a busy loop.
func TestLanes_Pause(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]*honker.LaneOptions{"fair": nil, "strict": {Strict: true}} {
		t.Run(name, func(t *testing.T) {
			db := honkertest.Open(t, nil)
			lanes := honker.NewLanes[int](db, lanesOf(t, db, 3, 2), opts)
			a := honker.NewQueue[int](db, "a", nil)
			_, err := a.Pause(t.Context(), nil)
			require.NoError(t, err)
			require.Equal(t, []string{"b", "b"}, takeLanes(t, lanes, 2))

			ran := make(chan string, 3)
			stop := testkit.Background(t, func(ctx context.Context) error {
				return lanes.Work(ctx, func(_ context.Context, job *honker.Job[int]) error {
					ran <- job.Queue
					return nil
				}, nil)
			})
			within := testkit.Context(t, testkit.Timeout)
			next := func() string {
				select {
				case queue := <-ran:
					return queue
				case <-within.Done():
					return "none"
				}
			}
			_, err = honker.NewQueue[int](db, "b", nil).Enqueue(t.Context(), 7)
			require.NoError(t, err)
			require.Equal(t, "b", next())
			_, err = a.Resume(t.Context())
			require.NoError(t, err)
			for range 3 {
				require.Equal(t, "a", next())
			}
			require.NoError(t, stop())
		})
	}
}
