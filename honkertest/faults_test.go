package honkertest_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/observe"
)

// The holder of a lapsed claim can no longer settle it, and another worker can claim the job.
func TestLapse(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	id := testkit.Enqueue(t, q, 1)
	requireFails(t, func(t testing.TB) { honkertest.Lapse(t, db, id) }, "lapse of job 1", "no worker holds it")
	stale := testkit.ClaimOne(t, q)
	honkertest.Lapse(t, db, id)
	require.ErrorIs(t, stale.Ack(ctx), honker.ErrClaimLost)
	requireFails(t, func(t testing.TB) { honkertest.Lapse(t, db, id) }, "no worker holds it")
	job := testkit.ClaimOneAs(t, q, "another")
	require.Equal(t, 2, job.Attempts)
	require.ErrorIs(t, stale.Retry(ctx, 0, nil), honker.ErrClaimLost)
	require.NoError(t, job.Ack(ctx))
	requireFails(t, func(t testing.TB) { honkertest.Lapse(t, db, 99) }, "lapse of job 99")
}

// A running Work notices a lapsed claim at its next renewal, and a waiting worker gets the job.
func TestLapse_Work(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		q := honker.NewQueue[int](db, "jobs", nil)
		id := testkit.Enqueue(t, q, 1)
		causes, started, lost := make(chan error, 2), make(chan int, 2), make(chan struct{})
		handler := func(ctx context.Context, job *honker.Job[int]) error {
			started <- job.Attempts
			if job.Attempts > 1 {
				<-lost // do not ack the job yet, or the first worker would report it as cancelled
				return nil
			}
			<-ctx.Done()
			causes <- context.Cause(ctx)
			close(lost)
			return ctx.Err()
		}
		stop := testkit.Work(t, q, handler, &honker.WorkOptions{Workers: 1})
		require.Equal(t, 1, <-started)
		stopOther := testkit.Work(t, q, handler, nil)
		honkertest.Lapse(t, db, id)
		require.Equal(t, 2, <-started)
		require.ErrorIs(t, <-causes, honker.ErrClaimLost)
		require.NoError(t, stop())
		require.NoError(t, stopOther())
		testkit.RequireGone(t, q, id)
	})
}

// The copy has the committed data, including claims and locks. The original remains usable, and the
// two are independent.
func TestCrash(t *testing.T) {
	testkit.FileOnly(t)
	for _, name := range []string{"", "bubble"} {
		run := func(t *testing.T, db *honker.DB) {
			ctx := t.Context()
			testkit.ExecAll(t, db.SQL(), `CREATE TABLE orders (item TEXT)`, `PRAGMA user_version = 7`)
			q := honker.NewQueue[int](db, "jobs", nil)
			testkit.Enqueue(t, q, 1)
			testkit.Enqueue(t, q, 2, honker.Unique("k", nil))
			job := testkit.Claim(t, q, 1)[0]
			lock, err := db.TryLock(ctx, "migrate", nil)
			require.NoError(t, err)
			tx, err := db.SQL().BeginTx(ctx, nil)
			require.NoError(t, err)
			_, err = q.EnqueueTx(ctx, tx, 3)
			require.NoError(t, err)
			require.NoError(t, tx.Rollback())

			crashed := honkertest.Crash(t, db)
			require.NoError(t, job.Ack(ctx), "the old process goes on")
			testkit.Enqueue(t, q, 4)
			require.NoError(t, lock.Unlock(ctx))

			after := honker.NewQueue[int](crashed, "jobs", nil)
			info := testkit.GetJob(t, after, job.ID)
			require.Equal(t, honker.PhaseRunning, info.Phase)
			require.Equal(t, "w", info.WorkerID)
			_, err = crashed.TryLock(ctx, "migrate", nil)
			require.ErrorIs(t, err, honker.ErrLockHeld)
			require.Zero(t, testkit.QueryInt(t, crashed.SQL(), `SELECT count(*) FROM orders`))
			require.EqualValues(t, 7, testkit.QueryInt(t, crashed.SQL(), `PRAGMA user_version`))
			honkertest.RequireEnqueued(t, after, 2, honkertest.Unique("k"))
			require.Equal(t, 1, honkertest.Drain(t, after, testkit.Succeed), "the claim holds")
			honkertest.Lapse(t, crashed, job.ID)
			require.Equal(t, 1, honkertest.Drain(t, after, testkit.Succeed))
			require.EqualValues(t, 3, testkit.Enqueue(t, after, 5), "ids go on")
			honkertest.RequireNone(t, after, honkertest.Where(func(n int) bool { return n == 4 }))
		}
		if name == "" {
			run(t, honkertest.Open(t, nil))
			continue
		}
		honkertest.Bubble(t, run)
	}
}

// The copy is opened with the options passed to Open and lacks the writes of an open transaction.
func TestCrash_Options(t *testing.T) {
	testkit.FileOnly(t)
	var mu sync.Mutex
	var enqueued []int64
	db := honkertest.Open(t, &honker.Options{MaxPayload: 10, Observer: &observe.Observer{Enqueued: func(e observe.Enqueued) {
		mu.Lock()
		defer mu.Unlock()
		enqueued = append(enqueued, e.IDs...)
	}}})
	q := honker.NewQueue[string](db, "jobs", nil)
	testkit.Enqueue(t, q, "a")
	after := honker.NewQueue[string](honkertest.Crash(t, honkertest.Crash(t, db)), "jobs", nil)
	testkit.Enqueue(t, after, "b")
	_, err := after.Enqueue(t.Context(), "0123456789")
	require.ErrorIs(t, err, honker.ErrInvalid)
	require.Equal(t, []int64{1, 2}, enqueued)

	require.NoError(t, db.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		_, err := q.EnqueueTx(ctx, tx, "c")
		require.NoError(t, err)
		honkertest.RequireNone(t, honker.NewQueue[string](honkertest.Crash(t, db), "jobs", nil), honkertest.Where(func(s string) bool { return s == "c" }))
		return nil
	}))
}

// Writes wait for the lock and fail after BusyTimeout. Reads are not affected.
func TestBusy(t *testing.T) {
	testkit.FileOnly(t)
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		q := honker.NewQueue[int](db, "jobs", nil)
		honkertest.Busy(t, db, 8*time.Second)
		began := time.Now()
		_, err := q.Enqueue(t.Context(), 1)
		require.ErrorIs(t, err, honker.ErrBusy)
		require.ErrorContains(t, err, "another process")
		require.WithinRange(t, time.Now(), began.Add(5*time.Second), began.Add(6*time.Second))
		_, err = q.Get(t.Context(), 1)
		require.ErrorIs(t, err, honker.ErrNotFound)
		testkit.Enqueue(t, q, 2)
		require.WithinRange(t, time.Now(), began.Add(8*time.Second), began.Add(9*time.Second))
		honkertest.Busy(t, db, time.Hour) // until the end of the test
	})
	closed := honkertest.Open(t, nil)
	require.NoError(t, closed.Close())
	requireFails(t, func(t testing.TB) { honkertest.Busy(t, closed, time.Second) }, "busy", "closed")
}

// Delays change the order of events but not the results.
func TestUnfair(t *testing.T) {
	opts := honkertest.Unfair(t, 1)
	db := honkertest.Open(t, &opts)
	q := honker.NewQueue[int](db, "jobs", nil)
	var mu sync.Mutex
	var ran []int
	stop := testkit.Work(t, q, func(_ context.Context, job *honker.Job[int]) error {
		mu.Lock()
		defer mu.Unlock()
		ran = append(ran, job.Args)
		return nil
	}, &honker.WorkOptions{Workers: 4})
	for n := range 50 {
		testkit.Enqueue(t, q, n)
	}
	testkit.Eventually(t, testkit.Timeout, "all ran", func() bool { mu.Lock(); defer mu.Unlock(); return len(ran) == 50 })
	require.NoError(t, stop())
	slices.Sort(ran)
	for n, got := range ran {
		require.Equal(t, n, got)
	}
	honkertest.Quiet(t, db)
}

// The same seed yields the same delays.
func TestUnfair_Seed(t *testing.T) {
	pauses := func(seed int64) (all []time.Duration) {
		honkertest.Bubble(t, func(t *testing.T, _ *honker.DB) {
			o := honkertest.Unfair(t, seed)
			for range 100 {
				began := time.Now()
				o.Observer.Enqueued(observe.Enqueued{})
				all = append(all, time.Since(began))
			}
		})
		return all
	}
	first := pauses(1)
	require.Equal(t, first, pauses(1))
	require.NotEqual(t, first, pauses(2))
	require.NotEqual(t, pauses(0), pauses(0))
	require.Contains(t, first, time.Duration(0))
	require.Less(t, slices.Max(first), 4*time.Millisecond)
	require.Positive(t, slices.Max(first))
}

func ExampleCrash() {
	_ = func(t *testing.T) { // func TestCharge_Crash(t *testing.T) {
		db := honkertest.Open(t, nil)
		payments := honker.NewQueue[string](db, "payments", nil)
		charge := func(context.Context, *honker.Job[string]) error { return nil }

		id, err := payments.Enqueue(t.Context(), "ada")
		if err != nil {
			t.Fatal(err)
		}
		var after *honker.DB
		honkertest.Drain(t, payments, func(ctx context.Context, job *honker.Job[string]) error {
			err := charge(ctx, job)
			after = honkertest.Crash(t, db) // charged but not acked
			return err
		})
		honkertest.Lapse(t, after, id)
		again := honkertest.Drain(t, honker.NewQueue[string](after, "payments", nil), charge)
		fmt.Println(again) // 1: charge must be idempotent
	}
}
