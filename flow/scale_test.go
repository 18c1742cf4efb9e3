package flow_test

import (
	"context"
	"database/sql"
	"fmt"
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

// Many runs that sleep for days hold no worker, wake when their time has come, and all end.
func TestSleep_ManyRuns(t *testing.T) {
	runs := 20_000
	if testing.Short() || !testkit.OnFile() {
		runs = 1_000
	}
	bubble(t, func(t *testing.T, db *honker.DB) {
		var ended, early atomic.Int64
		began := time.Now()
		f := flow.New(db, "order", func(ctx context.Context, days int) (int, error) {
			if err := flow.Sleep(ctx, "days", time.Duration(days)*24*time.Hour); err != nil {
				return 0, err
			}
			if time.Since(began) < time.Duration(days)*24*time.Hour {
				early.Add(1)
			}
			ended.Add(1)
			return days, nil
		}, nil)
		for from := 0; from < runs; from += 1000 {
			require.NoError(t, db.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
				for i := from; i < from+1000; i++ {
					if _, err := f.StartTx(ctx, tx, fmt.Sprint(i), 1+i%30); err != nil {
						return err
					}
				}
				return nil
			}))
		}
		work(t, f, 8)
		time.Sleep(31 * 24 * time.Hour)
		synctest.Wait()
		require.EqualValues(t, runs, ended.Load())
		require.Zero(t, early.Load())
	})
}

// Two versions of a function work on the runs of the same file, at the same time. Steps that only one of them has, and another
// order, do no harm.
func TestFlow_TwoVersions(t *testing.T) {
	bubble(t, func(t *testing.T, db *honker.DB) {
		var first, second atomic.Int64
		step := func(ctx context.Context, name string, n *atomic.Int64) error {
			_, err := flow.Step(ctx, name, func(context.Context) (int64, error) { return n.Add(1), nil })
			return err
		}
		var added atomic.Int64
		version := func(steps ...string) *flow.Flow[int, int] {
			counts := map[string]*atomic.Int64{"first": &first, "second": &second, "added": &added}
			return flow.New(db, "order", func(ctx context.Context, _ int) (int, error) {
				for i, name := range steps {
					if err := step(ctx, name, counts[name]); err != nil {
						return 0, err
					}
					if err := flow.Sleep(ctx, fmt.Sprint("sleep", i), time.Hour); err != nil {
						return 0, err
					}
				}
				v, err := flow.Version(ctx, "pricing", len(steps)-1)
				return v, err
			}, nil)
		}
		old := version("first", "second")
		work(t, old, 2)
		work(t, version("second", "added", "first"), 2)
		const runs = 200
		for i := range runs {
			start(t, old, fmt.Sprint(i), 1)
		}
		for i := range runs {
			v, err := old.Result(t.Context(), fmt.Sprint(i))
			require.NoError(t, err)
			require.Contains(t, []int{1, 2}, v)
		}
		require.EqualValues(t, runs, first.Load())
		require.EqualValues(t, runs, second.Load())
		require.Positive(t, added.Load())
	})
}

// A clock that is set back delays a sleep at most by as much, and repeats no step.
func TestSleep_ClockSetBack(t *testing.T) {
	testkit.FileOnly(t)
	synctest.Test(t, func(t *testing.T) {
		path := t.TempDir() + "/honker.db"
		db := honkertest.OpenFile(t, path, nil)
		var steps atomic.Int64
		f := flow.New(db, "order", func(ctx context.Context, _ int) (int, error) {
			if _, err := flow.Step(ctx, "first", func(context.Context) (int64, error) { return steps.Add(1), nil }); err != nil {
				return 0, err
			}
			return 5, flow.Sleep(ctx, "night", 24*time.Hour)
		}, nil)
		stop := work(t, f, 1)
		start(t, f, "1", 1)
		time.Sleep(time.Hour)
		stop()
		// The rows of the run are as after the clock of the machine was set back by a week.
		_, err := db.SQL().Exec(`UPDATE _honker_live SET run_at = run_at + 604800`)
		require.NoError(t, err)
		_, err = db.SQL().Exec(`UPDATE _honkerx_flow_steps SET began_ms = began_ms + 604800000, until_ms = until_ms + 604800000, ended_ms = ended_ms + 604800000`)
		require.NoError(t, err)
		work(t, f, 1)
		began := time.Now()
		out, err := f.Result(t.Context(), "1")
		require.NoError(t, err)
		require.Equal(t, 5, out)
		require.LessOrEqual(t, time.Since(began), 8*24*time.Hour)
		require.EqualValues(t, 1, steps.Load())
	})
}
