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

func limits(t *testing.T, open func(t *testing.T) *Fixture) {
	subtests(t, open, map[string]func(t *testing.T, d *Fixture){
		"Set":                   limitsSet,
		"RollbackLeavesNothing": limitsRolledBack,
		"ClaimsBesideAModel":    limitedClaimsOfModel,
		"RatesBesideAModel":     ratedClaimsOfModel,
		"Running":               runningLimit,
		"PerKey":                perKeyLimit,
		"KeyPassedOn":           keyPassedOn,
		"InOrder":               jobsInOrder,
		"Rate":                  startRate,
		"KeyRate":               keyStartRate,
		"Places":                placesOfCancelled,
		"Lowered":               limitsLowered,
		"Lifted":                limitsLifted,
		"RateChanged":           keyRateChanged,
		"LanesByPriority":       limitedLanesByPriority,
		"LanesWithKeys":         limitedLanesWithKeys,
		"LaneThatIsFilled":      filledLane,
		"LanesFilled":           limitedLanesFilled,
		"LaneOfHeldJobs":        heldLane,
	})
}

func limitsOf(t *testing.T, d *Fixture) (all map[string]row.QueueLimits) {
	t.Helper()
	d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
		all, err = d.Stores.Limits.All(ctx, q)
		return err
	})
	return all
}

// Set replaces all of a queue's limits, and writes nothing if they don't change.
func limitsSet(t *testing.T, d *Fixture) {
	want := map[string]row.QueueLimits{}
	for i, l := range []row.QueueLimits{
		{Running: 3},
		{PerKey: 2},
		{InOrder: true},
		{Rate: row.StartRate{N: 5, Per: time.Second, Burst: 2}},
		{KeyRate: row.StartRate{N: 1, Per: time.Minute, Burst: 1}},
		{Running: 1, PerKey: 1, InOrder: true, Rate: row.StartRate{N: 1, Per: time.Hour, Burst: 1}, KeyRate: row.StartRate{N: 2, Per: time.Millisecond, Burst: 3}},
		{},
	} {
		for _, queue := range []string{"same", fmt.Sprint("queue", i)} {
			before := want[queue]
			d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
				changed, err := d.Stores.Limits.Set(ctx, q, queue, l)
				require.Equal(t, before != l, changed)
				require.NoError(t, err)
				changed, err = d.Stores.Limits.Set(ctx, q, queue, l)
				require.False(t, changed)
				require.NoError(t, err)
				is, err := d.Stores.Limits.Get(ctx, q, queue)
				require.Equal(t, l, is)
				return err
			})
			if want[queue] = l; l == (row.QueueLimits{}) {
				delete(want, queue)
			}
		}
		require.Equal(t, want, limitsOf(t, d))
	}
}

func limitsRolledBack(t *testing.T, d *Fixture) {
	d.rollBack(t, func(ctx context.Context, q engine.Querier) error {
		_, err := d.Stores.Limits.Set(ctx, q, "q", row.QueueLimits{Running: 1})
		return err
	})
	require.Empty(t, limitsOf(t, d))
}
