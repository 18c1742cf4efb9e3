package relay_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/relay"
)

// Profiles differ in batch size and in how long they pause after failures. Options override the
// profile.
func TestRelay_Profiles(t *testing.T) {
	for name, c := range map[string]struct {
		options     relay.Options
		batch       int
		first, last time.Duration
	}{
		"balanced":        {relay.Options{}, 10, time.Second, time.Minute},
		"low latency":     {relay.Options{Profile: relay.LowLatency}, 10, 100 * time.Millisecond, 10 * time.Second},
		"high throughput": {relay.Options{Profile: relay.HighThroughput}, 100, time.Second, time.Minute},
		"relaxed":         {relay.Options{Profile: relay.Relaxed}, 10, 5 * time.Second, 5 * time.Minute},
		"batch":           {relay.Options{Profile: relay.Relaxed, Batch: 7}, 7, 5 * time.Second, 5 * time.Minute},
		"base":            {relay.Options{RetryBase: 2 * time.Minute}, 10, 2 * time.Minute, 2 * time.Minute},
		"max":             {relay.Options{RetryMax: 500 * time.Millisecond}, 10, 500 * time.Millisecond, 500 * time.Millisecond},
		"both":            {relay.Options{Profile: relay.LowLatency, RetryBase: time.Hour, RetryMax: 3 * time.Hour}, 10, time.Hour, 3 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
				var taken events[relay.Taken]
				var at []time.Time
				c.options.Observer = &relay.Observer{Taken: taken.add}
				r := relay.New(db, &c.options)
				q := r.Queue("orders", 1)
				q.Handle(func(context.Context, *relay.Message) error {
					if at = append(at, time.Now()); len(at) > 100 {
						return nil // end the test: without pauses the fake clock never advances
					}
					return errDown
				})
				sendN(t, q, 0, 200)
				stop := start(t, r)
				time.Sleep(15 * c.last)
				require.NoError(t, stop())
				require.Equal(t, c.batch, taken.list()[0].Messages)
				require.Equal(t, 1, taken.list()[1].Messages)
				near := func(want, got time.Duration) {
					require.InDelta(t, want, got, float64(want)/5+float64(5*time.Millisecond))
				}
				near(c.first, at[1].Sub(at[0]))
				near(c.last, at[len(at)-1].Sub(at[len(at)-2]))
			})
		})
	}
}

// Handler options override relay options for the handler's queue only.
func TestRelay_Handle_Tuning(t *testing.T) {
	for name, c := range map[string]struct {
		options     []relay.HandleOption
		batch       int
		first, last time.Duration
	}{
		"none":  {nil, 20, 2 * time.Second, 8 * time.Second},
		"zero":  {[]relay.HandleOption{relay.BatchSize(0), relay.RetryBase(0), relay.RetryMax(0)}, 20, 2 * time.Second, 8 * time.Second},
		"batch": {[]relay.HandleOption{relay.BatchSize(3)}, 3, 2 * time.Second, 8 * time.Second},
		"base":  {[]relay.HandleOption{relay.RetryBase(time.Minute)}, 20, time.Minute, time.Minute},
		"max":   {[]relay.HandleOption{relay.RetryMax(time.Second)}, 20, time.Second, time.Second},
		"all":   {[]relay.HandleOption{relay.BatchSize(50), relay.RetryBase(time.Second), relay.RetryMax(4 * time.Second)}, 50, time.Second, 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
				var taken events[relay.Taken]
				r := relay.New(db, &relay.Options{Batch: 20, RetryBase: 2 * time.Second, RetryMax: 8 * time.Second, Observer: &relay.Observer{Taken: taken.add}})
				q, other := r.Queue("tuned", 1), r.Queue("other", 1)
				var at []time.Time
				q.Handle(func(context.Context, *relay.Message) error { at = append(at, time.Now()); return errDown }, c.options...)
				other.Handle(func(context.Context, *relay.Message) error { return nil })
				sendN(t, q, 0, 100)
				sendN(t, other, 0, 20)
				stop := start(t, r)
				time.Sleep(15 * c.last)
				require.NoError(t, stop())
				first := map[string]int{}
				for _, batch := range taken.list() {
					if first[batch.Queue] == 0 {
						first[batch.Queue] = batch.Messages
					}
				}
				require.Equal(t, map[string]int{"tuned": c.batch, "other": 20}, first)
				near := func(want, got time.Duration) {
					require.InDelta(t, want, got, float64(want)/5+float64(5*time.Millisecond))
				}
				near(c.first, at[1].Sub(at[0]))
				near(c.last, at[len(at)-1].Sub(at[len(at)-2]))
			})
		})
	}
}

// Run returns ErrInvalid for invalid handler options, before any message is handled.
func TestRelay_Handle_Tuning_Invalid(t *testing.T) {
	db := honkertest.Open(t, nil)
	for _, options := range [][]relay.HandleOption{
		{relay.BatchSize(-1)}, {relay.RetryBase(-time.Second)}, {relay.RetryMax(-time.Second)},
		{relay.RetryBase(time.Minute), relay.RetryMax(time.Second)},
	} {
		r := relay.New(db, nil)
		r.Queue("orders", 1).Handle(func(context.Context, *relay.Message) error { return nil }, options...)
		require.ErrorIs(t, r.Run(t.Context()), honker.ErrInvalid)
	}
}
