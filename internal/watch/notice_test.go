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

// Each write to the log is one notice here, and nothing else makes the watcher look: the
// poll comes within the hour, and no search that came to nothing leaves a tail of looks.
// A real commit is several writes, of which the one that is heard hides the one that is
// not.
func TestEachSingleNoticeIsHeard(t *testing.T) {
	commits := 600 // so that one of a few hundred is met
	if testing.Short() {
		commits = 250
	}
	f := &fake{}
	log, looks := watchNotices(t, f, time.Hour)
	slowest := time.Duration(0)
	for n := range commits {
		calm := time.NewTimer(2 * storm) // closer ones would be a storm, in which it polls
		<-calm.C
		f.version.Add(1)
		began := time.Now()
		_, err := log.Write([]byte{1})
		require.NoError(t, err)
		select {
		case why := <-looks:
			require.Equal(t, Commit, why)
		case <-time.After(patient / 4):
			t.Fatalf("nobody has heard of commit %d", n)
		}
		slowest = max(slowest, time.Since(began))
	}
	t.Logf("the slowest of %d was heard after %v", commits, slowest)
}

// watchNotices is a watcher of a log without a database, which listens by now.
func watchNotices(t *testing.T, f *fake, poll time.Duration) (*os.File, chan Cause) {
	t.Helper()
	looks := make(chan Cause, 1000)
	cfg := watchConfig(t, f, poll, func(why Cause) { looks <- why })
	log, err := os.OpenFile(cfg.Path+"-wal", os.O_WRONLY, 0)
	require.NoError(t, err)
	w := New(cfg)
	w.Wait()
	t.Cleanup(func() {
		require.NoError(t, w.Close())
		require.NoError(t, log.Close())
	})
	next(t, looks)
	require.Zero(t, quiet(looks))
	return log, looks
}

// A disk may hold a writer up between what makes the notice and what makes the commit
// visible, and no second notice comes then.
func TestACommitThatIsLateAfterItsNoticeIsHeard(t *testing.T) {
	f := &fake{}
	log, looks := watchNotices(t, f, time.Millisecond)
	for _, late := range []time.Duration{5 * time.Millisecond, 70 * time.Millisecond, 400 * time.Millisecond} {
		_, err := log.Write([]byte{1})
		require.NoError(t, err)
		<-time.After(late)
		f.version.Add(1)
		require.Equal(t, Commit, next(t, looks), late)
	}
}

func TestAQuietFileIsLeftAloneUnlessSomethingIsDue(t *testing.T) {
	f := &fake{}
	w := New(watchConfig(t, f, time.Millisecond, func(Cause) {}))
	w.Wait()
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	<-time.After(2 * time.Second) // the pauses grow
	looks := func() int64 {
		before := f.reads.Load()
		<-time.After(2 * time.Second)
		return f.reads.Load() - before
	}
	require.Zero(t, looks())
	w.Expect(time.Now().Add(time.Hour))
	require.InDelta(t, 4, looks(), 2, "the clock of the wall may be set")
}

// In a storm polls find what notices would have announced: that is no reason to doubt them.
func TestAfterAStormAQuietFileIsLeftAlone(t *testing.T) {
	f := &fake{}
	log, looks := watchNotices(t, f, time.Millisecond)
	for range 200 {
		f.version.Add(1)
		_, err := log.Write([]byte{1})
		require.NoError(t, err)
		sqlite.Pause(200 * time.Microsecond)
	}
	require.Positive(t, quiet(looks))
	<-time.After(2 * time.Second) // the pauses grow
	before := f.reads.Load()
	<-time.After(2 * time.Second)
	require.LessOrEqual(t, f.reads.Load()-before, int64(1))
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
		Look:     look,
		Dead:     func(err error) { t.Errorf("dead: %v", err) },
		Logger:   slog.New(slog.DiscardHandler),
	}
}
