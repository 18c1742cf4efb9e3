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
	// relinked comes when the number of links to a file changes. It is the only event of a
	// database that was deleted, or that another file was renamed over, since SQLite still
	// has it open.
	relinked = unix.IN_ATTRIB
)

// fileEvents signals one watcher that its files have changed: the -wal file, to which a
// commit writes, and the database file, which may be renamed, deleted or renamed over.
//
// Its methods are for the watcher's goroutine. Only fire runs in another one, the mux's.
type fileEvents struct {
	path   string
	wanted bool
	logger *slog.Logger
	mux    *inotifyMux // nil until the first subscribe that succeeds
	fired  chan struct{}

	retryAt time.Time // no attempt before it, since the last one has failed
	told    bool      // the log has the failure

	watches []int32
	log     bool        // the -wal file existed, and is watched
	gone    atomic.Bool // a watched file was moved or removed: its watch is of no use any more
}

// retryEvents is the pause between attempts where the system has no instance or no watch
// left. Another program may give some back at any time.
const retryEvents = time.Second

func newFileEvents(cfg Config) *fileEvents {
	return &fileEvents{path: filepath.Clean(cfg.Path), wanted: cfg.Notices, logger: cfg.Logger, fired: make(chan struct{}, 1)}
}

// C has a value when something has happened since the last receive.
func (e *fileEvents) C() <-chan struct{} { return e.fired }

// fire leaves one signal. Two would say no more than one.
func (e *fileEvents) fire(gone bool) {
	if gone {
		e.gone.Store(true)
	}
	select {
	case e.fired <- struct{}{}:
	default:
	}
}

// subscribed reports whether a commit makes an event.
func (e *fileEvents) subscribed() bool { return len(e.watches) > 0 && !e.gone.Load() }

// followsLog reports whether the watches are on the files that matter. A -wal file that
// appears later makes no event by itself.
func (e *fileEvents) followsLog() bool { return e.log }

// subscribe watches the files where they are not watched yet. It returns true if it has
// set new watches: what was written before makes no event.
func (e *fileEvents) subscribe() bool {
	// Without a -wal file each call looks for one: that costs a stat per look, and a file
	// in WAL mode has one nearly always.
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

// failed says that the watcher polls, which costs more and is later. A file that has
// disappeared is tried again before each look. Where the user's instances or watches are
// used up, by other programs as a rule, that would cost a little for nothing.
func (e *fileEvents) failed(err error) {
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	e.retryAt = time.Now().Add(retryEvents)
	if !e.told {
		e.told = true
		e.logger.Warn("honker: no file events, polling until there are; see fs.inotify in sysctl, and ulimit -n",
			"path", e.path, "error", err)
	}
}

// watchFiles watches the -wal file for commits and the database file for being replaced.
// Without a -wal file a commit writes to the database file: with a rollback journal.
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

// unsubscribe ends the events, also one that was not received yet. Each event costs the
// process that writes a little.
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
