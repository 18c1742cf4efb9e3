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

// waits are how long messages waited for their handler.
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

// reset forgets what was added, and returns it.
func (w *waits) reset() (n int, longest time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, longest = w.n, w.longest
	w.n, w.longest = 0, 0
	return n, longest
}

// hangs is a handler that takes ten seconds and fails.
func hangs(context.Context, *relay.Message) error {
	time.Sleep(10 * time.Second)
	return errDown
}

// healthyBeside sends a message to a healthy queue each tenth of a second of a minute, while the
// partitions of another queue hang, and returns how long they waited.
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

// With the default options healthy messages do not wait for handlers that hang, neither when
// these hang at their first attempt nor at later ones, however many there are up to the bound.
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

// Partitions that failed the last time never have the last of an explicit number of processors. That
// is kept in the file: another process that takes over knows it.
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
				time.Sleep(2 * time.Minute) // all were tried
				require.EqualValues(t, 4, most.Swap(0), "the first attempts")
			}
			longest := healthyBeside(t, good, &w)
			require.LessOrEqual(t, longest, time.Millisecond)
			require.LessOrEqual(t, most.Load(), int32(3))
			require.NoError(t, stop())
		}
	})
}

// Partitions that failed are tried again, all of them, while healthy ones have more than all
// processors can do.
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
		require.Positive(t, testkit.QueryInt(t, db.SQL(), countMessages), "healthy messages wait all the time")
		require.NoError(t, stop())
	})
}

// A message that dies of its attempts leaves its partition as one that failed the last time.
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

// A number of processors that was given is the bound also while handlers are slow, and the default
// number grows, to a bound.
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
				for _, name := range []string{"a", "b"} {
					q := r.Queue(name, 64)
					q.Handle(slow)
					for p := range 64 {
						sendN(t, q, p, 2)
					}
				}
				stop := start(t, r)
				time.Sleep(time.Hour)
				require.Zero(t, testkit.QueryInt(t, db.SQL(), countMessages))
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

// silent is an endpoint that takes requests and does not answer, until it is released. It counts
// those that came and those that were given up.
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

// No message of a healthy customer waits for the request of another that hangs: all are delivered
// before the first of these requests ends, with default options throughout.
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
	close(hanging.released) // what is under way is drained
	require.NoError(t, stop())
}
