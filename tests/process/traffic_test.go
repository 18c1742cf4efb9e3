package process_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/internal/testkit"
)

func init() { children["traffic"] = makeTraffic }

// makeTraffic enqueues a job every five milliseconds until it is killed or told to end.
func makeTraffic() {
	_, db := testkit.OpenChild(nil)
	q := honker.NewQueue[int](db, "jobs", nil)
	testkit.Say("ready")
	for n := 0; testkit.ChildContext().Err() == nil; n++ {
		_, err := q.Enqueue(context.Background(), n)
		testkit.Must(err)
		_ = testkit.Within(testkit.ChildContext(), nil, 5*time.Millisecond)
	}
	testkit.Must(db.Close())
}

// A killed process loses the traffic counts that it had not written yet. The counts of other
// processes are added correctly, and the sum never exceeds the committed jobs.
func TestTraffic_Process_Killed(t *testing.T) {
	path, db := openShared(t)
	ctx := testkit.Context(t, testkit.Timeout)
	counted := func() (n int64) {
		minutes, err := admin.Traffic(ctx, db, "jobs", time.Time{})
		require.NoError(t, err)
		for _, m := range minutes {
			n += m.Enqueued
		}
		return n
	}
	jobs := func() int64 { return testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live`) }
	start := func() *testkit.Child {
		p := testkit.StartChild(t, "traffic", testkit.Task{Path: path})
		require.Equal(t, "ready", p.Line(testkit.Timeout))
		return p
	}

	killed := start()
	testkit.Eventually(t, testkit.Timeout, "some of it is in the file", func() bool { return counted() > 1 })
	killed.Kill()
	before, lost := counted(), jobs()-counted()
	require.GreaterOrEqual(t, lost, int64(0), "nothing is counted that was not committed")

	closed := start()
	more := jobs() + 20
	testkit.Eventually(t, testkit.Timeout, "more jobs", func() bool { return jobs() >= more })
	closed.End()
	require.Greater(t, counted(), before, "the other one has added to it")
	require.LessOrEqual(t, counted(), jobs()-lost)
	require.NoError(t, db.Check(ctx))
}
