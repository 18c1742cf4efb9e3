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

	"github.com/honker-go/honker/internal/wake"
)

// inotifies returns the number of inotify instances that this process has.
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

// All of a process's files share an inotify instance.
func TestMux_OneInstance(t *testing.T) {
	before := inotifies(t)
	var all []*Watcher
	for range 5 {
		w, _, other, looks := watchFile(t, Config{Notices: true, Poll: time.Hour})
		write(t, other)
		require.Equal(t, wake.Commit, next(t, looks))
		all = append(all, w)
	}
	require.Equal(t, before+1, inotifies(t))
	for _, w := range all {
		require.NoError(t, w.Close())
	}
	require.Equal(t, before, inotifies(t), "it goes with its last user")
}

func eventsOf(t *testing.T, path string) *fileEvents {
	t.Helper()
	n := newFileEvents(Config{Path: path, Notices: true, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(n.close)
	return n
}

// fired checks that each of yes has an event and none of no has.
func fired(t *testing.T, yes []*fileEvents, no ...*fileEvents) {
	t.Helper()
	for _, n := range yes {
		select {
		case <-n.C():
		case <-time.After(patient):
			t.Fatal("no event")
		}
	}
	for _, n := range no {
		require.Empty(t, n.C())
	}
}

// An event notifies the subscribers to its file, and no others.
func TestFileEvents_Subscribers(t *testing.T) {
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
	one, two, other := newFileEvents(Config{Path: a, Notices: true}), eventsOf(t, a), eventsOf(t, b)
	for _, n := range []*fileEvents{one, two, other} {
		require.True(t, n.subscribe())
		require.False(t, n.subscribe(), "once is enough")
	}

	append1(a)
	fired(t, []*fileEvents{one, two}, other)
	append1(b + "-wal")
	fired(t, []*fileEvents{other}, one, two)

	two.unsubscribe()
	append1(a)
	fired(t, []*fileEvents{one}, two)
	require.True(t, two.subscribe())
	one.close()
	append1(a)
	fired(t, []*fileEvents{two}, other)
}

// Events resume for a file that was removed and created again.
func TestFileEvents_RecreatedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	one, two := eventsOf(t, path), eventsOf(t, path)
	require.True(t, one.subscribe())
	require.True(t, two.subscribe())

	require.NoError(t, os.Remove(path))
	fired(t, []*fileEvents{one, two})
	require.Eventually(t, func() bool { return !one.subscribed() && !two.subscribed() }, patient, time.Millisecond)
	require.False(t, one.subscribe(), "there is nothing to watch")

	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.True(t, one.subscribe())
	require.True(t, two.subscribe())
	require.NoError(t, os.WriteFile(path, []byte("x"), 0o600))
	fired(t, []*fileEvents{one, two})
}

// A filesystem may accept a watch and never send events. The test simulates this by a watch on a
// file that is not written.
func TestWatcher_Polling_UnreliableEvents(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.db")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	f := &fake{}
	w := New(Config{
		Path:      path,
		Notices:   true,
		Untrusted: true,
		Version:   f,
		Identity:  func() error { return nil },
		Commits:   f.commits.Load,
		Poll:      time.Millisecond,
		Changed:   f.look,
		Lost:      func(error) {},
		Logger:    slog.New(slog.DiscardHandler),
	})
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	w.AddWaiter(1)
	few := func(why string) {
		t.Helper()
		becomesQuiet(t, f, 5, why)
	}
	many := func(why string) {
		t.Helper()
		<-time.After(2 * time.Second)                              // without commits, the pauses grow
		require.Less(t, timeOfLooks(t, f, 20), 8*time.Second, why) // of few it is ten
	}
	few("events are waited for")
	f.taken()

	commit := func() {
		f.version.Add(1)
		require.Eventually(t, func() bool { return len(f.taken()) > 0 }, patient, time.Millisecond)
	}
	commit()
	if timeOfLooks(t, f, 20) > 8*time.Second { // a slow machine: the first one was met while it still searched
		commit()
	}
	many("a poll was first: it goes on as without events")

	w.RemoveWaiter(1)
	w.Committed()
	<-time.After(100 * time.Millisecond) // now it sleeps
	w.AddWaiter(1)
	many("a new watch proves nothing")

	require.NoError(t, os.WriteFile(path, []byte("x"), 0o600))
	few("they come after all")
}

// Events for the database file itself announce that it was replaced. Renaming a parent directory causes no event; see
// TestWatcher_Lost_File.
func TestFileEvents_ReplacedFile(t *testing.T) {
	for name, replace := range map[string]func(file string) error{
		"renamed":              func(file string) error { return os.Rename(file, file+".old") },
		"removed":              func(file string) error { return os.Remove(file) },
		"another renamed over": func(file string) error { return os.Rename(file+".new", file) },
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "x.db")
			for _, path := range []string{file, file + "-wal", file + ".new"} {
				require.NoError(t, os.WriteFile(path, nil, 0o600))
			}
			held, err := os.Open(file) // as SQLite does, so the removed file continues to exist
			require.NoError(t, err)
			defer held.Close()
			e := eventsOf(t, file)
			require.True(t, e.subscribe())
			require.True(t, e.followsLog())
			require.NoError(t, replace(file))
			fired(t, []*fileEvents{e})
		})
	}
}

// A -wal file may be created without an event, so the watcher must check for it.
func TestFileEvents_NoLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	n := eventsOf(t, path)
	require.True(t, n.subscribe())
	require.False(t, n.followsLog())

	require.False(t, n.subscribe(), "there is still none")

	require.NoError(t, os.WriteFile(path+"-wal", nil, 0o600))
	require.True(t, n.subscribe())
	require.True(t, n.followsLog())

	require.NoError(t, os.Remove(path+"-wal"))
	fired(t, []*fileEvents{n})
	require.False(t, n.subscribed())
}

// If events are lost, all subscribers are notified.
func TestMux_LostEvents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	for _, file := range []string{path, path + "-wal"} {
		require.NoError(t, os.WriteFile(file, nil, 0o600))
	}
	n := eventsOf(t, path)
	require.True(t, n.subscribe())
	n.mux.dispatch(-1, unix.IN_Q_OVERFLOW)
	fired(t, []*fileEvents{n})
	require.False(t, n.subscribed(), "the log may be gone")
	require.True(t, n.subscribe())

	n.mux.in.close()
	<-n.mux.ended
	fired(t, []*fileEvents{n})
	require.False(t, n.subscribed())
	require.False(t, n.subscribe(), "events are not read any more: poll")
}

// If the system has no inotify instances or watches left, this is logged once. Events resume when some become
// available.
func TestFileEvents_UsedUp(t *testing.T) {
	for name, useUp := range map[string]func(err *error){
		"instances": func(err *error) {
			real := inotifyInit
			t.Cleanup(func() { inotifyInit = real })
			inotifyInit = func(flags int) (int, error) {
				if *err != nil {
					return -1, *err
				}
				return real(flags)
			}
		},
		"watches": func(err *error) {
			real := inotifyAddWatch
			t.Cleanup(func() { inotifyAddWatch = real })
			inotifyAddWatch = func(fd int, path string, mask uint32) (int, error) {
				if *err != nil {
					return -1, *err
				}
				return real(fd, path, mask)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.db")
			require.NoError(t, os.WriteFile(path, nil, 0o600))
			var log strings.Builder
			err := error(unix.ENOSPC)
			useUp(&err)
			e := newFileEvents(Config{Path: path, Notices: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			t.Cleanup(e.close)

			for range 3 {
				require.False(t, e.subscribe())
				e.retryAt = time.Time{} // as if the pause had passed
			}
			require.Equal(t, 1, strings.Count(log.String(), "file events are not available"), log.String())
			require.Contains(t, log.String(), path)

			require.False(t, e.subscribe())
			err = nil
			require.False(t, e.subscribe(), "an attempt costs two system calls, at each look")
			e.retryAt = time.Time{}
			require.True(t, e.subscribe())
			require.NoError(t, os.WriteFile(path, []byte("x"), 0o600))
			fired(t, []*fileEvents{e})
		})
	}
}
