package honkertest_test

import (
	"context"
	"database/sql"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// Drain settles jobs as Work does.
func TestDrain_AsWork(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		q := honker.NewQueue[string](db, "jobs", &honker.QueueOptions{Backoff: honker.Constant(time.Hour), Timeout: time.Minute})
		ids := make(map[string]int64)
		for _, how := range []string{"ack", "reject", "snooze", "retry", "fail", "panic", "settle", "timeout"} {
			ids[how] = testkit.Enqueue(t, q, how)
		}
		testkit.Enqueue(t, q, "later", honker.Delay(time.Hour))
		handler := func(ctx context.Context, job *honker.Job[string]) error {
			switch job.Args {
			case "reject":
				return honker.Reject(testkit.ErrCause)
			case "snooze":
				return honker.Snooze(2 * time.Hour)
			case "retry":
				return honker.RetryAfter(3*time.Hour, testkit.ErrCause)
			case "fail":
				return testkit.ErrCause
			case "panic":
				panic("no paper")
			case "timeout":
				<-ctx.Done()
				return ctx.Err()
			case "settle":
				return job.Retry(ctx, 4*time.Hour, testkit.ErrCause)
			}
			return nil
		}
		began := time.Now()
		require.Equal(t, 8, honkertest.Drain(t, q, handler))
		require.Equal(t, began.Add(time.Minute), time.Now(), "the Timeout has passed, and no more")
		testkit.RequireGone(t, q, ids["ack"])
		require.Equal(t, honker.StateDead, testkit.GetJob(t, q, ids["reject"]).State)
		for how, want := range map[string]struct {
			after    time.Duration
			attempts int
		}{"snooze": {2 * time.Hour, 0}, "retry": {3 * time.Hour, 1}, "fail": {time.Hour, 1}, "panic": {time.Hour, 1}, "settle": {4 * time.Hour, 1}} {
			job := testkit.GetJob(t, q, ids[how])
			require.Equal(t, honker.StatePending, job.State, how)
			require.Equal(t, want.attempts, job.Attempts, how)
			require.Equal(t, began.Add(want.after), job.RunAt, how)
		}
		require.Contains(t, testkit.GetJob(t, q, ids["timeout"]).LastError, "timeout after 1m0s")
		require.Zero(t, honkertest.Drain(t, q, handler), "nothing is due")
	})
}

// A handler may end the test, as require does, without leaving its job claimed.
func TestDrain_FailNow(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		q := honker.NewQueue[int](db, "jobs", nil)
		id := testkit.Enqueue(t, q, 1)
		ended := make(chan struct{})
		go func() { // Goexit must not end the real test
			defer close(ended)
			honkertest.Drain(t, q, func(context.Context, *honker.Job[int]) error { runtime.Goexit(); return nil })
			t.Error("Drain has returned")
		}()
		<-ended
		require.Equal(t, honker.StatePending, testkit.GetJob(t, q, id).State, "no job stays held")
	})
}

// Functions that write would wait for their caller if called inside DB.Tx, so they fail with a
// hint.
func TestDrain_InTx(t *testing.T) {
	testkit.Differs(t, "db.Tx")
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		q := honker.NewQueue[int](db, "jobs", nil)
		testkit.Enqueue(t, q, 1)
		require.NoError(t, db.Tx(t.Context(), func(context.Context, *sql.Tx) error {
			for _, call := range []func(t testing.TB){
				func(t testing.TB) { honkertest.Drain(t, q, testkit.Succeed) },
				func(t testing.TB) {
					honkertest.DrainAll(t, db, honkertest.Handlers{honkertest.Handle(q, testkit.Succeed)}, nil)
				},
				func(t testing.TB) { honkertest.Perform(t, q, 2, testkit.Succeed) },
				func(t testing.TB) { honkertest.TwicePerform(t, q, 2, testkit.Succeed) },
				func(t testing.TB) { honkertest.Lapse(t, db, 1) },
				func(t testing.TB) { honkertest.Busy(t, db, time.Second) },
				func(t testing.TB) { honkertest.Foreign(t, db, "jobs").Enqueue(`1`) },
			} {
				requireFails(t, call, "busy", "inside DB.Tx", "after the commit")
			}
			return nil
		}))
		require.Equal(t, 1, honkertest.Drain(t, q, testkit.Succeed))
	})
}

// shop has three queues. An order enqueues a parcel, and a parcel enqueues an email for the next
// day.
func shop(db *honker.DB, failures int) honkertest.Handlers {
	orders, parcels, mails := honker.NewQueue[int](db, "orders", nil), honker.NewQueue[int](db, "parcels", nil), honker.NewQueue[int](db, "mails", nil)
	return honkertest.Handlers{
		honkertest.Handle(mails, func(_ context.Context, job *honker.Job[int]) error {
			switch {
			case job.Args == 13:
				return honker.Reject(errCause)
			case job.Attempts <= failures:
				return errCause
			}
			return nil
		}),
		honkertest.Handle(parcels, func(ctx context.Context, job *honker.Job[int]) error {
			_, err := mails.Enqueue(ctx, job.Args, honker.Delay(24*time.Hour))
			return err
		}),
		honkertest.Handle(orders, func(ctx context.Context, job *honker.Job[int]) error {
			_, err := parcels.Enqueue(ctx, job.Args)
			return err
		}),
	}
}

// DrainAll runs jobs from several queues, including jobs enqueued by handlers. With the options
// set, it also runs jobs that aren't due yet, both inside and outside a bubble.
func TestDrainAll(t *testing.T) {
	for name, c := range map[string]struct {
		opts *honkertest.DrainOptions
		want honkertest.DrainResult
	}{
		"due":       {nil, honkertest.DrainResult{Acked: 4, Left: 3}},
		"scheduled": {&honkertest.DrainOptions{Scheduled: true}, honkertest.DrainResult{Acked: 4, Retried: 1, Dead: 1, Left: 2}},
		"retries":   {&honkertest.DrainOptions{Retries: true}, honkertest.DrainResult{Acked: 4, Left: 3}},
		"all":       {&honkertest.DrainOptions{Scheduled: true, Retries: true}, honkertest.DrainResult{Acked: 5, Retried: 3, Dead: 1, Left: 1}},
	} {
		run := func(t *testing.T, db *honker.DB) {
			orders := honker.NewQueue[int](db, "orders", nil)
			testkit.Enqueue(t, orders, 1)
			testkit.Enqueue(t, orders, 13)
			testkit.Enqueue(t, honker.NewQueue[int](db, "others", nil), 1, honker.Delay(time.Minute))
			require.Equal(t, c.want, honkertest.DrainAll(t, db, shop(db, 3), c.opts), name)
		}
		t.Run(name, func(t *testing.T) { run(t, honkertest.Open(t, nil)) })
		t.Run(name+" in a bubble", func(t *testing.T) {
			honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
				began := time.Now()
				run(t, db)
				require.Equal(t, c.want.Dead > 0, time.Since(began) >= 24*time.Hour, "time has passed only for what waits")
			})
		})
	}
}

// A snoozed job counts as a retry even though it hasn't used an attempt. The earliest job runs
// first.
func TestDrainAll_Order(t *testing.T) {
	for _, name := range []string{"", "bubble"} {
		run := func(t *testing.T, db *honker.DB) {
			q := honker.NewQueue[string](db, "jobs", nil)
			var ran []string
			handlers := honkertest.Handlers{honkertest.Handle(q, func(_ context.Context, job *honker.Job[string]) error {
				ran = append(ran, job.Args)
				if job.Args == "snoozes" && len(ran) < 3 {
					return honker.Snooze(2 * time.Hour)
				}
				return nil
			})}
			testkit.Enqueue(t, q, "later", honker.Delay(90*time.Minute))
			testkit.Enqueue(t, q, "late", honker.Delay(time.Hour))
			testkit.Enqueue(t, q, "snoozes")
			require.Equal(t, honkertest.DrainResult{Acked: 2, Snoozed: 1, Left: 1},
				honkertest.DrainAll(t, db, handlers, &honkertest.DrainOptions{Scheduled: true}))
			require.Equal(t, []string{"snoozes", "late", "later"}, ran)
			require.Equal(t, honkertest.DrainResult{Acked: 1}, honkertest.DrainAll(t, db, handlers, &honkertest.DrainOptions{Scheduled: true}),
				"for this one it has waited for its time")
		}
		if name == "" {
			run(t, honkertest.Open(t, nil))
			continue
		}
		honkertest.Bubble(t, run)
	}
}

// Handlers that enqueue jobs endlessly are stopped by the limit.
func TestDrainAll_Limit(t *testing.T) {
	_, db, q := testkit.NewQueue[int](t, nil)
	handlers := honkertest.Handlers{honkertest.Handle(q, func(ctx context.Context, job *honker.Job[int]) error {
		_, err := q.Enqueue(ctx, job.Args+1)
		return err
	})}
	testkit.Enqueue(t, q, 1)
	requireFails(t, func(t testing.TB) { honkertest.DrainAll(t, db, handlers, &honkertest.DrainOptions{Limit: 5}) },
		"limit of 5 handler calls reached", `job 5 of "jobs", running: 5, acked`)
	other := honkertest.Open(t, nil)
	requireFails(t, func(t testing.TB) { honkertest.DrainAll(t, other, handlers, nil) }, `queue "jobs" belongs to another DB`)
	none := honkertest.Handlers{honkertest.Handle[int](q, nil)}
	requireFails(t, func(t testing.TB) { honkertest.DrainAll(t, db, none, nil) }, "nil handler")
}

// A job whose payload cannot be decoded dies and does not block the others.
func TestDrainAll_Undecodable(t *testing.T) {
	_, db, q := testkit.NewQueue[int](t, nil)
	testkit.Enqueue(t, honker.NewQueue[string](db, "jobs", nil), "tea")
	testkit.Enqueue(t, q, 1)
	require.Equal(t, honkertest.DrainResult{Acked: 1, Dead: 1}, honkertest.DrainAll(t, db, honkertest.Handlers{honkertest.Handle(q, testkit.Succeed[int])}, nil))
}

func ExampleDrainAll() {
	_ = func(t *testing.T) { // func TestShop(t *testing.T) {
		db := honkertest.Open(t, nil)
		orders := honker.NewQueue[int](db, "orders", nil)
		mails := honker.NewQueue[string](db, "mails", nil)
		handlers := honkertest.Handlers{
			honkertest.Handle(orders, func(ctx context.Context, _ *honker.Job[int]) error {
				_, err := mails.Enqueue(ctx, "ada", honker.Delay(24*time.Hour))
				return err
			}),
			honkertest.Handle(mails, func(context.Context, *honker.Job[string]) error { return nil }),
		}
		if _, err := orders.Enqueue(t.Context(), 17); err != nil {
			t.Fatal(err)
		}
		got := honkertest.DrainAll(t, db, handlers, &honkertest.DrainOptions{Scheduled: true})
		if got != (honkertest.DrainResult{Acked: 2}) {
			t.Errorf("%+v", got)
		}
	}
}
