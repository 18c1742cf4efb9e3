package flow_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/flow"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// An error that a later attempt cannot change ends the run at once: a wait that has timed out, a child that has failed.
func TestRun_FailsForGood(t *testing.T) {
	bubble(t, func(t *testing.T, db *honker.DB) {
		child := flow.New(db, "child", func(context.Context, int) (int, error) { return 0, honker.Reject(errors.New("no")) }, nil)
		f := flow.New(db, "order", func(ctx context.Context, in int) (int, error) {
			if in == 0 {
				return flow.Wait[int](ctx, "never", time.Hour)
			}
			return flow.Call(ctx, "child", child, in)
		}, nil)
		work(t, f, 2)
		work(t, child, 1)
		start(t, f, "timeout", 0)
		start(t, f, "failed", 1)
		began := time.Now()
		for id, text := range map[string]string{"timeout": "has not come in time", "failed": `run "failed/child" of flow "child" failed after 1 attempts: no`} {
			_, err := f.Result(t.Context(), id)
			var failed *flow.FailedError
			require.ErrorAs(t, err, &failed)
			require.Equal(t, 1, failed.Attempts)
			require.Contains(t, failed.LastError, text)
		}
		require.Less(t, time.Since(began), 2*time.Hour)
	})
}

// A run that is kept for ever keeps its result.
func TestFlow_KeepForEver(t *testing.T) {
	bubble(t, func(t *testing.T, db *honker.DB) {
		f := flow.New(db, "order", func(_ context.Context, in int) (int, error) { return in, nil }, &flow.Options{Keep: -1})
		stop := work(t, f, 1)
		start(t, f, "1", 5)
		_, err := f.Result(t.Context(), "1")
		require.NoError(t, err)
		stop()
		time.Sleep(365 * 24 * time.Hour)
		require.NoError(t, db.Maintain(t.Context(), &honker.MaintainOptions{Once: true}))
		out, err := f.Result(t.Context(), "1")
		require.NoError(t, err)
		require.Equal(t, 5, out)
		started, err := f.Start(t.Context(), "1", 6)
		require.NoError(t, err)
		require.False(t, started)
	})
}

// A DB that is read-only starts nothing, whether the flow has the run or not.
func TestStart_ReadOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "honker.db")
	newFlow := func(db *honker.DB) *flow.Flow[int, int] {
		return flow.New(db, "order", func(_ context.Context, in int) (int, error) { return in, nil }, nil)
	}
	start(t, newFlow(honkertest.OpenFile(t, path, nil)), "1", 5)
	f := newFlow(honkertest.OpenFile(t, path, &honker.Options{ReadOnly: true}))
	for _, id := range []string{"1", "2"} {
		_, err := f.Start(t.Context(), id, 5)
		require.ErrorIs(t, err, honker.ErrReadOnly)
	}
}

// Sleeps of all lengths are kept.
func TestSleep_Longest(t *testing.T) {
	bubble(t, func(t *testing.T, db *honker.DB) {
		f := flow.New(db, "order", func(ctx context.Context, in int) (int, error) {
			return in, flow.Sleep(ctx, "age", 1<<63-1)
		}, nil)
		work(t, f, 1)
		start(t, f, "1", 5)
		synctest.Wait()
		cancelled, err := f.Cancel(t.Context(), "1")
		require.NoError(t, err)
		require.True(t, cancelled)
		_, err = f.Result(t.Context(), "1")
		require.ErrorIs(t, err, honker.ErrCancelled)
	})
}

// backwards is a codec that reverses the payload.
type backwards struct{}

func (backwards) Encode(_ context.Context, _ string, payload json.RawMessage) (json.RawMessage, error) {
	text := slices.Clone(payload)
	slices.Reverse(text)
	return json.Marshal(string(text))
}

func (backwards) Decode(_ context.Context, _ string, stored json.RawMessage) (json.RawMessage, error) {
	var text string
	err := json.Unmarshal(stored, &text)
	payload := []byte(text)
	slices.Reverse(payload)
	return payload, err
}

// Everything that a run stores goes through the codec.
func TestFlow_Codec(t *testing.T) {
	testkit.FileOnly(t)
	synctest.Test(t, func(t *testing.T) {
		db := honkertest.Open(t, &honker.Options{Codec: backwards{}})
		child := flow.New(db, "child", func(_ context.Context, in string) (string, error) { return in + "!", nil }, nil)
		f := flow.New(db, "order", func(ctx context.Context, in string) (string, error) {
			a, err := flow.Step(ctx, "a", func(context.Context) (string, error) { return in + "secret", nil })
			if err != nil {
				return "", err
			}
			b, err := flow.Wait[string](ctx, "go", 0)
			if err != nil {
				return "", err
			}
			return flow.Call(ctx, "child", child, a+b)
		}, nil)
		work(t, f, 1)
		work(t, child, 1)
		start(t, f, "1", "top")
		synctest.Wait()
		require.NoError(t, flow.Signal(t.Context(), db, "order", "1", "go", "secret2"))
		out, err := f.Result(t.Context(), "1")
		require.NoError(t, err)
		require.Equal(t, "topsecretsecret2!", out)
		for _, q := range []string{`SELECT count(*) FROM _honkerx_flow_steps WHERE value LIKE '%secret%'`, `SELECT count(*) FROM _honkerx_flow_signals WHERE value LIKE '%secret%'`, `SELECT count(*) FROM _honker_results WHERE value LIKE '%secret%'`} {
			require.Zero(t, testkit.QueryInt(t, db.SQL(), q), q)
		}
	})
}

// Result reads a single state of the database: a run that ends meanwhile has not lost its job.
func TestResult_EndsMeanwhile(t *testing.T) {
	db := honkertest.Open(t, nil)
	f := flow.New(db, "order", func(_ context.Context, in int) (int, error) { return in, nil }, nil)
	work(t, f, 4)
	var done sync.WaitGroup
	for i := range 4 {
		done.Go(func() {
			for j := range 100 {
				id := fmt.Sprint(i, " ", j)
				_, err := f.Start(context.Background(), id, j)
				assert.NoError(t, err)
				for range 20 {
					ctx, cancel := context.WithTimeout(context.Background(), 100*time.Microsecond)
					out, err := f.Result(ctx, id)
					cancel()
					if errors.Is(err, context.DeadlineExceeded) {
						continue
					}
					assert.NoError(t, err)
					assert.Equal(t, j, out)
				}
			}
		})
	}
	done.Wait()
}

// A function that goes on after its suspension registers no undo: the step that it undoes has not run.
func TestUndo_AfterSuspension(t *testing.T) {
	bubble(t, func(t *testing.T, db *honker.DB) {
		undone := 0
		f := flow.New(db, "order", func(ctx context.Context, _ int) (int, error) {
			_ = flow.Sleep(ctx, "night", time.Hour)
			_, err := flow.Step(ctx, "pay", func(context.Context) (int, error) { return 1, nil })
			flow.Undo(ctx, "pay", func(context.Context) error { undone++; return nil })
			return 0, err
		}, nil)
		work(t, f, 1)
		start(t, f, "1", 1)
		time.Sleep(time.Minute)
		_, err := f.Cancel(t.Context(), "1")
		require.NoError(t, err)
		_, err = f.Result(t.Context(), "1")
		require.ErrorIs(t, err, honker.ErrCancelled)
		require.Zero(t, undone)
	})
}

// A run that is undone comes back to all of its undos, also after a wait whose signal came early.
func TestUndo_AfterEarlySignal(t *testing.T) {
	bubble(t, func(t *testing.T, db *honker.DB) {
		undone, tries := 0, 0
		f := flow.New(db, "order", func(ctx context.Context, _ int) (int, error) {
			if _, err := flow.Wait[int](ctx, "go", 0); err != nil {
				return 0, err
			}
			flow.Undo(ctx, "pay", func(context.Context) error {
				if tries++; tries == 1 {
					return errors.New("busy")
				}
				undone++
				return nil
			})
			return 0, honker.Reject(errors.New("no"))
		}, quick(3))
		start(t, f, "1", 1)
		require.NoError(t, flow.Signal(t.Context(), db, "order", "1", "go", 1))
		work(t, f, 1)
		_, err := f.Result(t.Context(), "1")
		require.ErrorContains(t, err, "no")
		require.Equal(t, 1, undone)
	})
}

// A run does not fail by a process that has lost it.
func TestUndo_ClaimLost(t *testing.T) {
	bubble(t, func(t *testing.T, db *honker.DB) {
		calls := 0
		f := flow.New(db, "order", func(ctx context.Context, _ int) (int, error) {
			flow.Undo(ctx, "pay", func(context.Context) error { t.Error("the run is undone"); return nil })
			if calls++; calls == 1 {
				job, err := strconv.ParseInt(strings.Split(flow.Key(ctx, "pay"), "/")[1], 10, 64)
				require.NoError(t, err)
				honkertest.Lapse(t, db, job)
				time.Sleep(100 * time.Millisecond)
				return 0, honker.Reject(errors.New("no"))
			}
			time.Sleep(time.Second)
			return 5, flow.Sleep(ctx, "night", time.Hour)
		}, nil)
		stop := work(t, f, 1)
		start(t, f, "1", 1)
		time.Sleep(50 * time.Millisecond)
		work(t, f, 1)
		out, err := f.Result(t.Context(), "1")
		require.NoError(t, err)
		require.Equal(t, 5, out)
		stop()
	})
}

// A signal that came in time counts, although the attempt that finds the time over had begun before the signal.
func TestWait_SignalInTimeDuringAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, db *honker.DB) {
		calls := 0
		f := flow.New(db, "order", func(ctx context.Context, _ int) (int, error) {
			if calls++; calls == 2 {
				require.NoError(t, flow.Signal(ctx, db, "order", "1", "go", 7))
				time.Sleep(2 * time.Hour)
			}
			return flow.Wait[int](ctx, "go", time.Hour)
		}, quick(5))
		work(t, f, 1)
		start(t, f, "1", 1)
		out, err := f.Result(t.Context(), "1")
		require.NoError(t, err)
		require.Equal(t, 7, out)
	})
}

// Calls whose runs and names are joined to the same ID start runs of their own.
func TestCall_SameID(t *testing.T) {
	db := honkertest.Open(t, nil)
	child := flow.New(db, "mail", func(_ context.Context, in string) (string, error) { return "to " + in, nil }, nil)
	caller := func(name, step string) *flow.Flow[string, string] {
		return flow.New(db, name, func(ctx context.Context, in string) (string, error) { return flow.Call(ctx, step, child, in) }, nil)
	}
	work(t, child, 1)
	start(t, child, "a/b/d", "nobody")
	for i, c := range []struct{ flow, step, id string }{{"order", "b/c", "a"}, {"refund", "c", "a/b"}, {"claim", "b/c", "a"}, {"offer", "b/d", "a"}} {
		f := caller(c.flow, c.step)
		work(t, f, 1)
		start(t, f, c.id, fmt.Sprint(i))
		out, err := f.Result(within(t), c.id)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint("to ", i), out)
		d, err := flow.Get(within(t), db, c.flow, c.id)
		require.NoError(t, err)
		out, err = child.Result(within(t), d.Timeline[0].CallID)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint("to ", i), out)
	}
	_, err := child.Result(within(t), "a/b/c")
	require.NoError(t, err, "the first of them has the plain ID")
}

// A run that waits for its child since an older version, which did not record the ID of the child, finds it.
func TestCall_RecordedWithoutID(t *testing.T) {
	testkit.FileOnly(t)
	db := honkertest.Open(t, nil)
	child := flow.New(db, "mail", func(ctx context.Context, in string) (string, error) { return flow.Wait[string](ctx, "sent", 0) }, nil)
	f := flow.New(db, "order", func(ctx context.Context, in string) (string, error) { return flow.Call(ctx, "b/c", child, in) }, nil)
	work(t, child, 1)
	stop := work(t, f, 1)
	start(t, f, "a", "x")
	suspended(t, db, "order", "a", "b/c")
	stop()
	testkit.Exec(t, db, `UPDATE _honkerx_flow_steps SET value = '{"Flow":"mail","Result":""}' WHERE name = 'b/c'`)
	require.NoError(t, flow.Signal(within(t), db, "mail", "a/b/c", "sent", "yes"))
	work(t, f, 1)
	out, err := f.Result(within(t), "a")
	require.NoError(t, err)
	require.Equal(t, "yes", out)
}

// A signal to a flow of which the database knows nothing leaves the caller's transaction as it was.
func TestSignalTx_NoRuns(t *testing.T) {
	db := honkertest.Open(t, nil)
	testkit.Exec(t, db, `CREATE TABLE sold (n INTEGER)`)
	require.NoError(t, db.Tx(within(t), func(ctx context.Context, tx *sql.Tx) error {
		require.ErrorIs(t, flow.SignalTx(ctx, tx, db, "order", "1", "go", 1), honker.ErrNotFound)
		_, err := tx.ExecContext(ctx, `INSERT INTO sold VALUES (1)`)
		return err
	}))
	require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM sold`))
}
