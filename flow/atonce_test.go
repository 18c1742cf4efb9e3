package flow_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/flow"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// The tests of this file run in real time, so that they run on each database, and several handles use it at once.

// pair returns two handles of the same database.
func pair(t *testing.T) (a, b *honker.DB) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "honker.db")
	return honkertest.OpenFile(t, path, nil), honkertest.OpenFile(t, path, nil)
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// If several callers start the same ID at once, a single caller starts the run, even if the run is soon over.
func TestStart_AtOnce(t *testing.T) {
	a, b := pair(t)
	var ran atomic.Int32
	newFlow := func(db *honker.DB) *flow.Flow[int, int] {
		return flow.New(db, "order", func(_ context.Context, in int) (int, error) { ran.Add(1); return in, nil }, nil)
	}
	flows := []*flow.Flow[int, int]{newFlow(a), newFlow(b)}
	work(t, flows[0], 2)
	const runs = 30
	var wins [runs]atomic.Int32
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range runs {
				started, err := flows[g%2].Start(within(t), strconv.Itoa(i), i)
				if err != nil {
					t.Error(err)
				}
				if started {
					wins[i].Add(1)
				}
			}
		})
	}
	wg.Wait()
	for i := range runs {
		require.EqualValues(t, 1, wins[i].Load())
		out, err := flows[1].Result(within(t), strconv.Itoa(i))
		require.NoError(t, err)
		require.Equal(t, i, out)
	}
	require.EqualValues(t, runs, ran.Load())
}

// No signal is missed, whenever it comes: before the wait, during the suspension or after it, from any handle.
func TestWait_SignalAtAnyMoment(t *testing.T) {
	a, b := pair(t)
	f := flow.New(a, "order", func(ctx context.Context, in int) (string, error) {
		if _, err := flow.Step(ctx, "first", func(context.Context) (int, error) { return in, nil }); err != nil {
			return "", err
		}
		return flow.Wait[string](ctx, "go", 0)
	}, nil)
	work(t, f, 4)
	const runs = 100
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := g; i < runs; i += 4 {
				id := strconv.Itoa(i)
				if _, err := f.Start(within(t), id, i); err != nil {
					t.Error(err)
				}
				time.Sleep(rand.N(8 * time.Millisecond)) // a moment of the run at random
				if err := flow.Signal(within(t), b, "order", id, "go", id); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for i := range runs {
		out, err := f.Result(within(t), strconv.Itoa(i))
		require.NoError(t, err)
		require.Equal(t, strconv.Itoa(i), out)
	}
}

// A run ends when it is cancelled, whenever that is: either as cancelled, or with its result if Cancel says so.
func TestCancel_AtAnyMoment(t *testing.T) {
	a, b := pair(t)
	newFlow := func(db *honker.DB) *flow.Flow[int, int] {
		return flow.New(db, "order", func(ctx context.Context, in int) (int, error) {
			for i := range 3 {
				if _, err := flow.Step(ctx, strconv.Itoa(i), func(context.Context) (int, error) { return i, nil }); err != nil {
					return 0, err
				}
			}
			if in%2 == 0 {
				return in, nil
			}
			return flow.Wait[int](ctx, "never", 0)
		}, nil)
	}
	f, other := newFlow(a), newFlow(b)
	work(t, f, 4)
	for i := range 60 {
		id := strconv.Itoa(i)
		start(t, f, id, i)
		time.Sleep(rand.N(6 * time.Millisecond)) // a moment of the run at random
		cancelled, err := other.Cancel(within(t), id)
		require.NoError(t, err)
		out, err := f.Result(within(t), id)
		if cancelled {
			require.ErrorIs(t, err, honker.ErrCancelled)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, i, out)
	}
}

// A run and the run that it calls go on in other handles, and each effect of StepTx happens once.
func TestCall_AcrossHandles(t *testing.T) {
	a, b := pair(t)
	testkit.Exec(t, a, `CREATE TABLE shipped (n INTEGER)`)
	newChild := func(db *honker.DB) *flow.Flow[int, string] {
		tries := new(atomic.Int32)
		return flow.New(db, "ship", func(ctx context.Context, in int) (string, error) {
			return flow.StepTx(ctx, "ship", func(ctx context.Context, tx *sql.Tx) (string, error) {
				if in == 0 {
					return "", honker.Reject(errors.New("empty"))
				}
				if _, err := tx.ExecContext(ctx, `INSERT INTO shipped VALUES ($1)`, in); err != nil {
					return "", err
				}
				if tries.Add(1)%3 == 0 {
					return "", errors.New("not yet")
				}
				return fmt.Sprint("parcel ", in), nil
			})
		}, &flow.Options{Queue: honker.QueueOptions{Backoff: func(int, error) time.Duration { return 0 }}})
	}
	child := newChild(a)
	parent := flow.New(a, "order", func(ctx context.Context, in int) (string, error) {
		out, err := flow.Call(ctx, "shipping", child, in)
		var failed *flow.FailedError
		if errors.As(err, &failed) {
			return "failed: " + failed.LastError, nil
		}
		return out, err
	}, nil)
	work(t, newChild(b), 2)
	work(t, parent, 2)
	const runs = 20
	for i := range runs {
		start(t, parent, strconv.Itoa(i), i)
	}
	for i := range runs {
		out, err := parent.Result(within(t), strconv.Itoa(i))
		require.NoError(t, err)
		if i == 0 {
			require.Equal(t, "failed: empty", out)
			continue
		}
		require.Equal(t, fmt.Sprint("parcel ", i), out)
	}
	require.EqualValues(t, runs-1, testkit.QueryInt(t, a.SQL(), `SELECT count(*) FROM shipped`))
	require.EqualValues(t, runs-1, testkit.QueryInt(t, a.SQL(), `SELECT count(DISTINCT n) FROM shipped`))
}

// A worker that has lost its run records nothing: the run goes on elsewhere, and its effects happen once.
func TestStep_ClaimLost(t *testing.T) {
	a, b := pair(t)
	testkit.Exec(t, a, `CREATE TABLE sold (n INTEGER)`)
	began, release := make(chan bool, 1), make(chan bool)
	var lost atomic.Pointer[error]
	quickly := flow.New(b, "order", func(ctx context.Context, _ int) (string, error) {
		return flow.StepTx(ctx, "sell", func(ctx context.Context, tx *sql.Tx) (string, error) {
			_, err := tx.ExecContext(ctx, `INSERT INTO sold VALUES (1)`)
			return "second", err
		})
	}, nil)
	slow := flow.New(a, "order", func(ctx context.Context, _ int) (string, error) {
		began <- true
		<-release
		_, err := flow.Step(context.WithoutCancel(ctx), "slow", func(context.Context) (int, error) { return 0, nil })
		lost.Store(&err)
		return "", err
	}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- slow.Work(ctx, &honker.WorkOptions{Workers: 1, Lease: time.Second, DrainTimeout: time.Millisecond})
	}()
	start(t, slow, "1", 1)
	<-began
	cancel() // a second later, the drain gives the claim back while the handler still runs
	work(t, quickly, 1)
	out, err := quickly.Result(within(t), "1")
	require.NoError(t, err)
	require.Equal(t, "second", out)
	close(release)
	require.Eventually(t, func() bool { return lost.Load() != nil }, 10*time.Second, time.Millisecond)
	require.ErrorIs(t, *lost.Load(), honker.ErrClaimLost)
	require.NoError(t, <-done)
	require.EqualValues(t, 1, testkit.QueryInt(t, a.SQL(), `SELECT count(*) FROM sold`))
}

// A statement without the library signals a run, which goes on. A run that is over takes no signal.
func TestWait_SignalByStatement(t *testing.T) {
	db := honkertest.Open(t, nil)
	f := flow.New(db, "order", func(ctx context.Context, in int) (int, error) { return flow.Wait[int](ctx, "approved", 0) }, nil)
	work(t, f, 1)
	start(t, f, "1", 1)
	time.Sleep(20 * time.Millisecond) // it may wait by then
	testkit.Exec(t, db, testkit.SignalRun, "order", "1", "approved", "5")
	out, err := f.Result(within(t), "1")
	require.NoError(t, err)
	require.Equal(t, 5, out)
	require.ErrorIs(t, flow.Signal(within(t), db, "order", "1", "more", 1), honker.ErrNotFound)
}
