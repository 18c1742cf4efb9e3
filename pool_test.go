package honker_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
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
	if testing.Short() || !testkit.AsFile("db.SQL() opens") { // each database of a server needs connections of its own
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
	testkit.Differs(t, "db.Tx")
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
