package honker_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/proc"
)

func init() { children["timer"] = timeWakes }

// timeWakes works off jobs and says when each was started.
func timeWakes() {
	db, err := honker.Open(proc.Context(), proc.Args[string](), nil)
	proc.Must(err)
	defer db.Close()
	q := honker.NewQueue[int](db, "bench", nil)
	proc.Say("READY")
	proc.Must(q.Work(proc.Context(), func(context.Context, *honker.Job[int]) error {
		proc.Say(time.Now().UnixNano())
		return nil
	}, nil))
}

// BenchmarkWakeOtherProcess is BenchmarkWake with the worker in another process.
func BenchmarkWakeOtherProcess(b *testing.B) {
	path, db := shared(b)
	worker := proc.Start(b, "timer", path)
	require.Equal(b, "READY", worker.Line(patient))
	benchWake(b, honker.NewQueue[int](db, "bench", nil), func() time.Time {
		nanos, err := strconv.ParseInt(worker.Line(patient), 10, 64)
		require.NoError(b, err)
		return time.Unix(0, nanos)
	})
	worker.End()
}
