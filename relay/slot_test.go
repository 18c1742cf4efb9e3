package relay_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/relay"
)

// waits records how long messages waited for their handler.
type waits struct {
	mu      sync.Mutex
	n       int
	longest time.Duration
}

func (w *waits) add(m *relay.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n++
	w.longest = max(w.longest, time.Since(m.CreatedAt))
}

// reset clears w and returns the number of messages and the longest wait.
func (w *waits) reset() (n int, longest time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, longest = w.n, w.longest
	w.n, w.longest = 0, 0
	return n, longest
}

// hangs is a handler that blocks for ten seconds and then fails.
func hangs(context.Context, *relay.Message) error {
	time.Sleep(10 * time.Second)
	return errDown
}

// healthyBeside sends a message to a healthy queue every tenth of a second for a minute, while the
// partitions of another queue hang. It returns the longest wait of these messages.
func healthyBeside(t *testing.T, healthy *relay.Queue, w *waits) time.Duration {
	t.Helper()
	w.reset()
	for range 600 {
		send(t, healthy, relay.Outgoing{Partition: 0})
		time.Sleep(100 * time.Millisecond)
	}
	n, longest := w.reset()
	require.Equal(t, 600, n)
	return longest
}

// With default options, healthy messages do not wait for hanging handlers, on first or later
// attempts, as long as the number of hanging handlers is within the limit.
func TestRelay_Processors_HangingPartitions(t *testing.T) {
	for _, hanging := range []int{4, 8, 16, 32} {
		t.Run(fmt.Sprint(hanging), func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
				r := relay.New(db, nil)
				bad, good := r.Queue("bad", 32), r.Queue("good", 1)
				var w waits
				bad.Handle(hangs)
				good.Handle(func(_ context.Context, m *relay.Message) error { w.add(m); return nil })
				for p := range hanging {
					sendN(t, bad, p, 20)
				}
				stop := start(t, r)
				first := healthyBeside(t, good, &w)
				require.LessOrEqual(t, first, time.Duration(hanging/4)*25*time.Millisecond, "the first attempts")
				require.LessOrEqual(t, healthyBeside(t, good, &w), time.Millisecond, "later ones")
				require.NoError(t, stop())
			})
		})
	}
}

// Partitions whose last attempt failed never occupy the last of a fixed number of processors. This
// state is stored, so it also applies after another process has taken over.
func TestRelay_Processors_FailingPartitionsLeaveOne(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		for run := range 2 {
			r := relay.New(db, &relay.Options{Processors: 4})
			bad, good := r.Queue("bad", 32), r.Queue("good", 1)
			var running, most atomic.Int32
			var w waits
			bad.Handle(func(ctx context.Context, m *relay.Message) error {
				most.Store(max(most.Load(), running.Add(1)))
				defer running.Add(-1)
				return hangs(ctx, m)
			})
			good.Handle(func(_ context.Context, m *relay.Message) error { w.add(m); return nil })
			if run == 0 {
				for p := range 32 {
					sendN(t, bad, p, 1)
				}
			}
			stop := start(t, r)
			if run == 0 {
				time.Sleep(2 * time.Minute) // until every partition has been tried
				require.EqualValues(t, 4, most.Swap(0), "the first attempts")
			}
			longest := healthyBeside(t, good, &w)
			require.LessOrEqual(t, longest, time.Millisecond)
			require.LessOrEqual(t, most.Load(), int32(3))
			require.NoError(t, stop())
		}
	})
}

// All failed partitions are tried again even if healthy partitions can keep all processors busy.
func TestRelay_Processors_FailingPartitionsAreTried(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		r := relay.New(db, &relay.Options{Processors: 2, Batch: 1})
		bad, good := r.Queue("bad", 8), r.Queue("good", 8)
		var tried seen
		bad.Handle(func(_ context.Context, m *relay.Message) error {
			if m.Attempt < 3 {
				return errDown
			}
			tried.add(m)
			return nil
		})
		good.Handle(func(context.Context, *relay.Message) error { time.Sleep(time.Second); return nil })
		for p := range 8 {
			sendN(t, bad, p, 1)
			sendN(t, good, p, 500)
		}
		stop := start(t, r)
		time.Sleep(5 * time.Minute)
		require.Equal(t, 8, tried.len())
		require.Positive(t, waiting(t, good), "healthy messages wait all the time")
		require.NoError(t, stop())
	})
}

// If a message exhausts its attempts, its partition still counts as failed on the last attempt.
func TestRelay_Processors_DeadLettersCount(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		r := relay.New(db, &relay.Options{Processors: 4})
		bad, good := r.Queue("bad", 32), r.Queue("good", 1)
		var w waits
		bad.Handle(hangs, relay.MaxAttempts(1))
		good.Handle(func(_ context.Context, m *relay.Message) error { w.add(m); return nil })
		for p := range 16 {
			sendN(t, bad, p, 100)
		}
		stop := start(t, r)
		time.Sleep(2 * time.Minute)
		require.LessOrEqual(t, healthyBeside(t, good, &w), time.Millisecond)
		require.NoError(t, stop())
	})
}

// An explicit number of processors is a fixed limit even if handlers are slow. The default number grows,
// up to a limit.
func TestRelay_Processors_Slow(t *testing.T) {
	for _, given := range []int{0, 1, 4} {
		t.Run(fmt.Sprint(given), func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
				r := relay.New(db, &relay.Options{Processors: given})
				var running, most atomic.Int32
				slow := func(context.Context, *relay.Message) error {
					most.Store(max(most.Load(), running.Add(1)))
					time.Sleep(5 * time.Second)
					running.Add(-1)
					return nil
				}
				queues := []*relay.Queue{r.Queue("a", 64), r.Queue("b", 64)}
				for _, q := range queues {
					q.Handle(slow)
					for p := range 64 {
						sendN(t, q, p, 2)
					}
				}
				stop := start(t, r)
				time.Sleep(time.Hour)
				require.Zero(t, waiting(t, queues...))
				want := given
				if given == 0 {
					want = 64
				}
				require.EqualValues(t, want, most.Load())
				require.NoError(t, stop())
			})
		})
	}
}

// silent is an endpoint that accepts requests but does not respond until it is released. It counts
// the requests that arrive and the requests that are canceled.
type silent struct {
	url        string
	come, gone atomic.Int32
	released   chan struct{}
}

func newSilent(t *testing.T) *silent {
	s := &silent{released: make(chan struct{})}
	s.url = endpoint(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		s.come.Add(1)
		select {
		case <-r.Context().Done():
			s.gone.Add(1)
		case <-s.released:
		}
	}).URL
	return s
}

// Healthy customers' messages don't wait for other customers' hanging requests. With default options,
// all healthy messages are delivered before the first hanging request ends.
func TestRelay_HTTP_HangingEndpoints(t *testing.T) {
	t.Parallel()
	hanging := newSilent(t)
	var delivered atomic.Int32
	healthy := endpoint(t, func(http.ResponseWriter, *http.Request) { delivered.Add(1) })

	db := honkertest.Open(t, nil)
	r := relay.New(db, nil)
	bad, good := r.Queue("bad", 16), r.Queue("good", 4)
	bad.Handle(relay.HTTP(nil, hanging.url, nil))
	good.Handle(relay.HTTP(nil, healthy.URL, nil))
	for p := range 16 {
		sendN(t, bad, p, 3)
	}
	stop := start(t, r)
	for i := range 100 {
		send(t, good, relay.Outgoing{Partition: i % 4})
	}
	testkit.Eventually(t, testkit.Timeout, "all healthy messages delivered", func() bool { return delivered.Load() == 100 })
	require.Zero(t, hanging.gone.Load(), "requests that ended while healthy messages waited")
	testkit.Eventually(t, testkit.Timeout, "all partitions were tried", func() bool { return hanging.come.Load() >= 16 })
	testkit.Eventually(t, testkit.Timeout, "the default Timeout has ended a request", func() bool {
		info, err := bad.Info(t.Context())
		require.NoError(t, err)
		return strings.Contains(info.Partitions[0].LastError, "no answer within 10s")
	})
	close(hanging.released) // let the current requests finish
	require.NoError(t, stop())
}
