//go:build linux

package watch

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/sqlite"
	"github.com/honker-go/honker/internal/wake"
)

// Each write to the WAL causes exactly one event here, and nothing else makes the watcher look: the timer is set
// to an hour, and each search finds its commit. A real commit consists of several writes, whose events could hide
// that an event was missed.
func TestWatcher_Event_EachIsHeard(t *testing.T) {
	commits := 600 // enough to hit a failure that occurs once in a few hundred
	if testing.Short() {
		commits = 250
	}
	f := &fake{}
	log, looks := watchLog(t, f, time.Hour)
	slowest := time.Duration(0)
	for n := range commits {
		apart := time.NewTimer(2 * burstGap) // closer events would be a burst, in which the watcher polls
		<-apart.C
		f.version.Add(1)
		began := time.Now()
		_, err := log.Write([]byte{1})
		require.NoError(t, err)
		select {
		case why := <-looks:
			require.Equal(t, wake.Commit, why)
		case <-time.After(patient):
			t.Fatalf("commit %d was not noticed", n)
		}
		slowest = max(slowest, time.Since(began))
	}
	t.Logf("the slowest of %d was noticed after %v", commits, slowest)
}

// watchLog watches a WAL without a database. It returns when the watcher has subscribed.
func watchLog(t *testing.T, f *fake, poll time.Duration) (*os.File, chan wake.Reason) {
	t.Helper()
	looks := make(chan wake.Reason, 1000)
	cfg := watchConfig(t, f, poll, func(why wake.Reason) { looks <- why })
	log, err := os.OpenFile(cfg.Path+"-wal", os.O_WRONLY, 0)
	require.NoError(t, err)
	w := New(cfg)
	w.AddWaiter(1)
	t.Cleanup(func() {
		require.NoError(t, w.Close())
		require.NoError(t, log.Close())
	})
	next(t, looks)
	require.Zero(t, drain(looks))
	return log, looks
}

// A disk may delay a writer between the event and the moment when the commit is visible, and there is no second
// event.
func TestWatcher_Searching_LateCommit(t *testing.T) {
	t.Parallel()
	f := &fake{}
	log, looks := watchLog(t, f, time.Hour) // the next safety look would be too late
	for _, late := range []time.Duration{5 * time.Millisecond, 70 * time.Millisecond, 400 * time.Millisecond} {
		_, err := log.Write([]byte{1})
		require.NoError(t, err)
		<-time.After(late)
		f.version.Add(1)
		visible := time.Now()
		require.Equal(t, wake.Commit, next(t, looks), late)
		t.Logf("%v late, and noticed %v after that", late, time.Since(visible))
	}
}

// The watcher looks at a quiet file occasionally, and more often while a deadline is pending.
func TestWatcher_Listening_Quiet(t *testing.T) {
	t.Parallel()
	f := &fake{}
	w := New(watchConfig(t, f, time.Millisecond, func(wake.Reason) {}))
	w.AddWaiter(1)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	becomesQuiet(t, f, 1, "safety looks")
	w.WakeAt(time.Now().Add(time.Hour))
	require.Less(t, timeOfLooks(t, f, 4), 8*time.Second, "the wall clock may be set") // 16 seconds of safety looks would be too long
	becomesQuiet(t, f, 3, "no more than that")
}

// becomesQuiet waits until there are no more than most looks per second. On a slow machine, the pauses grow slowly.
func becomesQuiet(t *testing.T, f *fake, most float64, why string) {
	t.Helper()
	for end := time.Now().Add(patient); ; {
		before, began := f.reads.Load(), time.Now()
		<-time.After(2 * time.Second)
		looks := float64(f.reads.Load()-before) / time.Since(began).Seconds()
		if looks <= most {
			return
		}
		require.True(t, began.Before(end), "%s: %v a second", why, looks)
	}
}

// timeOfLooks returns how long n looks take.
func timeOfLooks(t *testing.T, f *fake, n int64) time.Duration {
	t.Helper()
	before, began := f.reads.Load(), time.Now()
	require.Eventually(t, func() bool { return f.reads.Load() >= before+n }, patient, time.Millisecond)
	return time.Since(began)
}

// In a burst, polling finds commits before their events arrive. This doesn't make events unreliable.
func TestWatcher_Burst_Quiet(t *testing.T) {
	t.Parallel()
	f := &fake{}
	log, looks := watchLog(t, f, time.Millisecond)
	for range 200 {
		f.version.Add(1)
		_, err := log.Write([]byte{1})
		require.NoError(t, err)
		sqlite.Pause(200 * time.Microsecond)
	}
	require.Positive(t, drain(looks))
	becomesQuiet(t, f, 1, "safety looks")
}

// A long Poll doesn't delay looks once the watcher itself has turned events off: after a burst in which each event
// found its commit immediately, and after commits that aren't for any waiter.
func TestWatcher_Busy_LongPoll(t *testing.T) {
	for name, others := range map[string]bool{"a burst": false, "commits for others": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fake{}
			log, looks := watchLog(t, f, time.Hour)
			f.set(func() { f.others = others })
			for range 40 * burstEvents {
				f.version.Add(1)
				_, err := log.Write([]byte{1})
				require.NoError(t, err)
				sqlite.Pause(searchEvery)
			}
			drain(looks)
			f.set(func() { f.others = false })
			f.version.Add(1)
			_, err := log.Write([]byte{1})
			require.NoError(t, err)
			require.Equal(t, wake.Commit, next(t, looks))
		})
	}
}

// No matter how long a file has been quiet, the watcher looks often enough to notice within five seconds that it was
// replaced.
func TestWatcher_Listening_LongestPause(t *testing.T) {
	for untrusted, bound := range map[bool]time.Duration{false: 4900 * time.Millisecond, true: 500 * time.Millisecond} {
		cfg := watchConfig(t, &fake{}, time.Millisecond, func(wake.Reason) {})
		cfg.Untrusted = untrusted
		w := New(cfg)
		w.events = newFileEvents(cfg)
		t.Cleanup(w.events.close)
		require.True(t, w.followEvents())
		require.Equal(t, searching, w.state)
		for range 50 {
			w.foundNothing(time.Now())
		}
		require.Equal(t, listening, w.state)
		pause, _ := w.nextPause(time.Now(), time.Time{})
		require.LessOrEqual(t, pause, bound)
		require.LessOrEqual(t, w.pause, bound)
	}
}

// busyWatcher returns a watcher in the busy state, after commits that aren't for any waiter. Events for the WAL no
// longer wake it.
func busyWatcher(t *testing.T, f *fake, signals wake.Signals) (*Watcher, *os.File, chan wake.Reason) {
	t.Helper()
	looks := make(chan wake.Reason, 100_000)
	cfg := watchConfig(t, f, time.Millisecond, func(why wake.Reason) { looks <- why })
	log, err := os.OpenFile(cfg.Path+"-wal", os.O_WRONLY, 0)
	require.NoError(t, err)
	w := New(cfg)
	t.Cleanup(func() {
		require.NoError(t, w.Close())
		require.NoError(t, log.Close())
		require.NoDirExists(t, cfg.Path+"-wake", "it goes with the last watcher")
	})
	f.others = true
	w.AddWaiter(signals)
	next(t, looks)
	require.Eventually(t, func() bool { return wake.Signals(w.signals.watched.Load()) == signals }, patient, time.Millisecond)
	return w, log, looks
}

// keepBusy makes commits that aren't for any waiter every few milliseconds, until stop is called.
func keepBusy(f *fake, log *os.File) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(3 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				f.version.Add(1)
				_, _ = log.Write([]byte{1})
			case <-end:
				return
			}
		}
	}()
	return func() { close(end); <-ended }
}

// If there are many commits that aren't for any waiter, the watcher looks only occasionally.
func TestWatcher_Busy_Others(t *testing.T) {
	t.Parallel()
	f := &fake{}
	_, log, _ := busyWatcher(t, f, 1)
	stop := keepBusy(f, log)
	defer stop()
	<-time.After(500 * time.Millisecond) // the pauses grow
	f.taken()
	began := time.Now()
	<-time.After(time.Second)
	looks := float64(len(f.taken()))
	require.LessOrEqual(t, looks/time.Since(began).Seconds(), 60.0, "of 330 commits a second")
}

// A signal from another process immediately causes a call to Changed, only for the signal's waiters. Signals for
// other waiters or from this process are ignored.
func TestWatcher_Busy_Signal(t *testing.T) {
	t.Parallel()
	f := &fake{}
	w, log, _ := busyWatcher(t, f, 1|1<<62)
	stop := keepBusy(f, log)
	defer stop()
	other := newSignalFiles(w.cfg.Path)
	for range 20 {
		before := f.heardOf(1 << 62)
		require.Eventually(t, func() bool {
			other.raise(1<<62 | 1<<5) // repeat it, because the watcher may not be busy at this moment
			return f.heardOf(1<<62) > before
		}, patient, time.Millisecond)
	}
	require.Zero(t, f.heardOf(1<<5), "it has no waiter")
	<-time.After(2 * mergeFor)
	w.Raise(1)
	<-time.After(20 * mergeFor)
	require.Zero(t, w.signals.arrived.Load()&1)
}

// A steady stream of signals doesn't delay looks by timer, which are the only way to find other programs' commits.
func TestWatcher_Busy_Signals_LooksGoOn(t *testing.T) {
	t.Parallel()
	f := &fake{}
	w, log, _ := busyWatcher(t, f, 1|1<<62)
	stop := keepBusy(f, log)
	<-time.After(500 * time.Millisecond) // the pauses grow
	stop()
	other := newSignalFiles(w.cfg.Path)
	reads := f.reads.Load() // a signal doesn't cause a read
	f.version.Add(1)
	require.Eventually(t, func() bool {
		other.raise(1 << 62)
		return f.reads.Load() >= reads+5
	}, patient, 2*time.Millisecond)
}

// A deleted signal file is created again.
func TestWatcher_Busy_SignalFileDeleted(t *testing.T) {
	t.Parallel()
	f := &fake{}
	w, log, _ := busyWatcher(t, f, 1<<7)
	stop := keepBusy(f, log)
	defer stop()
	require.NoError(t, os.Remove(w.signals.path(7)))
	require.Eventually(t, func() bool {
		_, err := os.Stat(w.signals.path(7))
		return err == nil && w.signals.watched.Load() == 1<<7
	}, patient, time.Millisecond)
}

// When the commits stop, events are turned on again.
func TestWatcher_Busy_Quiet(t *testing.T) {
	t.Parallel()
	f := &fake{}
	w, log, looks := busyWatcher(t, f, 1)
	keepBusy(f, log)()
	require.Eventually(t, func() bool { return w.signals.watched.Load() == 0 }, patient, time.Millisecond)
	<-time.After(2 * time.Second) // the pauses grow
	drain(looks)
	f.set(func() { f.others = false })
	f.version.Add(1)
	began := time.Now()
	_, err := log.Write([]byte{1})
	require.NoError(t, err)
	require.Equal(t, wake.Commit, next(t, looks))
	t.Logf("noticed after %v", time.Since(began))
}

func watchConfig(t *testing.T, f *fake, poll time.Duration, look func(wake.Reason)) Config {
	f.onLook = look
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.db")
	for _, file := range []string{path, path + "-wal"} {
		require.NoError(t, os.WriteFile(file, nil, 0o600))
	}
	return Config{
		Path:     path,
		Version:  f,
		Identity: func() error { return nil },
		Commits:  f.commits.Load,
		Poll:     poll,
		Notices:  true,
		Changed:  f.look,
		Lost:     func(err error) { t.Errorf("lost: %v", err) },
		Logger:   slog.New(slog.DiscardHandler),
	}
}
