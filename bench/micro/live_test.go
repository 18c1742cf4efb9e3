package micro_test

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

func init() { children["follower"] = timeEvents }

// timeEvents reads a stream and reports the arrival of each event.
func timeEvents() {
	db, err := honker.Open(testkit.ChildContext(), testkit.ChildArgs[string](), nil)
	testkit.Must(err)
	defer db.Close()
	s := honker.NewStream[int](db, "bench", nil)
	testkit.Say("READY")
	for _, err := range s.Tail(testkit.ChildContext(), honker.Beginning, nil) {
		if err != nil {
			return
		}
		testkit.Say(time.Now().UnixNano())
	}
}

// BenchmarkStream_Live measures the latency from a publish to an idle subscriber.
func BenchmarkStream_Live(b *testing.B) {
	db := openBench(b, nil)
	s := honker.NewStream[int](db, "bench", nil)
	came := make(chan time.Time, 1)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, err := range s.Subscribe(ctx, "c", nil) {
			if err != nil {
				return
			}
			came <- time.Now()
		}
	}()
	benchLive(b, s, func() time.Time { return <-came })
	cancel()
	<-done
}

// BenchmarkStream_LiveMany measures the latency from a publish to each of 100 idle subscribers. The allocations are those
// for the publish and for all subscribers.
func BenchmarkStream_LiveMany(b *testing.B) {
	const subscribers = 100
	db := openBench(b, nil)
	s := honker.NewStream[int](db, "bench", nil)
	came := make(chan time.Time, subscribers)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for i := range subscribers {
		all.Go(func() {
			for _, err := range s.Subscribe(ctx, strconv.Itoa(i), &honker.SubscribeOptions{SaveEvery: -1, SaveInterval: -1}) {
				if err != nil {
					return
				}
				came <- time.Now()
			}
		})
	}
	var took []time.Duration
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		time.Sleep(5 * time.Millisecond) // let the subscribers go to sleep
		called := time.Now()
		_, err := s.Publish(context.Background(), i)
		require.NoError(b, err)
		for range subscribers {
			took = append(took, (<-came).Sub(called))
		}
	}
	b.StopTimer()
	reportQuantiles(b, "call", took)
	cancel()
	all.Wait()
}

// BenchmarkStream_LiveOtherProcess is BenchmarkStream_Live with the subscriber in another process.
func BenchmarkStream_LiveOtherProcess(b *testing.B) {
	path, db := testkit.OpenShared(b)
	p := testkit.StartChild(b, "follower", path)
	require.Equal(b, "READY", p.Line(testkit.Timeout))
	benchLive(b, honker.NewStream[int](db, "bench", nil), func() time.Time {
		nanos, err := strconv.ParseInt(p.Line(testkit.Timeout), 10, 64)
		require.NoError(b, err)
		return time.Unix(0, nanos)
	})
	p.End()
}

func benchLive(b *testing.B, s *honker.Stream[int], came func() time.Time) {
	var fromCall, fromCommit []time.Duration
	b.ResetTimer()
	for i := range b.N {
		time.Sleep(5 * time.Millisecond) // let the subscriber go to sleep
		called := time.Now()
		_, err := s.Publish(context.Background(), i)
		require.NoError(b, err)
		committed := time.Now()
		at := came()
		fromCall = append(fromCall, at.Sub(called))
		fromCommit = append(fromCommit, max(0, at.Sub(committed)))
	}
	b.StopTimer()
	reportQuantiles(b, "call", fromCall)
	reportQuantiles(b, "commit", fromCommit)
}

// BenchmarkStream_Compact deletes b.N events while another connection writes single rows, and
// reports the longest wait of that writer. Use -benchtime 1000000x to get the figure.
func BenchmarkStream_Compact(b *testing.B) {
	db := openBench(b, nil)
	publishSome(b, db, b.N+1)
	s := honker.NewStream[payload](db, "bench", nil)
	ctx := context.Background()
	require.NoError(b, s.SetRetention(ctx, honker.Retention{MaxCount: 1}))
	stop, waits := make(chan struct{}), make(chan []time.Duration)
	go func() { waits <- writeUntil(b, db, stop) }()
	b.ResetTimer()
	stats, err := s.Compact(ctx)
	b.StopTimer()
	close(stop)
	require.NoError(b, err)
	require.EqualValues(b, b.N, stats.Deleted)
	took := <-waits
	reportQuantiles(b, "write", took)
	b.ReportMetric(float64(slices.Max(took).Microseconds()), "write-max-µs")
}

func writeUntil(b *testing.B, db *honker.DB, stop <-chan struct{}) (took []time.Duration) {
	for {
		began := time.Now()
		if _, err := db.Notify(context.Background(), "other", 1); err != nil {
			b.Error(err)
		}
		took = append(took, time.Since(began))
		select {
		case <-stop:
			return took
		case <-time.After(time.Millisecond):
		}
	}
}

// BenchmarkStream_ReplayMemory measures how much the process grows during a replay. Use -benchtime
// 1000000x to get the figure.
func BenchmarkStream_ReplayMemory(b *testing.B) {
	db := openBench(b, nil)
	publishSome(b, db, b.N)
	s := honker.NewStream[json.RawMessage](db, "bench", nil)
	before := residentBytes(b)
	b.ResetTimer()
	n := 0
	for _, err := range s.Read(context.Background(), 0) {
		require.NoError(b, err)
		n++
	}
	b.StopTimer()
	require.Equal(b, b.N, n)
	b.ReportMetric(float64(residentBytes(b)-before)/(1<<20), "RSS-growth-MB")
}
