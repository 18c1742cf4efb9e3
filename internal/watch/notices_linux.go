package watch

import (
	"os"
	"sync/atomic"

	"github.com/fsnotify/fsnotify"
)

// notices tells that the -wal file was written, by inotify: it watches a path and
// opens no descriptor on the file, so no lock of SQLite's can be dropped.
type notices struct {
	path    string
	fs      *fsnotify.Watcher
	fired   chan struct{}
	ended   chan struct{}
	on      bool
	gone    atomic.Bool // the file was removed, and the watch with it
	refused bool
}

func newNotices(cfg Config) *notices {
	n := &notices{path: walOrDatabase(cfg.Path), fired: make(chan struct{}, 1), ended: make(chan struct{})}
	if !cfg.Notices {
		n.refused = true
		return n
	}
	fs, err := fsnotify.NewBufferedWatcher(64)
	if err != nil {
		cfg.Logger.Warn("honker: no file notices, polling instead", "error", err)
		n.refused = true
		return n
	}
	n.fs = fs
	go n.forward()
	return n
}

// walOrDatabase picks the file that a commit writes to.
func walOrDatabase(path string) string {
	if _, err := os.Stat(path + "-wal"); err == nil {
		return path + "-wal"
	}
	return path
}

// forward turns events into one slot. It ends when close closes the watcher.
func (n *notices) forward() {
	defer close(n.ended)
	for {
		select {
		case e, ok := <-n.fs.Events:
			if !ok {
				return
			}
			if e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename) {
				n.gone.Store(true)
			}
			n.fire()
		case _, ok := <-n.fs.Errors: // an overflow: there was something
			if !ok {
				return
			}
			n.fire()
		}
	}
}

func (n *notices) fire() {
	select {
	case n.fired <- struct{}{}:
	default:
	}
}

// C has a value when the file was written since the last one.
func (n *notices) C() <-chan struct{} { return n.fired }

// armed tells whether notices come.
func (n *notices) armed() bool { return n.on && !n.gone.Load() }

// arm makes them come; true when they did not before.
func (n *notices) arm() bool {
	if n.refused || n.armed() {
		return false
	}
	n.gone.Store(false)
	// The -wal may have gone with somebody's last connection; the poll serves until
	// it is back.
	n.on = n.fs.Add(n.path) == nil
	return n.on
}

// drop stops them: each costs the writer a little.
func (n *notices) drop() {
	if n.on {
		_ = n.fs.Remove(n.path)
		n.on = false
	}
}

func (n *notices) close() {
	if n.fs != nil {
		_ = n.fs.Close()
		<-n.ended
	}
}
