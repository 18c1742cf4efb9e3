package honker_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

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
