package flow_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/flow"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// work runs f's runs until the test ends, or until stop is called.
func work[In, Out any](t *testing.T, f *flow.Flow[In, Out], workers int) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Work(ctx, &honker.WorkOptions{Workers: workers}) }()
	stopped := false
	stop = func() {
		if cancel(); !stopped {
			stopped = true
			require.NoError(t, <-done)
		}
	}
	t.Cleanup(stop)
	return stop
}

func start[In, Out any](t *testing.T, f *flow.Flow[In, Out], id string, in In) {
	t.Helper()
	started, err := f.Start(context.Background(), id, in)
	require.NoError(t, err)
	require.True(t, started)
}

// bubble runs f in a bubble with a file.
func bubble(t *testing.T, f func(t *testing.T, db *honker.DB)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, honkertest.Open(t, nil)) })
}

// quick has short pauses between attempts.
func quick(attempts int) *flow.Options {
	return &flow.Options{Queue: honker.QueueOptions{MaxAttempts: attempts, Backoff: func(int, error) time.Duration { return time.Second }}}
}

// A step that has ended does not run again when its run is retried.
func TestStep_RunsOnceIfItSucceeds(t *testing.T) {
	bubble(t, func(t *testing.T, db *honker.DB) {
		var first, second atomic.Int32
		f := flow.New(db, "order", func(ctx context.Context, in int) (string, error) {
			a, err := flow.Step(ctx, "first", func(context.Context) (int, error) { return in + int(first.Add(1)), nil })
			if err != nil {
				return "", err
			}
			b, err := flow.Step(ctx, "second", func(context.Context) (int, error) {
				if n := second.Add(1); n < 3 {
					return 0, errors.New("not yet")
				}
				return 100, nil
			})
			return fmt.Sprint(a, b), err
		}, quick(5))
		work(t, f, 1)
		start(t, f, "1", 40)
		out, err := f.Result(t.Context(), "1")
		require.NoError(t, err)
		require.Equal(t, "41 100", out)
		require.EqualValues(t, 1, first.Load())
		require.EqualValues(t, 3, second.Load())
	})
}

// The effects of StepTx and its result are committed together: neither stays if fn fails.
func TestStepTx_Effects(t *testing.T) {
	bubble(t, func(t *testing.T, db *honker.DB) {
		testkit.Exec(t, db, `CREATE TABLE sold (n INTEGER)`)
		tries := 0
		f := flow.New(db, "order", func(ctx context.Context, in int) (int, error) {
			return flow.StepTx(ctx, "sell", func(ctx context.Context, tx *sql.Tx) (int, error) {
				if _, err := tx.ExecContext(ctx, `INSERT INTO sold VALUES ($1)`, in); err != nil {
					return 0, err
				}
				if tries++; tries < 3 {
					return 0, errors.New("not yet")
				}
				return tries, nil
			})
		}, quick(5))
		work(t, f, 1)
		start(t, f, "1", 7)
		out, err := f.Result(t.Context(), "1")
		require.NoError(t, err)
		require.Equal(t, 3, out)
		require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM sold`))
	})
}

// Starting an ID again starts nothing while the run is waiting, running, dead or kept.
func TestStart_Again(t *testing.T) {
	bubble(t, func(t *testing.T, db *honker.DB) {
		f := flow.New(db, "order", func(_ context.Context, in int) (int, error) {
			if in < 0 {
				return 0, honker.Reject(errors.New("negative"))
			}
			return in, nil
		}, &flow.Options{Keep: time.Hour})
		again := func(id string) bool {
			started, err := f.Start(t.Context(), id, 2)
			require.NoError(t, err)
			return started
		}
		start(t, f, "good", 1)
		start(t, f, "bad", -1)
		require.False(t, again("good"))
		work(t, f, 1)
		out, err := f.Result(t.Context(), "good")
		require.NoError(t, err)
		require.Equal(t, 1, out)
		_, err = f.Result(t.Context(), "bad")
		var failed *flow.FailedError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, flow.FailedError{Flow: "order", ID: "bad", Attempts: 1, LastError: "negative"}, *failed)
		require.False(t, again("good"), "it is kept")
		require.False(t, again("bad"), "it is dead")

		time.Sleep(2 * time.Hour)
		require.NoError(t, db.Maintain(t.Context(), &honker.MaintainOptions{Once: true}))
		require.True(t, again("good"))
		require.False(t, again("bad"))
	})
}

// An idle worker gets a run with the commit of its start. The run holds its ID from then on.
func TestStart_HandedOver(t *testing.T) {
	testkit.FileOnly(t)
	bubble(t, func(t *testing.T, db *honker.DB) {
		release := make(chan struct{})
		f := flow.New(db, "order", func(_ context.Context, in int) (int, error) { <-release; return in, nil }, nil)
		stop := work(t, f, 1)
		synctest.Wait()
		start(t, f, "1", 7)
		run, err := flow.Get(t.Context(), db, "order", "1")
		require.NoError(t, err)
		job, err := db.Job(t.Context(), run.Job)
		require.NoError(t, err)
		require.Equal(t, []any{honker.StateProcessing, "1"}, []any{job.State, job.Unique})
		started, err := f.Start(t.Context(), "1", 8)
		require.NoError(t, err)
		require.False(t, started)
		close(release)
		out, err := f.Result(t.Context(), "1")
		require.NoError(t, err)
		require.Equal(t, 7, out)
		stop()
	})
}

// A run starts with the transaction that starts it, or not at all.
func TestStartTx_RolledBack(t *testing.T) {
	bubble(t, func(t *testing.T, db *honker.DB) {
		f := flow.New(db, "order", func(_ context.Context, in int) (int, error) { return in, nil }, nil)
		err := db.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			started, err := f.StartTx(ctx, tx, "1", 1)
			require.NoError(t, err)
			require.True(t, started)
			return errors.New("no")
		})
		require.EqualError(t, err, "no")
		_, err = f.Result(t.Context(), "1")
		require.ErrorIs(t, err, honker.ErrNotFound)
		start(t, f, "1", 1)
	})
}

// A sleep of days holds no worker and spends no attempt, and lasts from its first call.
func TestSleep_HoldsNoWorker(t *testing.T) {
	bubble(t, func(t *testing.T, db *honker.DB) {
		calls := map[string]int{}
		f := flow.New(db, "order", func(ctx context.Context, in int) (time.Time, error) {
			calls[flow.ID(ctx)]++
			if err := flow.Sleep(ctx, "night", time.Duration(in)*24*time.Hour); err != nil {
				return time.Time{}, err
			}
			return time.Now(), nil
		}, quick(1))
		work(t, f, 1)
		began := time.Now()
		start(t, f, "long", 7)
		start(t, f, "short", 1)
		for _, id := range []string{"short", "long"} {
			days := map[string]int{"short": 1, "long": 7}[id]
			woke, err := f.Result(t.Context(), id)
			require.NoError(t, err)
			require.WithinDuration(t, began.Add(time.Duration(days)*24*time.Hour), woke, 2*time.Second)
			require.False(t, woke.Before(began.Add(time.Duration(days)*24*time.Hour)), "not early")
			require.Equal(t, 2, calls[id])
		}
	})
}

// A suspended run is suspended whatever its function returns.
func TestSleep_ErrorSwallowed(t *testing.T) {
	bubble(t, func(t *testing.T, db *honker.DB) {
		later := 0
		f := flow.New(db, "order", func(ctx context.Context, _ int) (string, error) {
			_ = flow.Sleep(ctx, "night", 24*time.Hour)
			out, err := flow.Step(ctx, "morning", func(context.Context) (string, error) { later++; return "light", nil })
			if err != nil {
				return "dark", nil
			}
			return out, nil
		}, nil)
		work(t, f, 1)
		began := time.Now()
		start(t, f, "1", 1)
		out, err := f.Result(t.Context(), "1")
		require.NoError(t, err)
		require.Equal(t, "light", out)
		require.Equal(t, 1, later)
		require.GreaterOrEqual(t, time.Since(began), 24*time.Hour)
	})
}

// A signal reaches a run that waits for it, whether it comes before or during the wait.
func TestWait_Signal(t *testing.T) {
	bubble(t, func(t *testing.T, db *honker.DB) {
		f := flow.New(db, "order", func(ctx context.Context, _ int) (string, error) {
			return flow.Wait[string](ctx, "approved", 0)
		}, nil)
		for _, id := range []string{"early", "late"} {
			start(t, f, id, 1)
		}
		require.NoError(t, flow.Signal(t.Context(), db, "order", "early", "approved", "by Ann"))
		require.ErrorIs(t, flow.Signal(t.Context(), db, "order", "early", "approved", "by Eve"), flow.ErrSignalled)
		work(t, f, 1)
		out, err := f.Result(t.Context(), "early")
		require.NoError(t, err)
		require.Equal(t, "by Ann", out)

		time.Sleep(30 * 24 * time.Hour)
		require.NoError(t, flow.Signal(t.Context(), db, "order", "late", "approved", "by Bob"))
		began := time.Now()
		out, err = f.Result(t.Context(), "late")
		require.NoError(t, err)
		require.Equal(t, "by Bob", out)
		require.Less(t, time.Since(began), time.Second)
		require.ErrorIs(t, flow.Signal(t.Context(), db, "order", "late", "again", 1), honker.ErrNotFound)
		require.ErrorIs(t, flow.Signal(t.Context(), db, "order", "never", "approved", 1), honker.ErrNotFound)
	})
}

// Any program may signal with an INSERT.
func TestWait_SignalBySQL(t *testing.T) {
	bubble(t, func(t *testing.T, db *honker.DB) {
		f := flow.New(db, "order", func(ctx context.Context, _ int) (int, error) { return flow.Wait[int](ctx, "approved", 0) }, nil)
		work(t, f, 1)
		start(t, f, "1", 1)
		synctest.Wait()
		time.Sleep(time.Hour)
		testkit.Exec(t, db, testkit.SignalRun, "order", "1", "approved", "5")
		out, err := f.Result(t.Context(), "1")
		require.NoError(t, err)
		require.Equal(t, 5, out)
		for _, id := range []string{"1", "2"} { // over, and unknown
			_, err = db.SQL().Exec(testkit.SignalRun, "order", id, "later", "5")
			require.ErrorContains(t, err, "no such run, or it is over")
		}
	})
}

// A wait that has timed out stays so, although the signal comes before a later attempt.
func TestWait_Timeout(t *testing.T) {
	bubble(t, func(t *testing.T, db *honker.DB) {
		attempts := 0
		f := flow.New(db, "order", func(ctx context.Context, _ int) (string, error) {
			_, err := flow.Wait[string](ctx, "approved", time.Hour)
			if !errors.Is(err, flow.ErrTimeout) {
				return "in time", err
			}
			if attempts++; attempts == 1 {
				require.NoError(t, flow.Signal(ctx, db, "order", "1", "approved", "too late"))
				return "", errors.New("again")
			}
			return "timeout", nil
		}, quick(3))
		work(t, f, 1)
		began := time.Now()
		start(t, f, "1", 1)
		out, err := f.Result(t.Context(), "1")
		require.NoError(t, err)
		require.Equal(t, "timeout", out)
		require.GreaterOrEqual(t, time.Since(began), time.Hour)
	})
}

// A called run returns its result or its failure, however long it takes.
func TestCall_Child(t *testing.T) {
	bubble(t, func(t *testing.T, db *honker.DB) {
		child := flow.New(db, "ship", func(ctx context.Context, in int) (string, error) {
			if err := flow.Sleep(ctx, "packing", 48*time.Hour); err != nil {
				return "", err
			}
			if in == 0 {
				return "", honker.Reject(errors.New("lost"))
			}
			return "parcel " + strconv.Itoa(in), nil
		}, nil)
		parent := flow.New(db, "order", func(ctx context.Context, in int) (string, error) {
			out, err := flow.Call(ctx, "shipping", child, in)
			var failed *flow.FailedError
			if errors.As(err, &failed) {
				return "failed: " + failed.LastError, nil
			}
			return out, err
		}, nil)
		work(t, parent, 1)
		work(t, child, 1)
		start(t, parent, "good", 3)
		start(t, parent, "bad", 0)
		for id, want := range map[string]string{"good": "parcel 3", "bad": "failed: lost"} {
			out, err := parent.Result(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, want, out)
		}
		out, err := child.Result(t.Context(), "good/shipping")
		require.NoError(t, err)
		require.Equal(t, "parcel 3", out)
	})
}

// The functions of Undo run last in, first out, when a run fails for good or is cancelled. One that fails is retried, and
// none runs again after it has succeeded.
func TestUndo_Order(t *testing.T) {
	bubble(t, func(t *testing.T, db *honker.DB) {
		var log []string
		tries := 0
		f := flow.New(db, "order", func(ctx context.Context, in int) (string, error) {
			for _, name := range []string{"flight", "hotel"} {
				if _, err := flow.Step(ctx, name, func(context.Context) (int, error) { log = append(log, name); return 0, nil }); err != nil {
					return "", err
				}
				flow.Undo(ctx, name, func(context.Context) error {
					if tries++; tries == 2 {
						return errors.New("busy")
					}
					log = append(log, "undo "+name)
					return nil
				})
			}
			if in == 0 {
				return "", honker.Reject(errors.New("no car"))
			}
			return flow.Wait[string](ctx, "car", 0)
		}, quick(3))
		work(t, f, 1)
		start(t, f, "failed", 0)
		_, err := f.Result(t.Context(), "failed")
		var failed *flow.FailedError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, "no car", failed.LastError)
		require.Equal(t, []string{"flight", "hotel", "undo hotel", "undo flight"}, log)
		require.Equal(t, 3, tries)

		log = nil
		start(t, f, "cancelled", 1)
		synctest.Wait()
		cancelled, err := f.Cancel(t.Context(), "cancelled")
		require.NoError(t, err)
		require.True(t, cancelled)
		_, err = f.Result(t.Context(), "cancelled")
		require.ErrorIs(t, err, honker.ErrCancelled)
		require.Equal(t, []string{"flight", "hotel", "undo hotel", "undo flight"}, log)
		cancelled, err = f.Cancel(t.Context(), "cancelled")
		require.NoError(t, err)
		require.False(t, cancelled)
	})
}

// Bad input is refused with a typed error and changes nothing.
func TestFlow_BadInput(t *testing.T) {
	bubble(t, func(t *testing.T, db *honker.DB) {
		good := flow.New(db, "good", func(context.Context, int) (int, error) { return 0, nil }, nil)
		long := string(make([]byte, 256))
		for name, f := range map[string]*flow.Flow[int, int]{
			"no name":      flow.New(db, "", func(context.Context, int) (int, error) { return 0, nil }, nil),
			"a long name":  flow.New(db, long, func(context.Context, int) (int, error) { return 0, nil }, nil),
			"no function":  flow.New[int, int](db, "x", nil, nil),
			"a result TTL": flow.New(db, "x", func(context.Context, int) (int, error) { return 0, nil }, &flow.Options{Queue: honker.QueueOptions{ResultTTL: 1}}),
		} {
			_, err := f.Start(t.Context(), "1", 1)
			require.ErrorIs(t, err, honker.ErrInvalid, name)
			require.ErrorIs(t, f.Work(t.Context(), nil), honker.ErrInvalid, name)
			_, err = f.WorkDue(t.Context(), nil)
			require.ErrorIs(t, err, honker.ErrInvalid, name)
		}
		other := flow.New(db, "good", func(context.Context, string) (int, error) { return 0, nil }, nil)
		_, err := other.Start(t.Context(), "1", "")
		require.ErrorIs(t, err, honker.ErrInvalid, "other types")
		for _, id := range []string{"", long} {
			_, err := good.Start(t.Context(), id, 1)
			require.ErrorIs(t, err, honker.ErrInvalid)
		}
		_, err = flow.Step(t.Context(), "s", func(context.Context) (int, error) { return 0, nil })
		require.ErrorIs(t, err, honker.ErrInvalid, "outside of a run")
		require.Empty(t, flow.ID(t.Context()))
		require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live`))
	})
}

// A name may be used once in an attempt.
func TestStep_NameTwice(t *testing.T) {
	bubble(t, func(t *testing.T, db *honker.DB) {
		f := flow.New(db, "order", func(ctx context.Context, _ int) (string, error) {
			step := func() error {
				_, err := flow.Step(ctx, "a", func(context.Context) (int, error) { return 0, nil })
				return err
			}
			require.NoError(t, step())
			err := step()
			require.ErrorIs(t, err, honker.ErrInvalid)
			require.ErrorIs(t, flow.Sleep(ctx, "b", -1), honker.ErrInvalid)
			return err.Error(), nil
		}, nil)
		work(t, f, 1)
		start(t, f, "1", 1)
		out, err := f.Result(t.Context(), "1")
		require.NoError(t, err)
		require.Contains(t, out, `the run has used the name "a" already`)
	})
}

// A recorded result that no longer fits its type makes the run a dead letter, and a requeue after a fix goes on.
func TestStep_OtherType(t *testing.T) {
	bubble(t, func(t *testing.T, db *honker.DB) {
		open := make(chan bool, 2)
		old := flow.New(db, "order", func(ctx context.Context, _ int) (string, error) {
			if _, err := flow.Step(ctx, "price", func(context.Context) (string, error) { return "ten", nil }); err != nil {
				return "", err
			}
			return flow.Wait[string](ctx, "go", 0)
		}, nil)
		stop := work(t, old, 1)
		start(t, old, "1", 1)
		synctest.Wait()
		stop()
		changed := flow.New(db, "order", func(ctx context.Context, _ int) (string, error) {
			if _, err := flow.Step(ctx, "price", func(context.Context) (int, error) { return 10, nil }); err != nil {
				return "", err
			}
			return flow.Wait[string](ctx, "go", 0)
		}, nil)
		require.NoError(t, flow.Signal(t.Context(), db, "order", "1", "go", "now"))
		work(t, changed, 1)
		_, err := changed.Result(t.Context(), "1")
		var failed *flow.FailedError
		require.ErrorAs(t, err, &failed)
		require.Contains(t, failed.LastError, `flow "order", run "1": the recorded value of step "price" does not decode into type int`)
		close(open)
	})
}

// A run that is cancelled while its function runs does not suspend, finish or wait for its next step.
func TestCancel_WhileRunning(t *testing.T) {
	bubble(t, func(t *testing.T, db *honker.DB) {
		undone := map[string]int{}
		var f *flow.Flow[int, string]
		f = flow.New(db, "order", func(ctx context.Context, _ int) (string, error) {
			id := flow.ID(ctx)
			flow.Undo(ctx, "all", func(context.Context) error { undone[id]++; return nil })
			if _, err := flow.Wait[string](ctx, "first", 0); err != nil {
				return "", err
			}
			cancelled, err := f.Cancel(ctx, id)
			require.NoError(t, err)
			require.True(t, cancelled)
			if id == "finishes" {
				return "done", nil
			}
			return flow.Wait[string](ctx, "second", 0)
		}, quick(3))
		for _, id := range []string{"finishes", "suspends"} {
			start(t, f, id, 1)
			require.NoError(t, flow.Signal(t.Context(), db, "order", id, "first", ""))
		}
		work(t, f, 1)
		for _, id := range []string{"finishes", "suspends"} {
			_, err := f.Result(t.Context(), id)
			require.ErrorIs(t, err, honker.ErrCancelled, id)
			require.Equal(t, 1, undone[id], id)
		}
	})
}

// The wait is recorded before the cancellation, so no later step records anything that could tell of it.
func TestCancel_BetweenLoadAndSuspension(t *testing.T) {
	bubble(t, func(t *testing.T, db *honker.DB) {
		var f *flow.Flow[int, string]
		attempts := 0
		f = flow.New(db, "order", func(ctx context.Context, _ int) (string, error) {
			if attempts++; attempts == 2 {
				cancelled, err := f.Cancel(ctx, "1")
				require.NoError(t, err)
				require.True(t, cancelled)
			}
			return flow.Wait[string](ctx, "never", time.Hour)
		}, quick(3))
		start(t, f, "1", 1)
		work(t, f, 1)
		synctest.Wait()
		testkit.Exec(t, db, `UPDATE _honker_live SET run_at = unixepoch('2000-01-01')`)
		_, err := f.Result(t.Context(), "1")
		require.ErrorIs(t, err, honker.ErrCancelled)
		require.Equal(t, 2, attempts)
	})
}

// The end of a called run is recorded with the run that called it, and stays when the called run is no longer kept.
func TestCall_OutlivesItsRun(t *testing.T) {
	bubble(t, func(t *testing.T, db *honker.DB) {
		child := flow.New(db, "ship", func(_ context.Context, in int) (string, error) {
			if in == 0 {
				return "", honker.Reject(errors.New("lost"))
			}
			return "parcel", nil
		}, &flow.Options{Keep: time.Hour})
		parent := flow.New(db, "order", func(ctx context.Context, in int) (string, error) {
			out, err := flow.Call(ctx, "shipping", child, in)
			var failed *flow.FailedError
			if errors.As(err, &failed) {
				out, err = failed.LastError, nil
			}
			if err != nil {
				return "", err
			}
			if err := flow.Sleep(ctx, "later", 48*time.Hour); err != nil {
				return "", err
			}
			return out, nil
		}, quick(1))
		work(t, child, 1)
		work(t, parent, 1)
		for in, want := range []string{"lost", "parcel"} {
			id := strconv.Itoa(in)
			start(t, parent, id, in)
			time.Sleep(24 * time.Hour)
			testkit.Exec(t, db, `DELETE FROM _honker_dead`)
			require.NoError(t, db.Maintain(t.Context(), &honker.MaintainOptions{Once: true}))
			_, err := child.Result(t.Context(), id+"/shipping")
			require.ErrorIs(t, err, honker.ErrNotFound)
			out, err := parent.Result(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, want, out)
		}
	})
}

// A run that fails by the timeout of its last attempt is undone, in an attempt with a time of its own.
func TestUndo_AfterTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, db *honker.DB) {
		undone := 0
		opts := quick(1)
		opts.Queue.Timeout = time.Minute
		f := flow.New(db, "order", func(ctx context.Context, _ int) (string, error) {
			flow.Undo(ctx, "all", func(ctx context.Context) error {
				if ctx.Err() == nil {
					undone++
				}
				return ctx.Err()
			})
			return flow.Step(ctx, "hangs", func(ctx context.Context) (string, error) {
				<-ctx.Done()
				return "", ctx.Err()
			})
		}, opts)
		work(t, f, 1)
		start(t, f, "1", 1)
		_, err := f.Result(t.Context(), "1")
		var failed *flow.FailedError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, 1, undone)
	})
}
