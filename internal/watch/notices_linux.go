package watch

import (
	"os"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// notices tells one watcher that its -wal file was written, and that the path may hold
// another file.
type notices struct {
	path  string // of the database
	board *board // nil where notices are not wanted or not to be had
	fired chan struct{}

	log    int32 // the watch on what a commit writes to
	on     bool
	wal    bool        // that is the -wal file
	gone   atomic.Bool // it was removed, and the watch with it
	places []int32     // the watches on the database and the folders above it
	safe   bool        // all of them are watched
}

const (
	written = unix.IN_MODIFY
	linked  = unix.IN_ATTRIB // the number of its links has changed, say: another was renamed over it
)

func newNotices(cfg Config) *notices {
	n := &notices{path: filepath.Clean(cfg.Path), fired: make(chan struct{}, 1)}
	if !cfg.Notices {
		return n
	}
	board, err := joinBoard()
	if err != nil {
		cfg.Logger.Warn("honker: no file notices, polling instead", "error", err)
		return n
	}
	n.board = board
	return n
}

// target is the file that a commit writes to.
func (n *notices) target() string {
	_, err := os.Stat(n.path + "-wal")
	if n.wal = err == nil; n.wal {
		return n.path + "-wal"
	}
	return n.path
}

// fire leaves one notice: two are no more than one. gone says that no more will come of
// commits.
func (n *notices) fire(gone bool) {
	if gone {
		n.gone.Store(true)
	}
	select {
	case n.fired <- struct{}{}:
	default:
	}
}

// C has a value when something has happened since the last one.
func (n *notices) C() <-chan struct{} { return n.fired }

// armed tells whether notices of commits come.
func (n *notices) armed() bool { return n.on && !n.gone.Load() }

// guarded tells whether notices come of all that makes the path another file's, but for
// a mount over it. A log that is not there yet may come, and then it is what is written.
func (n *notices) guarded() bool { return n.safe && n.wal }

// arm makes them come; true when they did not before.
func (n *notices) arm() bool {
	if n.board == nil || n.armed() && (n.wal || n.target() == n.path) {
		return false
	}
	n.drop()
	n.guard()
	n.gone.Store(false)
	var err error
	n.log, err = n.board.tell(n, n.target(), written)
	n.on = err == nil
	return n.on
}

// guard watches the path once and for all: what happens there is rare.
func (n *notices) guard() {
	if n.places != nil {
		return
	}
	n.safe = true
	n.watch(n.path, linked)
	for dir := filepath.Dir(n.path); n.watch(dir, 0) && dir != filepath.Dir(dir); {
		dir = filepath.Dir(dir)
	}
}

func (n *notices) watch(path string, mask uint32) bool {
	wd, err := n.board.tell(n, path, mask)
	if err != nil {
		n.safe = false
		return false
	}
	n.places = append(n.places, wd)
	return true
}

// drop stops those of commits: each costs the writer a little.
func (n *notices) drop() {
	if n.on {
		n.board.forget(n, n.log, written)
		n.on = false
	}
}

func (n *notices) close() {
	if n.board == nil {
		return
	}
	n.drop()
	for _, wd := range n.places {
		n.board.forget(n, wd, linked|gone)
	}
	n.board.leave()
}
