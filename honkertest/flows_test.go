package honkertest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/flow"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// bank counts the calls of an order's steps. Its charges have keys, as those of a real bank.
type bank struct {
	calls, undone int
	charges       map[string]bool
}

// orders returns a flow that charges, sleeps for a day, waits for an approval, and ships in the database.
func orders(t *testing.T, db *honker.DB, b *bank) *flow.Flow[string, string] {
	t.Helper()
	testkit.Exec(t, db, `CREATE TABLE parcels (receiver TEXT)`)
	b.charges = make(map[string]bool)
	return flow.New(db, "order", func(ctx context.Context, customer string) (string, error) {
		_, err := flow.Step(ctx, "charge", func(ctx context.Context) (bool, error) {
			b.calls++
			b.charges[flow.Key(ctx, "charge")] = true
			return true, nil
		})
		if err != nil {
			return "", err
		}
		flow.Undo(ctx, "charge", func(context.Context) error { b.undone++; return nil })
		if err := flow.Sleep(ctx, "night", 24*time.Hour); err != nil {
			return "", err
		}
		if ok, err := flow.Wait[bool](ctx, "approved", 72*time.Hour); err != nil || !ok {
			return "", errors.Join(err, honker.Reject(errCause))
		}
		return flow.StepTx(ctx, "ship", func(ctx context.Context, tx *sql.Tx) (string, error) {
			_, err := tx.ExecContext(ctx, `INSERT INTO parcels VALUES ($1)`, customer)
			return "parcel for " + customer, err
		})
	}, &flow.Options{Queue: honker.QueueOptions{MaxAttempts: 1}})
}

func startRun(t *testing.T, f *flow.Flow[string, string], id string) {
	t.Helper()
	started, err := f.Start(t.Context(), id, "Ann")
	require.NoError(t, err)
	require.True(t, started)
}

func parcels(t *testing.T, db *honker.DB) int64 {
	t.Helper()
	return testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM parcels`)
}

// DrainAll lets runs sleep in a bubble, and leaves a run that waits for a signal until the signal has come.
func TestHandleFlow_Days(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		var b bank
		f := orders(t, db, &b)
		h := honkertest.Handlers{honkertest.HandleFlow(f)}
		startRun(t, f, "1")
		began := time.Now()
		require.Equal(t, honkertest.DrainResult{Snoozed: 1, Left: 1}, honkertest.DrainAll(t, db, h, nil))
		require.NoError(t, flow.Signal(t.Context(), db, "order", "1", "approved", true))
		require.Equal(t, honkertest.DrainResult{Acked: 1}, honkertest.DrainAll(t, db, h, &honkertest.DrainOptions{Scheduled: true}))
		require.Equal(t, 24*time.Hour, time.Since(began))
		out, err := f.Result(t.Context(), "1")
		require.NoError(t, err)
		require.Equal(t, "parcel for Ann", out)

		startRun(t, f, "2")
		began = time.Now()
		honkertest.DrainAll(t, db, h, &honkertest.DrainOptions{Retries: true})
		require.Equal(t, (24+72)*time.Hour, time.Since(began), "the wait has timed out")
		require.Equal(t, 1, b.undone)
		run, err := flow.Get(t.Context(), db, "order", "2")
		require.NoError(t, err)
		require.Equal(t, flow.StateFailed, run.State)
	})
}

// A wait without a limit, and outside a bubble a sleep, do not pass, and DrainAll returns.
func TestHandleFlow_LeavesWaits(t *testing.T) {
	db := honkertest.Open(t, nil)
	f := flow.New(db, "nap", func(ctx context.Context, unlimited bool) (bool, error) {
		if unlimited {
			return flow.Wait[bool](ctx, "go", 0)
		}
		return true, flow.Sleep(ctx, "hour", time.Hour)
	}, nil)
	for id, unlimited := range map[string]bool{"wait": true, "sleep": false} {
		_, err := f.Start(t.Context(), id, unlimited)
		require.NoError(t, err)
	}
	all := &honkertest.DrainOptions{Scheduled: true, Retries: true, Limit: 10}
	got := honkertest.DrainAll(t, db, honkertest.Handlers{honkertest.HandleFlow(f)}, all)
	require.Equal(t, honkertest.DrainResult{Snoozed: 2, Left: 2}, got)
	require.NoError(t, flow.Signal(t.Context(), db, "nap", "wait", "go", true))
	require.Equal(t, 1, honkertest.DrainAll(t, db, honkertest.Handlers{honkertest.HandleFlow(f)}, all).Acked)
}

// CrashFlow crashes at each commit of a run, and the run ends all the same. Step runs again, and StepTx has its effect once.
func TestCrashFlow_EachStep(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		var b bank
		f := orders(t, db, &b)
		startRun(t, f, "1")
		require.NoError(t, flow.Signal(t.Context(), db, "order", "1", "approved", true))
		got := honkertest.DrainAll(t, db, honkertest.Handlers{honkertest.CrashFlow(f)}, &honkertest.DrainOptions{Scheduled: true})
		// Each of the four steps crashes twice. The suspension and the end crash before their commits. The suspension itself
		// is the eleventh.
		require.Equal(t, honkertest.DrainResult{Acked: 1, Snoozed: 11}, got)
		require.Equal(t, 2, b.calls)
		require.Len(t, b.charges, 1)
		require.EqualValues(t, 1, parcels(t, db))
	})
}

// CrashFlow crashes at the steps of undos and calls, and in goroutines.
func TestCrashFlow_Kinds(t *testing.T) {
	db := honkertest.Open(t, nil)
	undone, shipped := 0, 0
	ship := flow.New(db, "ship", func(ctx context.Context, n int) (int, error) {
		return flow.Step(ctx, "pack", func(context.Context) (int, error) { shipped++; return n + 1, nil })
	}, nil)
	f := flow.New(db, "order", func(ctx context.Context, n int) (int, error) {
		errs := make(chan error, 2)
		for i := range 2 {
			go func() {
				_, err := flow.Step(ctx, fmt.Sprint("part ", i), func(context.Context) (int, error) { return i, nil })
				errs <- err
			}()
		}
		if err := errors.Join(<-errs, <-errs); err != nil {
			return 0, err
		}
		flow.Undo(ctx, "parts", func(context.Context) error { undone++; return nil })
		if _, err := flow.Version(ctx, "v", 2); err != nil {
			return 0, err
		}
		n, err := flow.Call(ctx, "ship", ship, n)
		return n, errors.Join(err, honker.Reject(errCause))
	}, nil)
	_, err := f.Start(t.Context(), "1", 1)
	require.NoError(t, err)
	got := honkertest.DrainAll(t, db, honkertest.Handlers{honkertest.CrashFlow(f), honkertest.CrashFlow(ship)}, nil)
	require.Equal(t, 1, got.Acked, "the called run")
	require.Equal(t, 1, got.Dead)
	require.Equal(t, 2, shipped)
	require.Equal(t, 2, undone)
	run, err := flow.Get(t.Context(), db, "order", "1")
	require.NoError(t, err)
	require.Equal(t, flow.StateFailed, run.State)
	require.Contains(t, run.LastError, errCause.Error())
}

// StopFlow stops before a step has begun, before its commit and after it, without spending an attempt.
func TestStopFlow_Points(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		var b bank
		f := orders(t, db, &b)
		startRun(t, f, "1")
		run := honkertest.StopFlow(t, f, "1", "charge", honkertest.StepReached)
		require.Empty(t, run.Timeline)
		require.Zero(t, b.calls)
		run = honkertest.StopFlow(t, f, "1", "charge", honkertest.StepUncommitted)
		require.Empty(t, run.Timeline)
		require.Equal(t, 1, b.calls)
		run = honkertest.StopFlow(t, f, "1", "charge", honkertest.StepCommitted)
		require.Len(t, run.Timeline, 1)
		require.Equal(t, 2, b.calls)
		require.Equal(t, flow.StateWaiting, run.State)
		require.Zero(t, run.Attempts)

		require.NoError(t, flow.Signal(t.Context(), db, "order", "1", "approved", true))
		honkertest.DrainAll(t, db, honkertest.Handlers{honkertest.HandleFlow(f)}, nil)
		time.Sleep(24 * time.Hour)
		honkertest.StopFlow(t, f, "1", "ship", honkertest.StepUncommitted)
		require.Zero(t, parcels(t, db), "rolled back")
		honkertest.StopFlow(t, f, "1", "ship", honkertest.StepCommitted)
		require.EqualValues(t, 1, parcels(t, db))
		require.Equal(t, 1, honkertest.DrainAll(t, db, honkertest.Handlers{honkertest.HandleFlow(f)}, nil).Acked)
		require.EqualValues(t, 1, parcels(t, db))
		require.Equal(t, 2, b.calls)
	})
}

// StopFlow fails the test if the run does not come to the step, and says where it is.
func TestStopFlow_NotReached(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		var b bank
		f := orders(t, db, &b)
		requireFails(t, func(t testing.TB) { honkertest.StopFlow(t, f, "1", "ship", honkertest.StepReached) }, "not found")
		startRun(t, f, "1")
		requireFails(t, func(t testing.TB) { honkertest.StopFlow(t, f, "1", "ship", honkertest.StepReached) },
			`run "1" of flow "order" has not come to step "ship"`, "waiting after 2 steps")
	})
}

func ExampleCrashFlow() {
	t := new(testing.T) // the test's

	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		orders := flow.New(db, "order", placeOrder, nil)
		orders.Start(t.Context(), "17", "tea")
		flow.Signal(t.Context(), db, "order", "17", "approved", true)

		honkertest.DrainAll(t, db, honkertest.Handlers{honkertest.CrashFlow(orders)}, &honkertest.DrainOptions{Scheduled: true})
		// Check here that the order was charged a single time.
	})
}

func placeOrder(ctx context.Context, item string) (string, error) {
	return flow.Wait[string](ctx, "approved", time.Hour)
}
