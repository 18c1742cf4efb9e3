package interop_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/testkit"
)

// A lock held by Go or Python is refused to the other until it is released. If the process of its
// owner was killed, the lock becomes free when it expires.
func TestInterop_Lock(t *testing.T) {
	path, db := testkit.OpenShared(t)
	ctx := testkit.Context(t, later)

	holder := startPeer(t, path, "lock", "report", "60")
	require.Equal(t, "held", holder.Line(soon))
	testkit.RequireHeld(t, db, "report")
	require.Empty(t, holder.End())
	l := testkit.TakeLock(t, db, "report", nil)
	refused := startPeer(t, path, "lock", "report", "60")
	require.Equal(t, "refused", refused.Line(soon))
	require.Empty(t, refused.End())
	testkit.Unlock(t, l)

	killed := startPeer(t, path, "lock", "report", "2")
	require.Equal(t, "held", killed.Line(soon))
	killed.Kill()
	l, err := db.Lock(ctx, "report", nil)
	require.NoError(t, err)
	testkit.Unlock(t, l)
}

// At most a single scheduler leads. A scheduler in either language takes over when the leader
// stops.
func TestInterop_Scheduler_Leader(t *testing.T) {
	path, db := testkit.OpenShared(t)
	testkit.Register(t, db, testkit.Every("beat", "@every 1s"))
	fires := func(what string) {
		before := testkit.QueryInt(t, db.SQL(), testkit.CountJobs)
		testkit.Eventually(t, soon, what, func() bool { return testkit.QueryInt(t, db.SQL(), testkit.CountJobs) > before })
	}

	python := readyPeer(t, path, "lead")
	fires("Python fires")
	leader, _ := testkit.Leader(t, db)
	stop := testkit.Background(t, db.Scheduler().Run)
	fires("Python goes on")
	now, _ := testkit.Leader(t, db)
	require.Equal(t, leader, now, "Go stands by")

	require.Empty(t, python.End())
	testkit.Eventually(t, soon, "Go leads", func() bool {
		now, _ = testkit.Leader(t, db)
		return now != "" && now != leader
	})
	fires("Go fires")
	refused := readyPeer(t, path, "lead")
	require.Equal(t, "refused", refused.Line(soon))
	require.Empty(t, refused.End())
	require.NoError(t, stop())
}
