package relay_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/relay"
)

// The profiles differ in the size of a batch and in the pauses after failures; an option replaces
// what the profile says.
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
						return nil // without pauses it would go on for ever, while the clock stands still
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
