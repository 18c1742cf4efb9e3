package wallclock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/tests/torture/wallclock"
)

// Set changes the wall clock by the given time, and not the monotonic clock.
func TestWallclock_Set(t *testing.T) {
	if !wallclock.Supported {
		t.Skip("the clock cannot be set for one process here")
	}
	defer wallclock.Set(0)
	began := time.Now()
	for _, ahead := range []time.Duration{time.Hour, -24 * time.Hour, 0} {
		wallclock.Set(ahead)
		now := time.Now()
		wall := now.Round(0).Sub(began.Round(0)) // without the monotonic clock readings
		require.InDelta(t, ahead.Seconds(), (wall - now.Sub(began)).Seconds(), 1)
		require.Less(t, now.Sub(began), time.Minute)
		require.GreaterOrEqual(t, now.Sub(began), time.Duration(0))
	}
}
