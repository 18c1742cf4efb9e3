package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The number of jobs claimed ahead follows the number that finished recently and is limited to a
// few megabytes.
func TestPrefetch_Size_Bounds(t *testing.T) {
	var f Prefetch
	f.since = time.Now()
	require.Equal(t, 10, f.Size(f.since, 10))
	require.Equal(t, prefetchLimit, f.Size(f.since, 1000))
	f.Saw(7*100, 7)
	require.Equal(t, prefetchLimit, f.Size(f.since, 0))
	f.Saw(7<<20, 7)
	require.Equal(t, 4, f.Size(f.since, 0))
	f.Saw(100<<20, 1)
	require.Zero(t, f.Size(f.since, 0), "only what idle workers take")
	f.Saw(0, 1)
	require.Equal(t, prefetchLimit, f.Size(f.since, 0))
}
