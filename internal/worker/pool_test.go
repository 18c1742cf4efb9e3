package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/row"
)

// The number of jobs claimed ahead follows the number that finished recently and is limited to a
// few megabytes.
func TestPrefetch_Size_Bounds(t *testing.T) {
	batch := func(n, size int) []*row.Job {
		rows := make([]*row.Job, n)
		for i := range rows {
			rows[i] = &row.Job{Payload: string(make([]byte, size))}
		}
		return rows
	}
	var f prefetch
	f.since = time.Now()
	require.Equal(t, 10, f.size(f.since, 10))
	require.Equal(t, prefetchLimit, f.size(f.since, 1000))
	f.saw(batch(7, 100))
	require.Equal(t, prefetchLimit, f.size(f.since, 0))
	f.saw(batch(7, 1<<20))
	require.Equal(t, 4, f.size(f.since, 0))
	f.saw(batch(1, 100<<20))
	require.Zero(t, f.size(f.since, 0), "only what idle workers take")
	f.saw(batch(1, 0))
	require.Equal(t, prefetchLimit, f.size(f.since, 0))
}
