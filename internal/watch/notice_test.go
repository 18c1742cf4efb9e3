//go:build linux

package watch

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
	log, looks := watchNotices(t, f)
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
func watchNotices(t *testing.T, f *fake) (*os.File, chan Cause) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.db")
	log, err := os.Create(path + "-wal")
	require.NoError(t, err)
	looks := make(chan Cause, 16)
	w := New(Config{
		Path:     path,
		Version:  f,
		Identity: func() error { return nil },
		Commits:  f.commits.Load,
		Poll:     time.Hour,
		Notices:  true,
		Look:     func(why Cause) { looks <- why },
		Dead:     func(err error) { t.Errorf("dead: %v", err) },
		Logger:   slog.New(slog.DiscardHandler),
	})
	w.Wait()
	t.Cleanup(func() {
		require.NoError(t, w.Close())
		require.NoError(t, log.Close())
	})
	next(t, looks)
	require.Zero(t, quiet(looks))
	return log, looks
}
