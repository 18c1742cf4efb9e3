package watch

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/wake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patient is the timeout for tests that hang. It is far longer than any expected wait.
const patient = time.Minute

// fake simulates the file: it has a version controlled by the test, and a watcher's callbacks.
type fake struct {
	version atomic.Int64
	reads   atomic.Int64
	closed  atomic.Int64
	commits atomic.Int64

	mu       sync.Mutex
	fault    error // returned by the next read of the version
	identity error
	looks    []wake.Reason
	dead     error
	onLook   func(wake.Reason)
	asked    map[wake.Signals]int // number of looks by signals
	others   bool                 // commits aren't for any waiter
}

func (f *fake) Version(context.Context) (int64, error) {
	f.reads.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.fault
	f.fault = nil
	return f.version.Load(), err
}

func (f *fake) Close() error { f.closed.Add(1); return nil }

func (f *fake) look(why wake.Reason, signals wake.Signals) (woken int) {
	f.mu.Lock()
	f.looks = append(f.looks, why)
	if f.asked == nil {
		f.asked = make(map[wake.Signals]int)
	}
	f.asked[signals]++
	then, others := f.onLook, f.others
	f.mu.Unlock()
	if then != nil {
		then(why)
	}
	if others {
		return 0
	}
	return 1
}

// heardOf returns the number of looks for the given signals.
func (f *fake) heardOf(signals wake.Signals) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked[signals]
}

func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// taken returns the looks since the last call.
func (f *fake) taken() []wake.Reason {
	f.mu.Lock()
	defer f.mu.Unlock()
	looks := f.looks
	f.looks = nil
	return looks
}

// watchFake returns a watcher without events, driven only by the clock and the test.
func watchFake(t *testing.T, poll time.Duration) (*Watcher, *fake) {
	f := &fake{}
	w := New(Config{
		Version:  f,
		Identity: func() error { f.mu.Lock(); defer f.mu.Unlock(); return f.identity },
		Commits:  f.commits.Load,
		Poll:     poll,
		Changed:  f.look,
		Lost:     func(err error) { f.set(func() { f.dead = err }) },
		Logger:   slog.New(slog.DiscardHandler),
	})
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	return w, f
}

// begin waits for the watcher's first look.
func begin(w *Watcher, f *fake) {
	w.AddWaiter(1)
	synctest.Wait()
	f.taken()
}

// AddWaiter causes an immediate look.
func TestWatcher_AddWaiter_LooksAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := watchFake(t, time.Hour)
		w.AddWaiter(1)
		synctest.Wait()
		require.Len(t, f.taken(), 1, "there may have been commits before")
		require.NoError(t, w.Close())
		require.EqualValues(t, 1, f.closed.Load())
	})
}

// Committed causes a read of the version. It isn't reported as a change by itself.
func TestWatcher_Committed_ReadsVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := watchFake(t, time.Hour)
		begin(w, f)
		w.Committed()
		synctest.Wait()
		require.Empty(t, f.taken(), "nothing has moved: it was a rollback")
		f.version.Add(1)
		w.Committed()
		synctest.Wait()
		require.Equal(t, []wake.Reason{wake.Commit}, f.taken())
	})
}

// Without waiters there are no looks.
func TestWatcher_Sleeping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := watchFake(t, time.Millisecond)
		w.Committed()
		time.Sleep(time.Hour)
		require.Zero(t, f.reads.Load(), "not even started")
		begin(w, f)
		w.AddWaiter(1)
		w.RemoveWaiter(1)
		time.Sleep(time.Minute)
		require.Greater(t, f.reads.Load(), int64(100), "there is a waiter still")
		w.RemoveWaiter(1)
		time.Sleep(time.Second) // the current pause may end with a look
		before := f.reads.Load()
		f.version.Add(1)
		w.Committed()
		time.Sleep(24 * time.Hour)
		require.Equal(t, before, f.reads.Load())
		f.taken()
		w.AddWaiter(1)
		synctest.Wait()
		require.Equal(t, []wake.Reason{wake.Commit}, f.taken(), "what came meanwhile is seen")
	})
}

// A deadline fires without a commit.
func TestWatcher_WakeAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := watchFake(t, time.Hour)
		var at []time.Duration
		began := time.Now()
		f.onLook = func(why wake.Reason) {
			if why == wake.Deadline {
				at = append(at, time.Since(began))
			}
		}
		begin(w, f)
		w.WakeAt(began.Add(10 * time.Second))
		w.WakeAt(began.Add(20 * time.Second)) // later: replaced by the look at the earlier deadline
		w.WakeAt(began.Add(3 * time.Second))
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		require.Equal(t, []time.Duration{3 * time.Second}, at, "the earliest, once")
		w.WakeAt(began) // long ago
		synctest.Wait()
		require.Len(t, at, 2)
	})
}

// A commit found at a deadline is reported as a commit, because waiters for commits ignore deadlines.
func TestWatcher_WakeAt_Commit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := watchFake(t, time.Hour)
		begin(w, f)
		w.WakeAt(time.Now().Add(time.Second))
		synctest.Wait()
		f.version.Add(1) // by another process, without an event
		time.Sleep(2 * time.Second)
		w.Committed()
		synctest.Wait()
		require.Contains(t, f.taken(), wake.Commit)
	})
}

// Polling slows down while the file is quiet, and speeds up again.
func TestWatcher_Polling_BacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := watchFake(t, time.Millisecond)
		begin(w, f)
		reads := func(d time.Duration) int64 {
			before := f.reads.Load()
			time.Sleep(d)
			return f.reads.Load() - before
		}
		busy := reads(500 * time.Millisecond)
		require.InDelta(t, 500, busy, 20, "each PollInterval")
		time.Sleep(4500 * time.Millisecond)
		require.InDelta(t, 18, reads(time.Second), 3, "a hundredth of the quiet time: each 50 to 60 ms")
		time.Sleep(time.Minute)
		require.InDelta(t, 10, reads(time.Second), 1, "each 100 ms, and not later")
		require.Empty(t, f.taken())
		f.version.Add(1)
		time.Sleep(slowestPoll)
		synctest.Wait()
		require.Equal(t, []wake.Reason{wake.Commit}, f.taken())
		require.InDelta(t, 500, reads(500*time.Millisecond), 20, "and at full speed again")
	})
}

// Commits that aren't for any waiter make polling less frequent, even if they were made by this process. The first
// commit that is for a waiter restores the rate.
func TestWatcher_Polling_Others(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := watchFake(t, time.Millisecond)
		begin(w, f)
		f.set(func() { f.others = true })
		commits := func(d time.Duration) (looks int) {
			for range d / (2 * time.Millisecond) {
				f.version.Add(1)
				w.Committed()
				time.Sleep(2 * time.Millisecond)
			}
			return len(f.taken())
		}
		commits(100 * time.Millisecond)
		require.InDelta(t, 10, commits(time.Second), 2, "each 100 ms")
		f.set(func() { f.others = false })
		commits(slowestBackoff)
		require.InDelta(t, 500, commits(time.Second), 5, "each of them")
	})
}

// A commit by this process is noticed soon, no matter how long Poll is.
func TestWatcher_Polling_OwnCommitAmongOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := watchFake(t, time.Hour)
		begin(w, f)
		f.set(func() { f.others = true })
		for range 100 {
			f.version.Add(1)
			w.Committed()
			time.Sleep(time.Millisecond)
		}
		f.taken()
		f.version.Add(1)
		w.Committed()
		time.Sleep(slowestBackoff)
		synctest.Wait()
		require.Equal(t, []wake.Reason{wake.Commit}, f.taken())
	})
}

// After a slow look, the watcher pauses for many times its duration.
func TestWatcher_Polling_LongLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := watchFake(t, time.Millisecond)
		begin(w, f)
		f.set(func() { f.others, f.onLook = true, func(wake.Reason) { time.Sleep(20 * time.Millisecond) } })
		for range 5000 {
			f.version.Add(1)
			time.Sleep(2 * time.Millisecond)
		}
		require.InDelta(t, 10_000/(lookShare*20+20), len(f.taken()), 3)
	})
}

// A look delayed by a lent connection or a stopped process doesn't predict the cost of the next look.
func TestWatcher_Polling_LookHeldUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := watchFake(t, time.Millisecond)
		begin(w, f)
		f.set(func() { f.others = true })
		for heldUp, bound := range []time.Duration{slowestBackoff, slowestLook} {
			f.set(func() { f.onLook = func(wake.Reason) { time.Sleep(time.Minute) } })
			for range heldUp + 1 {
				f.version.Add(1)
				time.Sleep(time.Minute + 2*slowestBackoff)
				require.Len(t, f.taken(), 1)
			}
			f.set(func() { f.onLook = nil })
			f.version.Add(1)
			time.Sleep(bound)
			synctest.Wait()
			require.Equal(t, []wake.Reason{wake.Commit}, f.taken())
		}
	})
}

// A long Poll is respected.
func TestWatcher_Polling_LongInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := watchFake(t, time.Hour)
		begin(w, f)
		before := f.reads.Load()
		time.Sleep(10*time.Hour + time.Minute)
		require.EqualValues(t, 10, f.reads.Load()-before)
	})
}

// If the file is busy, the last version is kept.
func TestWatcher_Version_Busy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := watchFake(t, time.Hour)
		begin(w, f)
		f.version.Add(1)
		f.set(func() { f.fault = engine.ErrBusy })
		f.set(func() { f.fault = errors.New("database is locked") })
		w.Committed()
		synctest.Wait()
		require.Empty(t, f.taken(), "it could not look")
		w.Committed()
		synctest.Wait()
		require.Equal(t, []wake.Reason{wake.Commit}, f.taken(), "and sees it the next time")
	})
}

// A lost connection causes an additional call to Changed.
func TestWatcher_Version_ConnectionLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := watchFake(t, 10*time.Millisecond)
		begin(w, f)
		f.set(func() { f.fault = errors.New("gone") })
		time.Sleep(time.Second)
		require.Equal(t, []wake.Reason{wake.Restart}, f.taken(), "there may have been commits: once, without one")
		f.version.Add(1)
		time.Sleep(time.Second)
		require.Equal(t, []wake.Reason{wake.Commit}, f.taken())
	})
}

// The watcher ends when the file is replaced.
func TestWatcher_Lost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := watchFake(t, 10*time.Millisecond)
		begin(w, f)
		f.set(func() { f.identity = engine.ErrDatabaseReplaced })
		time.Sleep(time.Second)
		f.set(func() { require.ErrorIs(t, f.dead, engine.ErrDatabaseReplaced) })
		before := f.reads.Load()
		w.Committed()
		w.AddWaiter(1)
		w.WakeAt(time.Now())
		w.Committed()
		time.Sleep(time.Minute)
		require.Equal(t, before, f.reads.Load())
		require.NoError(t, w.Close())
		require.EqualValues(t, 1, f.closed.Load())
	})
}

// Time in a bubble doesn't advance for a watcher that waits on channels from outside, so a test would hang. The log
// explains this.
func TestWatcher_InBubble_MadeOutside(t *testing.T) {
	for name, made := range map[string]struct {
		inside bool
		said   int
	}{"outside": {false, 1}, "inside": {true, 0}} {
		t.Run(name, func(t *testing.T) {
			var w *Watcher
			var log bytes.Buffer
			watch := func(t *testing.T) {
				w, _ = watchFake(t, time.Hour)
				w.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
			}
			if !made.inside {
				watch(t)
			}
			synctest.Test(t, func(t *testing.T) {
				if made.inside {
					watch(t)
				}
				w.AddWaiter(1)
				require.NoError(t, w.Close())
			})
			require.Equal(t, made.said, strings.Count(log.String(), "open it in the bubble"))
		})
	}
}

// Close stops everything, and may be called at any time.
func TestWatcher_Close(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never, f := watchFake(t, time.Millisecond)
		require.NoError(t, never.Close())
		require.NoError(t, never.Close())
		never.AddWaiter(1) // starts nothing; otherwise the bubble would not end
		never.Committed()
		time.Sleep(time.Minute)
		require.Zero(t, f.reads.Load())

		w, f := watchFake(t, time.Millisecond)
		begin(w, f)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { require.NoError(t, w.Close()) })
			all.Go(func() { w.AddWaiter(1); w.Committed(); w.WakeAt(time.Now()); w.RemoveWaiter(1) })
		}
		all.Wait()
		require.EqualValues(t, 1, f.closed.Load())
	})
}

// Committed never blocks, even during a slow call to Changed. Its caller has just committed and needs to continue.
func TestWatcher_Committed_NeverBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := watchFake(t, time.Hour)
		begin(w, f)
		f.onLook = func(wake.Reason) { time.Sleep(time.Minute) }
		f.version.Add(1)
		w.Committed()
		synctest.Wait() // Changed is sleeping
		began := time.Now()
		for range 10_000 {
			f.version.Add(1)
			w.Committed()
		}
		require.Equal(t, began, time.Now())
		time.Sleep(time.Hour / 2)
		require.Len(t, f.taken(), 2, "ten thousand calls are one look")
	})
}

// Pauses of half a second or more end at times shared by all files, and never later than requested.
func TestWatcher_AlignWakeups(t *testing.T) {
	for range 200 {
		now := time.Unix(0, rand.Int64N(1<<62+1))
		pause := alignFrom + rand.N(time.Hour-alignFrom+1)
		late := rand.N(pause/9 + 1)
		t.Logf("now %d, pause %d, late %d", now.UnixNano(), pause, late)
		got := alignWakeups(now, pause)
		require.Positive(t, got)
		require.LessOrEqual(t, got, pause)
		end := now.Add(got)
		require.Equal(t, end, end.Truncate(pause), "a mark of all")
		require.Equal(t, end.Add(pause), end.Add(late).Add(alignWakeups(end.Add(late), pause)), "the next one too, also if late")
	}
	require.Equal(t, time.Millisecond, alignWakeups(time.Unix(1, 3), time.Millisecond), "a short one is what it is")
}
