package watch

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	written = unix.IN_MODIFY
	// relinked occurs when the number of links to a file changes. It is the only event for a
	// database that was deleted or replaced by a rename, since SQLite still has the file open.
	relinked = unix.IN_ATTRIB
)

// fileEvents notifies a watcher of changes to two files: the -wal file, where commits are written,
// and the database file, which may be renamed, deleted or replaced.
//
// Its methods must be called on the watcher's goroutine, except for fire, which runs on the mux's
// goroutine.
type fileEvents struct {
	path   string
	wanted bool
	logger *slog.Logger
	mux    *inotifyMux // nil until subscribe first succeeds
	fired  chan struct{}

	retryAt time.Time // earliest time of the next attempt, because the last attempt failed
	told    bool      // the failure was logged

	watches []int32
	log     bool        // the -wal file existed and is watched
	gone    atomic.Bool // a watched file was moved or removed, so its watch is useless
}

// retryEvents is the pause between attempts when the system has no inotify instances or watches
// left. Another program may release some at any time.
const retryEvents = time.Second

func newFileEvents(cfg Config) *fileEvents {
	return &fileEvents{path: filepath.Clean(cfg.Path), wanted: cfg.Notices, logger: cfg.Logger, fired: make(chan struct{}, 1)}
}

// C receives a value after an event.
func (e *fileEvents) C() <-chan struct{} { return e.fired }

// fire signals C. Pending signals are merged.
func (e *fileEvents) fire(gone bool) {
	if gone {
		e.gone.Store(true)
	}
	select {
	case e.fired <- struct{}{}:
	default:
	}
}

// subscribed reports whether a commit causes an event.
func (e *fileEvents) subscribed() bool { return len(e.watches) > 0 && !e.gone.Load() }

// followsLog reports whether the -wal file is watched. Its creation causes no event.
func (e *fileEvents) followsLog() bool { return e.log }

// subscribe adds missing watches. It returns true if it added any, because earlier writes caused no event.
func (e *fileEvents) subscribe() bool {
	// Without a -wal file, this checks for one at each call. That costs a stat, but a database in
	// WAL mode nearly always has a -wal file.
	if !e.wanted || e.subscribed() && (e.log || !e.logExists()) || time.Now().Before(e.retryAt) {
		return false
	}
	e.unsubscribe()
	e.gone.Store(false) // no watch is left that could set it
	if err := e.watchFiles(); err != nil {
		e.unsubscribe()
		e.failed(err)
		return false
	}
	return true
}

// failed handles an error from watchFiles. If a file is missing, the watcher tries again before each check for
// commits. Otherwise other programs have probably used up the user's inotify instances or watches, so the watcher
// logs this once, polls, and tries again after a pause.
func (e *fileEvents) failed(err error) {
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	e.retryAt = time.Now().Add(retryEvents)
	if !e.told {
		e.told = true
		e.logger.Warn("honker: file events are not available, polling until they are; check fs.inotify in sysctl and ulimit -n",
			"path", e.path, "error", err)
	}
}

// watchFiles watches the -wal file for commits, and the database file for replacement. Without a
// -wal file the database uses a rollback journal, and commits write to the database file.
func (e *fileEvents) watchFiles() error {
	if e.mux == nil {
		mux, err := acquireMux()
		if err != nil {
			return err
		}
		e.mux = mux
	}
	e.log = e.logExists()
	if !e.log {
		return e.watchPath(e.path, written|relinked)
	}
	if err := e.watchPath(e.path, relinked); err != nil {
		return err
	}
	return e.watchPath(e.path+"-wal", written)
}

func (e *fileEvents) watchPath(path string, mask uint32) error {
	wd, err := e.mux.subscribe(e, path, mask)
	if err != nil {
		return err
	}
	e.watches = append(e.watches, wd)
	return nil
}

func (e *fileEvents) logExists() bool {
	_, err := os.Stat(e.path + "-wal")
	return err == nil
}

// unsubscribe removes the watches and discards any pending event. Events cost the writing process some time.
func (e *fileEvents) unsubscribe() {
	for _, wd := range e.watches {
		e.mux.unsubscribe(e, wd)
	}
	e.watches, e.log = nil, false
	select {
	case <-e.fired:
	default:
	}
}

func (e *fileEvents) close() {
	if e.mux == nil {
		return
	}
	e.unsubscribe()
	e.mux.release()
}
