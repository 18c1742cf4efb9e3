package honkerprom_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/flow"
	"github.com/honker-go/honker/honkerprom"
	"github.com/honker-go/honker/honkertest"
)

// A scrape reports the runs of each flow by state and the oldest that is suspended. The observer times the steps that ran.
func TestFlows_Metrics(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, _ *honker.DB) {
		reg := prometheus.NewPedanticRegistry()
		db := honkertest.Open(t, &honker.Options{Observer: honkerprom.Observer(reg, nil)})
		f := flow.New(db, "order", func(ctx context.Context, in int) (int, error) {
			_, err := flow.Step(ctx, "charge", func(context.Context) (int, error) {
				if in == 13 {
					return 0, honker.Reject(errors.New("no money"))
				}
				time.Sleep(time.Second)
				return in, nil
			})
			if err != nil {
				return 0, err
			}
			return flow.Wait[int](ctx, "go", 0)
		}, nil)
		reg.MustRegister(honkerprom.New(db, nil))
		for _, in := range []int{13, 1, 2} {
			_, err := f.Start(t.Context(), fmt.Sprint(in), in)
			require.NoError(t, err)
			_, err = f.WorkDue(t.Context(), nil)
			require.NoError(t, err)
			time.Sleep(time.Minute)
		}
		_, err := f.Start(t.Context(), "3", 3)
		require.NoError(t, err)
		values := scrape(t, reg)
		require.Equal(t, map[string]float64{
			`honker_flow_runs{flow="order",state="waiting"}`:     3,
			`honker_flow_runs{flow="order",state="running"}`:     0,
			`honker_flow_runs{flow="order",state="failed"}`:      1,
			`honker_flow_oldest_suspended_seconds{flow="order"}`: 122,
			`honker_flow_step_seconds{flow="order"}`:             3,
			`honker_flow_steps_failed_total{flow="order"}`:       1,
		}, only(values, "honker_flow_"))

		for _, id := range []string{"1", "2"} {
			require.NoError(t, flow.Signal(t.Context(), db, "order", id, "go", 1))
		}
		time.Sleep(time.Minute) // the values are kept for a while
		_, err = f.WorkDue(t.Context(), nil)
		require.NoError(t, err)
		values = scrape(t, reg)
		require.EqualValues(t, 1, values[`honker_flow_runs{flow="order",state="waiting"}`])
		require.EqualValues(t, 61, values[`honker_flow_oldest_suspended_seconds{flow="order"}`], "the minute and its step")
	})
}

// The number of flows with a label is limited.
func TestFlows_Labels(t *testing.T) {
	db, reg := honkertest.Open(t, nil), prometheus.NewPedanticRegistry()
	for i := range 4 {
		f := flow.New(db, fmt.Sprint("flow-", i), func(context.Context, int) (int, error) { return 0, nil }, nil)
		_, err := f.Start(t.Context(), "1", 1)
		require.NoError(t, err)
	}
	reg.MustRegister(honkerprom.New(db, &honkerprom.Options{MaxQueues: 2}))
	values := scrape(t, reg)
	require.EqualValues(t, 2, values[`honker_flow_runs{flow="_other",state="waiting"}`])
	require.Len(t, only(values, "honker_flow_runs"), 9)
}
