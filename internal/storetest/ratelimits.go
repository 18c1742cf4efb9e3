package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

func rateLimits(t *testing.T, open func(t *testing.T) *Fixture) {
	t.Run("AsModel", func(t *testing.T) { ratesAsModel(t, open(t)) })
	t.Run("RollbackLeavesNothing", func(t *testing.T) { rateRolledBack(t, open(t)) })
}

// A window admits calls up to the caller's limit, doesn't count any others, and is independent of other windows and
// names. Last returns each name's newest window.
func ratesAsModel(t *testing.T, d *Fixture) {
	type window struct {
		name string
		at   time.Time
	}
	r := random(t)
	counts := map[window]int{}
	for step := range 300 {
		w := window{fmt.Sprint("rate", r.IntN(2)), start.Add(time.Duration(r.IntN(3)) * time.Minute)}
		limit := 1 + r.IntN(20)
		d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
			ok, err := d.Stores.RateLimits.Take(ctx, q, w.name, w.at, limit)
			require.Equal(t, counts[w] < limit, ok, "step %d", step)
			if ok {
				counts[w]++
			}
			return err
		})
		d.read(t, func(ctx context.Context, q engine.Querier) error {
			n, err := d.Stores.RateLimits.Count(ctx, q, w.name, w.at)
			require.Equal(t, counts[w], n, "step %d", step)
			return err
		})
	}
	var want []row.RateWindow
	for _, name := range []string{"rate0", "rate1"} {
		last := window{name, start.Add(2 * time.Minute)}
		want = append(want, row.RateWindow{Name: name, Start: last.at.Local(), Count: int64(counts[last])})
	}
	d.read(t, func(ctx context.Context, q engine.Querier) error {
		all, err := d.Stores.RateLimits.Last(ctx, q)
		require.Equal(t, want, all)
		n, none := d.Stores.RateLimits.Count(ctx, q, "other", start)
		require.Zero(t, n)
		require.NoError(t, none)
		return err
	})
}

// A call that is rolled back is not counted.
func rateRolledBack(t *testing.T, d *Fixture) {
	d.rollBack(t, func(ctx context.Context, q engine.Querier) error {
		ok, err := d.Stores.RateLimits.Take(ctx, q, "rate", start, 1)
		require.True(t, ok)
		return err
	})
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
		ok, err := d.Stores.RateLimits.Take(ctx, q, "rate", start, 1)
		require.True(t, ok)
		return err
	})
}
