package watch

import (
	"cmp"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/honker-go/honker/internal/sqlite"
)

// board is an inotify instance, which everybody in the process shares: the system
// gives few of them to a user, 128 as a rule, and a process may have a thousand files
// open.
type board struct {
	in    inotify
	ended chan struct{}

	mu    sync.Mutex
	users int
	deaf  error                         // it cannot be read any more
	told  map[int32]map[*notices]uint32 // by watch: who is told, and of what
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
		in, err := newInotify()
		if err != nil {
			return nil, err
		}
		theBoard = &board{in: in, ended: make(chan struct{}), told: make(map[int32]map[*notices]uint32)}
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
	b.in.close()
	<-b.ended
}

// tell has n told of the events of mask at path, and of the end of what is there. It
// returns the watch, for forget.
func (b *board) tell(n *notices, path string, mask uint32) (int32, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	wd, err := b.in.watch(path, mask|moved)
	if err = cmp.Or(b.deaf, err); err != nil {
		return 0, err
	}
	all := b.told[wd]
	if all == nil {
		all = make(map[*notices]uint32, 1)
		b.told[wd] = all
	}
	all[n] |= mask | gone
	return wd, nil
}

const (
	moved = unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
	gone  = moved | unix.IN_IGNORED | unix.IN_UNMOUNT // what was at the path is not there any more
)

// forget takes back what n was told of by tell with mask. The last who is told ends
// the watch.
func (b *board) forget(n *notices, wd int32, mask uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.told[wd]
	if all == nil {
		return // the watch has ended with its file
	}
	if all[n] &^= mask; all[n]&^gone == 0 {
		delete(all, n)
	}
	if len(all) == 0 {
		delete(b.told, wd)
		b.in.forget(wd)
	}
}

// merge is how long a reader lets events pile up. A commit is several writes, and each
// wakes a reader who waits: the kernel makes one event of those that nobody has read.
const merge = 500 * time.Microsecond

// forward hands on what the system says, until leave closes the instance.
func (b *board) forward() {
	defer close(b.ended)
	buf := make([]byte, 4096)
	err := b.in.read(buf, b.hand)
	for ; err == nil; err = b.in.read(buf, b.hand) {
		sqlite.Pause(merge)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deaf = err
	b.fireAllLocked()
}

// hand tells those whom an event concerns.
func (b *board) hand(wd int32, mask uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if mask&unix.IN_Q_OVERFLOW != 0 {
		b.fireAllLocked()
		return
	}
	b.fireLocked(wd, mask)
	if mask&unix.IN_IGNORED != 0 {
		delete(b.told, wd)
	}
}

// fireAllLocked is for what was lost: it may have been anything of anybody's.
func (b *board) fireAllLocked() {
	for wd := range b.told {
		b.fireLocked(wd, ^uint32(0))
	}
}

func (b *board) fireLocked(wd int32, mask uint32) {
	for n, wanted := range b.told[wd] {
		if mask&wanted != 0 {
			n.fire(mask&gone != 0 && wanted&written != 0)
		}
	}
}
