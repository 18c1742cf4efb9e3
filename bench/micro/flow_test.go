package micro_test

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
	"github.com/honker-go/honker/flow"
)

// workFlow works on f until the benchmark ends.
func workFlow[In, Out any](b *testing.B, f *flow.Flow[In, Out]) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Work(ctx, &honker.WorkOptions{Workers: 64}) }()
	b.Cleanup(func() { cancel(); require.NoError(b, <-done) })
}

// BenchmarkFlow_Steps runs flows of many steps, beside a loop that inserts a row in each commit.
func BenchmarkFlow_Steps(b *testing.B) {
	for _, c := range []struct{ runs, steps int }{{1, 1000}, {64, 100}} {
		name := fmt.Sprintf("%d of %d", c.runs, c.steps)
		each := func(b *testing.B, run func(n, i int)) {
			round := 0
			for b.Loop() {
				var all sync.WaitGroup
				for i := range c.runs {
					all.Go(func() { run(round, i) })
				}
				all.Wait()
				round++
			}
			b.ReportMetric(float64(c.runs*c.steps*b.N)/b.Elapsed().Seconds(), "steps/s")
		}
		b.Run(name+"/raw", func(b *testing.B) {
			db := openBench(b, nil)
			_, err := db.SQL().ExecContext(b.Context(), `CREATE TABLE effects (n INTEGER)`)
			require.NoError(b, err)
			each(b, func(int, int) {
				for i := range c.steps {
					_, err := db.SQL().ExecContext(context.Background(), `INSERT INTO effects VALUES (?)`, i)
					require.NoError(b, err)
				}
			})
		})
		for kind, step := range map[string]func(ctx context.Context, name string, i int) error{"Step": stepOf, "StepTx": stepTxOf} {
			b.Run(name+"/"+kind, func(b *testing.B) {
				db := openBench(b, nil)
				_, err := db.SQL().ExecContext(b.Context(), `CREATE TABLE effects (n INTEGER)`)
				require.NoError(b, err)
				f := flow.New(db, "steps", func(ctx context.Context, steps int) (int, error) {
					for i := range steps {
						if err := step(ctx, fmt.Sprint("step", i), i); err != nil {
							return 0, err
						}
					}
					return steps, nil
				}, nil)
				workFlow(b, f)
				each(b, func(round, i int) {
					id := fmt.Sprint(round, "/", i)
					_, err := f.Start(context.Background(), id, c.steps)
					require.NoError(b, err)
					_, err = f.Result(context.Background(), id)
					require.NoError(b, err)
				})
			})
		}
	}
}

func stepOf(ctx context.Context, name string, i int) error {
	_, err := flow.Step(ctx, name, func(context.Context) (int, error) { return i, nil })
	return err
}

func stepTxOf(ctx context.Context, name string, i int) error {
	_, err := flow.StepTx(ctx, name, func(ctx context.Context, tx *sql.Tx) (int, error) {
		_, err := tx.ExecContext(ctx, `INSERT INTO effects VALUES (?)`, i)
		return i, err
	})
	return err
}

// BenchmarkFlow_Signal measures the time from a signal to the resumed function, beside 1,000 other runs that wait, and the
// time from the start to the first line of the function.
func BenchmarkFlow_Signal(b *testing.B) {
	db := openBench(b, nil)
	began, resumed := make(chan time.Time, 1), make(chan time.Time, 1)
	f := flow.New(db, "wait", func(ctx context.Context, measured bool) (int, error) {
		if measured {
			select {
			case began <- time.Now():
			default: // it goes on
			}
		}
		v, err := flow.Wait[int](ctx, "go", 0)
		if err == nil && measured {
			resumed <- time.Now()
		}
		return v, err
	}, nil)
	for i := range 1000 {
		_, err := f.Start(b.Context(), fmt.Sprint("waits", i), false)
		require.NoError(b, err)
	}
	workFlow(b, f)
	time.Sleep(2 * time.Second)
	var starts, signals []time.Duration
	for i := 0; b.Loop(); i++ {
		id := fmt.Sprint("measured", i)
		from := time.Now()
		_, err := f.Start(b.Context(), id, true)
		require.NoError(b, err)
		starts = append(starts, (<-began).Sub(from))
		time.Sleep(5 * time.Millisecond)
		from = time.Now()
		require.NoError(b, flow.Signal(b.Context(), db, "wait", id, "go", 1))
		signals = append(signals, (<-resumed).Sub(from))
		select {
		case <-began:
		default:
		}
	}
	slices.Sort(starts)
	slices.Sort(signals)
	b.ReportMetric(starts[len(starts)/2].Seconds()*1e3, "ms-start-p50")
	b.ReportMetric(signals[len(signals)/2].Seconds()*1e3, "ms-signal-p50")
	b.ReportMetric(signals[len(signals)-1].Seconds()*1e3, "ms-signal-max")
}
