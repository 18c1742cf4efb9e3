package process_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

// killAtRandom starts a child for each name. For a few seconds it kills a random child, restarts it
// and checks the file, pausing up to pause between kills. All children are dead when it returns. It
// returns the number of kills before the end.
func killAtRandom(t *testing.T, path string, db *honker.DB, pause time.Duration, names ...string) (kills int) {
	t.Helper()
	span := 8 * time.Second
	if testing.Short() {
		span = brief(2 * time.Second)
	}
	seed := testkit.Seed(t)
	draw := testkit.Rand(seed, 1)
	procs := make([]*testkit.Child, len(names))
	start := func(i int) {
		seed++
		procs[i] = testkit.StartChild(t, names[i], testkit.Task{Path: path, Seed: seed})
		require.Equal(t, "ready", procs[i].Line(testkit.Timeout))
	}
	for i := range procs {
		start(i)
	}
	for began := time.Now(); time.Since(began) < span; kills++ {
		_ = testkit.Within(t.Context(), nil, time.Duration(draw.Int64N(int64(pause))))
		i := draw.IntN(len(procs))
		procs[i].Kill()
		require.NoError(t, db.Check(t.Context()))
		start(i)
	}
	for _, p := range procs {
		p.Kill()
	}
	require.NoError(t, db.Check(t.Context()))
	return kills
}

// requireNoFaults asserts that the children have not inserted rows into the table faults.
func requireNoFaults(t *testing.T, db *honker.DB) {
	t.Helper()
	faults, err := testkit.Rows(db.SQL(), `SELECT * FROM faults`)
	require.NoError(t, err)
	require.Empty(t, faults)
}
