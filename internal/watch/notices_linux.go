package watch

import (
	"os"
	"path/filepath"
	"sync/atomic"
)

// notices tells one watcher that its -wal file was written.
type notices struct {
	path  string
	board *board // nil where notices are not wanted or not to be had
	fired chan struct{}
	on    bool
	gone  atomic.Bool // the file was removed, and the watch with it
}

func newNotices(cfg Config) *notices {
	n := &notices{path: filepath.Clean(walOrDatabase(cfg.Path)), fired: make(chan struct{}, 1)}
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

// walOrDatabase picks the file that a commit writes to.
func walOrDatabase(path string) string {
	if _, err := os.Stat(path + "-wal"); err == nil {
		return path + "-wal"
	}
	return path
}

// fire leaves one notice: two are no more than one.
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
	if n.board == nil || n.armed() {
		return false
	}
	n.gone.Store(false)
	// The -wal may have gone with somebody's last connection; the poll serves until
	// it is back.
	n.on = n.board.tell(n)
	return n.on
}

// drop stops them: each costs the writer a little.
func (n *notices) drop() {
	if n.on {
		n.board.forget(n)
		n.on = false
	}
}

func (n *notices) close() {
	if n.board != nil {
		n.board.forget(n)
		n.board.leave()
	}
}
