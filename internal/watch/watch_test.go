package watch

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/honker-go/honker/internal/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patient ends a test that hangs. It is far above what any wait should take.
const patient = 20 * time.Second

// fake stands in for the file: a version that the test moves, and everything that the
// watcher may ask or tell.
type fake struct {
	version atomic.Int64
	reads   atomic.Int64
	closed  atomic.Int64
	commits atomic.Int64

	mu       sync.Mutex
	fault    error // of the next read of the version
	identity error
	looks    []Cause
	dead     error
	onLook   func(Cause)
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

func (f *fake) look(why Cause) {
	f.mu.Lock()
	f.looks = append(f.looks, why)
	then := f.onLook
	f.mu.Unlock()
	if then != nil {
		then(why)
	}
}

func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// taken returns the looks since it was last asked.
func (f *fake) taken() []Cause {
	f.mu.Lock()
	defer f.mu.Unlock()
	looks := f.looks
	f.looks = nil
	return looks
}

// watchFake is a watcher without notices: only the clock and the test move it.
func watchFake(t *testing.T, poll time.Duration) (*Watcher, *fake) {
	f := &fake{}
	w := New(Config{
		Version:  f,
		Identity: func() error { f.mu.Lock(); defer f.mu.Unlock(); return f.identity },
		Commits:  f.commits.Load,
		Poll:     poll,
		Look:     f.look,
		Dead:     func(err error) { f.set(func() { f.dead = err }) },
		Logger:   slog.New(slog.DiscardHandler),
	})
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	return w, f
}

// begin waits until the watcher has looked for the first time.
func begin(w *Watcher, f *fake) {
	w.Wait()
	synctest.Wait()
	f.taken()
}

func TestTheFirstLookComesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := watchFake(t, time.Hour)
		w.Wait()
		synctest.Wait()
		require.Len(t, f.taken(), 1, "there may have been commits before")
		require.NoError(t, w.Close())
		require.EqualValues(t, 1, f.closed.Load())
	})
}

func TestANudgeIsALookAtTheVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := watchFake(t, time.Hour)
		begin(w, f)
		w.Nudge()
		synctest.Wait()
		require.Empty(t, f.taken(), "nothing has moved: it was a rollback")
		f.version.Add(1)
		w.Nudge()
		synctest.Wait()
		require.Equal(t, []Cause{Commit}, f.taken())
	})
}

func TestNobodyLooksWhileNobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := watchFake(t, time.Millisecond)
		w.Nudge()
		time.Sleep(time.Hour)
		require.Zero(t, f.reads.Load(), "not even started")
		begin(w, f)
		w.Wait()
		w.Leave()
		time.Sleep(time.Minute)
		require.Greater(t, f.reads.Load(), int64(100), "somebody waits still")
		w.Leave()
		time.Sleep(time.Second) // the rest that it was in may end with a look
		before := f.reads.Load()
		f.version.Add(1)
		w.Nudge()
		time.Sleep(24 * time.Hour)
		require.Equal(t, before, f.reads.Load())
		f.taken()
		w.Wait()
		synctest.Wait()
		require.Equal(t, []Cause{Commit}, f.taken(), "what came meanwhile is seen")
	})
}

func TestADeadlineFiresWithoutACommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := watchFake(t, time.Hour)
		var at []time.Duration
		began := time.Now()
		f.onLook = func(why Cause) {
			if why == Deadline {
				at = append(at, time.Since(began))
			}
		}
		begin(w, f)
		w.Expect(began.Add(10 * time.Second))
		w.Expect(began.Add(20 * time.Second)) // later: the look at the first one renews it
		w.Expect(began.Add(3 * time.Second))
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		require.Equal(t, []time.Duration{3 * time.Second}, at, "the earliest, once")
		w.Expect(began) // long ago
		synctest.Wait()
		require.Len(t, at, 2)
	})
}

// Whoever waits for any commit is not woken by a deadline.
func TestACommitIsNotTakenForADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := watchFake(t, time.Hour)
		begin(w, f)
		w.Expect(time.Now().Add(time.Second))
		synctest.Wait()
		f.version.Add(1) // by another process, without a word
		time.Sleep(2 * time.Second)
		w.Nudge()
		synctest.Wait()
		require.Contains(t, f.taken(), Commit)
	})
}

func TestPollingBacksOffWhileIdleAndComesBack(t *testing.T) {
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
		time.Sleep(5 * time.Second)
		require.InDelta(t, 40, reads(time.Second), 3, "each 25 ms")
		require.Empty(t, f.taken())
		f.version.Add(1)
		time.Sleep(safety)
		synctest.Wait()
		require.Equal(t, []Cause{Commit}, f.taken())
		require.InDelta(t, 500, reads(500*time.Millisecond), 20, "and at full speed again")
	})
}

func TestALongPollIntervalIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := watchFake(t, time.Hour)
		begin(w, f)
		before := f.reads.Load()
		time.Sleep(10*time.Hour + time.Minute)
		require.EqualValues(t, 10, f.reads.Load()-before)
	})
}

func TestABusyFileKeepsTheBaseline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := watchFake(t, time.Hour)
		begin(w, f)
		f.version.Add(1)
		f.set(func() { f.fault = sqlite.ErrBusy })
		f.set(func() { f.fault = errors.New("database is locked") })
		w.Nudge()
		synctest.Wait()
		require.Empty(t, f.taken(), "it could not look")
		w.Nudge()
		synctest.Wait()
		require.Equal(t, []Cause{Commit}, f.taken(), "and sees it the next time")
	})
}

func TestALostConnectionIsOneLookMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := watchFake(t, 10*time.Millisecond)
		begin(w, f)
		f.set(func() { f.fault = errors.New("gone") })
		time.Sleep(time.Second)
		require.Equal(t, []Cause{Restart}, f.taken(), "there may have been commits: once, without one")
		f.version.Add(1)
		time.Sleep(time.Second)
		require.Equal(t, []Cause{Commit}, f.taken())
	})
}

func TestAReplacedFileIsTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := watchFake(t, 10*time.Millisecond)
		begin(w, f)
		f.set(func() { f.identity = sqlite.ErrReplaced })
		time.Sleep(time.Second)
		f.set(func() { require.ErrorIs(t, f.dead, sqlite.ErrReplaced) })
		before := f.reads.Load()
		w.Nudge()
		w.Wait()
		w.Expect(time.Now())
		w.Nudge()
		time.Sleep(time.Minute)
		require.Equal(t, before, f.reads.Load())
		require.NoError(t, w.Close())
		require.EqualValues(t, 1, f.closed.Load())
	})
}

func TestCloseEndsEverythingAndMayComeAtAnyTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never, f := watchFake(t, time.Millisecond)
		require.NoError(t, never.Close())
		require.NoError(t, never.Close())
		never.Wait() // starts nothing any more: the bubble would not end
		never.Nudge()
		time.Sleep(time.Minute)
		require.Zero(t, f.reads.Load())

		w, f := watchFake(t, time.Millisecond)
		begin(w, f)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { require.NoError(t, w.Close()) })
			all.Go(func() { w.Wait(); w.Nudge(); w.Expect(time.Now()); w.Leave() })
		}
		all.Wait()
		require.EqualValues(t, 1, f.closed.Load())
	})
}

// The nudge comes from a goroutine that has just committed. It must go on, even while
// a look takes its time.
func TestNudgeNeverBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := watchFake(t, time.Hour)
		begin(w, f)
		f.onLook = func(Cause) { time.Sleep(time.Minute) }
		f.version.Add(1)
		w.Nudge()
		synctest.Wait() // the look sleeps
		began := time.Now()
		for range 10_000 {
			f.version.Add(1)
			w.Nudge()
		}
		require.Equal(t, began, time.Now())
		time.Sleep(time.Hour / 2)
		require.Len(t, f.taken(), 2, "ten thousand nudges are one look")
	})
}

func TestLongPausesEndTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(0, rapid.Int64Range(0, 1<<62).Draw(t, "now"))
		pause := time.Duration(rapid.Int64Range(int64(time.Second), int64(time.Hour)).Draw(t, "pause"))
		got := together(now, pause)
		require.InDelta(t, pause, got, float64(pause)/8+1)
		end := now.Add(got)
		require.Equal(t, end, end.Truncate(pause/4), "a mark of all")
		late := time.Duration(rapid.Int64Range(0, int64(pause)/9).Draw(t, "late"))
		require.Equal(t, end.Add(pause/4*4), end.Add(late).Add(together(end.Add(late), pause)), "and so on, also if late")
	})
	require.Equal(t, time.Millisecond, together(time.Unix(1, 3), time.Millisecond), "a short one is what it is")
}
