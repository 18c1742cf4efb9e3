package honkertest_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// Two days pass in a moment, on a real file.
func ExampleBubble() {
	_ = func(t *testing.T) { // func TestReminder(t *testing.T) {
		honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
			reminders := honker.NewQueue[string](db, "reminders", nil)
			if _, err := reminders.Enqueue(t.Context(), "ada", honker.Delay(48*time.Hour)); err != nil {
				t.Fatal(err)
			}
			remind := func(context.Context, *honker.Job[string]) error { return nil }
			if ran := honkertest.Drain(t, reminders, remind); ran != 0 {
				t.Error("reminded too early")
			}
			time.Sleep(48*time.Hour + time.Second)
			if ran := honkertest.Drain(t, reminders, remind); ran != 1 {
				t.Error("not reminded")
			}
		})
	}
}

// Drain settles as Work does.
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

// A handler may end the test, as require does.
func TestDrain_FailNow(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		q := honker.NewQueue[int](db, "jobs", nil)
		id := testkit.Enqueue(t, q, 1)
		ended := make(chan struct{})
		go func() { // stands for a test of its own
			defer close(ended)
			honkertest.Drain(t, q, func(context.Context, *honker.Job[int]) error { runtime.Goexit(); return nil })
			t.Error("Drain has returned")
		}()
		<-ended
		require.Equal(t, honker.StatePending, testkit.GetJob(t, q, id).State, "no job stays held")
	})
}

// Open in a bubble needs no options of its own: time passes, and workers hear of jobs.
func TestOpen_InBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := honkertest.Open(t, nil)
		q := honker.NewQueue[int](db, "jobs", nil)
		done := make(chan time.Time, 1)
		stop := testkit.Work(t, q, func(context.Context, *honker.Job[int]) error { done <- time.Now(); return nil }, nil)
		began := time.Now()
		testkit.Enqueue(t, q, 1, honker.Delay(48*time.Hour))
		require.Equal(t, began.Add(48*time.Hour), <-done)
		require.NoError(t, stop())
	})
}
