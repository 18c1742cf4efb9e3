package process_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/internal/testkit"
)

// Each process sees the workers of all processes and their jobs. A killed worker is reported as
// gone at once, but keeps its jobs until their leases end. The next worker to start deletes its
// row. A worker that ends normally deletes its own row.
func TestWorkers_Process_Killed(t *testing.T) {
	path, db := openShared(t)
	ctx := testkit.Context(t, testkit.Timeout)
	lives := func() map[int]admin.Life {
		all, err := admin.Workers(ctx, db)
		require.NoError(t, err)
		lives := make(map[int]admin.Life)
		for _, w := range all {
			lives[w.PID] = w.Alive
		}
		return lives
	}
	start := func() *testkit.Child {
		before := len(lives())
		p := testkit.StartChild(t, "worker", testkit.Task{Path: path})
		testkit.Eventually(t, testkit.Timeout, "it is listed", func() bool { return len(lives()) > before })
		return p
	}
	killed := start()
	testkit.Enqueue(t, honker.NewQueue[int64](db, "jobs", nil), -1) // its handler blocks
	require.Contains(t, killed.Line(testkit.Timeout), "ran")
	ended := start()
	for pid, life := range lives() {
		require.Equal(t, admin.Alive, life, pid)
	}
	killed.Kill()
	all, err := admin.Workers(ctx, db)
	require.NoError(t, err)
	require.Len(t, all, 2)
	for _, w := range all {
		want, holds := admin.Alive, 0
		if w.PID == killed.PID() {
			want, holds = admin.Gone, 1
		}
		require.Equal(t, want, w.Alive)
		require.Equal(t, holds, w.Running)
		require.False(t, w.Foreign)
	}
	last := testkit.StartChild(t, "worker", testkit.Task{Path: path})
	testkit.Eventually(t, testkit.Timeout, "the third has taken the row of the first away", func() bool {
		now := lives()
		return len(now) == 3 && now[0] == admin.Unknown && now[last.PID()] == admin.Alive // worker 0 is known only by its job
	})
	last.End()
	ended.End()
	require.Equal(t, map[int]admin.Life{0: admin.Unknown}, lives())
	require.NoError(t, db.Check(ctx))
}
