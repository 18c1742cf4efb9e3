package micro_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

func init() { children["timer"] = timeWakes }

// timeWakes works jobs and reports the start of each.
func timeWakes() {
	db, err := honker.Open(testkit.ChildContext(), testkit.ChildArgs[string](), nil)
	testkit.Must(err)
	defer db.Close()
	q := honker.NewQueue[int](db, "bench", nil)
	testkit.Say("READY")
	testkit.Must(q.Work(testkit.ChildContext(), func(context.Context, *honker.Job[int]) error {
		testkit.Say(time.Now().UnixNano())
		return nil
	}, nil))
}

// BenchmarkWorker_WakeOtherProcess is BenchmarkWorker_Wake with the worker in another process.
func BenchmarkWorker_WakeOtherProcess(b *testing.B) {
	path, db := testkit.OpenShared(b)
	worker := testkit.StartChild(b, "timer", path)
	require.Equal(b, "READY", worker.Line(testkit.Timeout))
	benchWake(b, honker.NewQueue[int](db, "bench", nil), func() time.Time {
		nanos, err := strconv.ParseInt(worker.Line(testkit.Timeout), 10, 64)
		require.NoError(b, err)
		return time.Unix(0, nanos)
	})
	worker.End()
}
