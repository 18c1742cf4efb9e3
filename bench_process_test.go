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

// timeWakes works off jobs that say when they were enqueued, and says how long ago that
// was, in microseconds.
func timeWakes() {
	db, err := honker.Open(proc.Context(), proc.Args[string](), nil)
	proc.Must(err)
	defer db.Close()
	q := honker.NewQueue[int64](db, "bench", nil)
	proc.Say("READY")
	proc.Must(q.Work(proc.Context(), func(_ context.Context, job *honker.Job[int64]) error {
		proc.Say(time.Since(time.Unix(0, job.Args)).Microseconds())
		return nil
	}, nil))
}

// BenchmarkWakeOtherProcess is BenchmarkWake with the worker in another process.
func BenchmarkWakeOtherProcess(b *testing.B) {
	path, db := shared(b)
	worker := proc.Start(b, "timer", path)
	require.Equal(b, "READY", worker.Line(patient))
	q := honker.NewQueue[int64](db, "bench", nil)
	var took []time.Duration
	b.ResetTimer()
	for range b.N {
		time.Sleep(5 * time.Millisecond) // let the worker fall asleep
		_, err := q.Enqueue(context.Background(), time.Now().UnixNano())
		require.NoError(b, err)
		micros, err := strconv.Atoi(worker.Line(patient))
		require.NoError(b, err)
		took = append(took, time.Duration(micros)*time.Microsecond)
	}
	b.StopTimer()
	reportQuantiles(b, took)
	worker.End()
}
