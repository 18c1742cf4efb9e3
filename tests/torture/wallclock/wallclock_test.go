package wallclock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/tests/torture/wallclock"
)

// The time of day moves by what is set, and the monotonic clock does not.
func TestWallclock_Set(t *testing.T) {
	if !wallclock.Supported {
		t.Skip("the clock cannot be set for one process here")
	}
	defer wallclock.Set(0)
	began := time.Now()
	for _, ahead := range []time.Duration{time.Hour, -24 * time.Hour, 0} {
		wallclock.Set(ahead)
		now := time.Now()
		wall := now.Round(0).Sub(began.Round(0)) // without the monotonic readings
		require.InDelta(t, ahead.Seconds(), (wall - now.Sub(began)).Seconds(), 1)
		require.Less(t, now.Sub(began), time.Minute)
		require.GreaterOrEqual(t, now.Sub(began), time.Duration(0))
	}
}
