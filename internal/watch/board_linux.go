package watch

import (
	"path/filepath"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// board is an inotify instance, which everybody in the process shares: the system
// gives few of them to a user, 128 as a rule, and a process may have a thousand files
// open. It watches paths and opens no descriptor on a file, so no lock of SQLite's can
// be dropped.
type board struct {
	fs    *fsnotify.Watcher
	ended chan struct{}

	mu    sync.Mutex
	users int
	told  map[string]map[*notices]struct{} // whom a path concerns
}

// The board of this process, there while anybody uses it.
var (
	theBoardMu sync.Mutex
	theBoard   *board
)

// joinBoard returns the board, a new one for the first user. Each needs a leave.
func joinBoard() (*board, error) {
	theBoardMu.Lock()
	defer theBoardMu.Unlock()
	if theBoard == nil {
		fs, err := fsnotify.NewBufferedWatcher(64)
		if err != nil {
			return nil, err
		}
		theBoard = &board{fs: fs, ended: make(chan struct{}), told: make(map[string]map[*notices]struct{})}
		go theBoard.forward()
	}
	theBoard.users++
	return theBoard, nil
}

// leave ends the board with its last user.
func (b *board) leave() {
	theBoardMu.Lock()
	defer theBoardMu.Unlock()
	if b.users--; b.users > 0 {
		return
	}
	theBoard = nil
	_ = b.fs.Close()
	<-b.ended
}

// tell has n told of what happens to its file; false when there is no such file.
func (b *board) tell(n *notices) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	// Also when others are told of this path: the file may be a new one.
	if b.fs.Add(n.path) != nil {
		return false
	}
	all := b.told[n.path]
	if all == nil {
		all = make(map[*notices]struct{}, 1)
		b.told[n.path] = all
	}
	all[n] = struct{}{}
	return true
}

// forget takes back a tell.
func (b *board) forget(n *notices) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.told[n.path], n)
	if len(b.told[n.path]) == 0 {
		delete(b.told, n.path)
		_ = b.fs.Remove(n.path) // an error when the file is gone, and the watch with it
	}
}

// forward hands on what the system says, until leave closes the instance.
func (b *board) forward() {
	defer close(b.ended)
	for {
		select {
		case e, ok := <-b.fs.Events:
			if !ok {
				return
			}
			b.hand(e.Name, e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename))
		case _, ok := <-b.fs.Errors:
			if !ok {
				return
			}
			b.handAll() // too many to keep: it may have been anybody's
		}
	}
}

func (b *board) hand(path string, gone bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n := range b.told[filepath.Clean(path)] {
		if gone {
			n.gone.Store(true)
		}
		n.fire()
	}
}

func (b *board) handAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, all := range b.told {
		for n := range all {
			n.fire()
		}
	}
}
