package watch

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// inotifies counts the inotify instances of this process.
func inotifies(t *testing.T) (n int) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, fd := range all {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.Contains(to, "inotify") {
			n++
		}
	}
	return n
}

func TestFilesOfAProcessShareOneInotifyInstance(t *testing.T) {
	before := inotifies(t)
	var all []*Watcher
	for range 5 {
		w, _, other, looks := watchFile(t, Config{Notices: true, Poll: time.Hour})
		write(t, other)
		require.Equal(t, Commit, next(t, looks))
		all = append(all, w)
	}
	require.Equal(t, before+1, inotifies(t))
	for _, w := range all {
		require.NoError(t, w.Close())
	}
	require.Equal(t, before, inotifies(t), "it goes with its last user")
}

func noticesOf(t *testing.T, path string) *notices {
	t.Helper()
	n := newNotices(Config{Path: path, Notices: true})
	t.Cleanup(n.close)
	return n
}

// told fails unless exactly those who should are told of what happened.
func told(t *testing.T, yes []*notices, no ...*notices) {
	t.Helper()
	for _, n := range yes {
		select {
		case <-n.C():
		case <-time.After(patient):
			t.Fatal("not told")
		}
	}
	for _, n := range no {
		require.Empty(t, n.C())
	}
}

func TestNoticesReachThoseWhomAFileConcerns(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.db"), filepath.Join(dir, "b.db")
	for _, path := range []string{a, b, b + "-wal"} {
		require.NoError(t, os.WriteFile(path, nil, 0o600))
	}
	append1 := func(path string) {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = f.WriteString("x")
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	one, two, other := newNotices(Config{Path: a, Notices: true}), noticesOf(t, a), noticesOf(t, b)
	for _, n := range []*notices{one, two, other} {
		require.True(t, n.arm())
		require.False(t, n.arm(), "once is enough")
	}

	append1(a)
	told(t, []*notices{one, two}, other)
	append1(b + "-wal")
	told(t, []*notices{other}, one, two)

	two.drop()
	append1(a)
	told(t, []*notices{one}, two)
	require.True(t, two.arm())
	one.close()
	append1(a)
	told(t, []*notices{two}, other)
}

func TestNoticesComeAgainForAFileThatWasMadeAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	one, two := noticesOf(t, path), noticesOf(t, path)
	require.True(t, one.arm())
	require.True(t, two.arm())

	require.NoError(t, os.Remove(path))
	told(t, []*notices{one, two})
	require.Eventually(t, func() bool { return !one.armed() && !two.armed() }, patient, time.Millisecond)
	require.False(t, one.arm(), "there is nothing to watch")

	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.True(t, one.arm())
	require.True(t, two.arm())
	require.NoError(t, os.WriteFile(path, []byte("x"), 0o600))
	told(t, []*notices{one, two})
}

// A filesystem that takes the watch and never keeps its word: here, the watch is on a
// file that nobody writes.
func TestNoticesThatDoNotComeAreNotReliedOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	f := &fake{}
	w := New(Config{
		Path:     path,
		Notices:  true,
		Wary:     true,
		Version:  f,
		Identity: func() error { return nil },
		Commits:  f.commits.Load,
		Poll:     time.Millisecond,
		Look:     f.look,
		Dead:     func(error) {},
		Logger:   slog.New(slog.DiscardHandler),
	})
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	w.Wait()
	// looks counts those of a second after a while without commits.
	looks := func() int64 {
		<-time.After(2 * time.Second) // the pauses grow
		before := f.reads.Load()
		<-time.After(time.Second)
		return f.reads.Load() - before
	}
	require.Less(t, looks(), int64(6), "notices are waited for")
	f.taken()

	f.version.Add(1)
	require.Eventually(t, func() bool { return len(f.taken()) > 0 }, patient, time.Millisecond)
	require.Greater(t, looks(), int64(10), "a poll was first: it goes on as without notices")

	require.NoError(t, os.WriteFile(path, []byte("x"), 0o600))
	require.Less(t, looks(), int64(10), "they come after all")
}

// Otherwise a file may rest: for what could change without a notice of a commit there
// are others.
func TestWhateverPutsAnotherFileAtThePathIsHeard(t *testing.T) {
	for name, replace := range map[string]func(dir, file string) error{
		"renamed":              func(_, file string) error { return os.Rename(file, file+".old") },
		"removed":              func(_, file string) error { return os.Remove(file) },
		"another renamed over": func(_, file string) error { return os.Rename(file+".new", file) },
		"folder renamed":       func(dir, _ string) error { return os.Rename(dir, dir+".old") },
		"folder above renamed": func(dir, _ string) error { return os.Rename(filepath.Dir(dir), filepath.Dir(dir)+".old") },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "a", "b")
			file := filepath.Join(dir, "x.db")
			require.NoError(t, os.MkdirAll(dir, 0o700))
			for _, path := range []string{file, file + "-wal", file + ".new"} {
				require.NoError(t, os.WriteFile(path, nil, 0o600))
			}
			held, err := os.Open(file) // as SQLite does: what is removed stays
			require.NoError(t, err)
			defer held.Close()
			n := noticesOf(t, file)
			require.True(t, n.arm())
			require.True(t, n.guarded())
			require.NoError(t, replace(dir, file))
			told(t, []*notices{n})
		})
	}
}

// Without a log there may be one soon, of which no notice tells: it has to be looked for.
func TestAFileWithoutALogIsNotReliedOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	n := noticesOf(t, path)
	require.True(t, n.arm())
	require.False(t, n.guarded())

	require.False(t, n.arm(), "there is still none")

	require.NoError(t, os.WriteFile(path+"-wal", nil, 0o600))
	require.True(t, n.arm())
	require.True(t, n.guarded())

	require.NoError(t, os.Remove(path+"-wal"))
	told(t, []*notices{n})
	require.False(t, n.armed())
}

func TestWhatTheKernelCouldNotKeepMayHaveBeenAnything(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	for _, file := range []string{path, path + "-wal"} {
		require.NoError(t, os.WriteFile(file, nil, 0o600))
	}
	n := noticesOf(t, path)
	require.True(t, n.arm())
	n.board.hand(-1, unix.IN_Q_OVERFLOW)
	told(t, []*notices{n})
	require.False(t, n.armed(), "the log may be gone")
	require.True(t, n.arm())

	n.board.in.close()
	<-n.board.ended
	told(t, []*notices{n})
	require.False(t, n.armed())
	require.False(t, n.arm(), "nobody reads any more: poll")
}
