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
)

// Each write to the log is one event here, and nothing else makes the watcher look: the
// timer comes within the hour, and each search finds its commit, so no looks follow it. A
// real commit is several writes, of which the event of one hides that another is missing.
func TestWatcher_Event_EachIsHeard(t *testing.T) {
	commits := 600 // so that one of a few hundred is met
	if testing.Short() {
		commits = 250
	}
	f := &fake{}
	log, looks := watchLog(t, f, time.Hour)
	slowest := time.Duration(0)
	for n := range commits {
		apart := time.NewTimer(2 * burstGap) // closer ones would be a burst, in which it polls
		<-apart.C
		f.version.Add(1)
		began := time.Now()
		_, err := log.Write([]byte{1})
		require.NoError(t, err)
		select {
		case why := <-looks:
			require.Equal(t, Commit, why)
		case <-time.After(patient / 4):
			t.Fatalf("commit %d was not noticed", n)
		}
		slowest = max(slowest, time.Since(began))
	}
	t.Logf("the slowest of %d was noticed after %v", commits, slowest)
}

// watchLog is a watcher of a log without a database. It has subscribed when this returns.
func watchLog(t *testing.T, f *fake, poll time.Duration) (*os.File, chan Cause) {
	t.Helper()
	looks := make(chan Cause, 1000)
	cfg := watchConfig(t, f, poll, func(why Cause) { looks <- why })
	log, err := os.OpenFile(cfg.Path+"-wal", os.O_WRONLY, 0)
	require.NoError(t, err)
	w := New(cfg)
	w.AddWaiter()
	t.Cleanup(func() {
		require.NoError(t, w.Close())
		require.NoError(t, log.Close())
	})
	next(t, looks)
	require.Zero(t, drain(looks))
	return log, looks
}

// A disk may hold a writer up between what makes the event and what makes the commit
// visible, and no second event comes then.
func TestWatcher_Searching_LateCommit(t *testing.T) {
	f := &fake{}
	log, looks := watchLog(t, f, time.Millisecond)
	for _, late := range []time.Duration{5 * time.Millisecond, 70 * time.Millisecond, 400 * time.Millisecond} {
		_, err := log.Write([]byte{1})
		require.NoError(t, err)
		<-time.After(late)
		f.version.Add(1)
		visible := time.Now()
		require.Equal(t, Commit, next(t, looks), late)
		require.Less(t, time.Since(visible), late+time.Second, "in proportion, and not with the next safety look")
	}
}

// A quiet file gets a safety look now and then, and more while a deadline is pending.
func TestWatcher_Listening_Quiet(t *testing.T) {
	f := &fake{}
	w := New(watchConfig(t, f, time.Millisecond, func(Cause) {}))
	w.AddWaiter()
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	<-time.After(2 * time.Second) // the pauses grow
	looks := func() int64 {
		before := f.reads.Load()
		<-time.After(2 * time.Second)
		return f.reads.Load() - before
	}
	require.LessOrEqual(t, looks(), int64(2), "safety looks")
	w.WakeAt(time.Now().Add(time.Hour))
	require.InDelta(t, 4, looks(), 2, "the wall clock may be set")
}

// In a burst polls find what events would have announced: that does not make events unreliable.
func TestWatcher_Burst_Quiet(t *testing.T) {
	f := &fake{}
	log, looks := watchLog(t, f, time.Millisecond)
	for range 200 {
		f.version.Add(1)
		_, err := log.Write([]byte{1})
		require.NoError(t, err)
		sqlite.Pause(200 * time.Microsecond)
	}
	require.Positive(t, drain(looks))
	<-time.After(2 * time.Second) // the pauses grow
	before := f.reads.Load()
	<-time.After(2 * time.Second)
	require.LessOrEqual(t, f.reads.Load()-before, int64(2), "safety looks")
}

// However long a file has been quiet, a safety look comes soon enough to notice within five
// seconds that the file was replaced.
func TestWatcher_Listening_LongestPause(t *testing.T) {
	for untrusted, bound := range map[bool]time.Duration{false: 4900 * time.Millisecond, true: 500 * time.Millisecond} {
		cfg := watchConfig(t, &fake{}, time.Millisecond, func(Cause) {})
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

func watchConfig(t *testing.T, f *fake, poll time.Duration, look func(Cause)) Config {
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
		Changed:  look,
		Lost:     func(err error) { t.Errorf("lost: %v", err) },
		Logger:   slog.New(slog.DiscardHandler),
	}
}
