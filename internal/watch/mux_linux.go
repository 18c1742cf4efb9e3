package watch

import (
	"cmp"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/honker-go/honker/internal/sqlite"
)

// inotifyMux is one inotify instance for all watchers of the process. Linux gives a user
// 128 instances by default, and a process may have a thousand files open.
type inotifyMux struct {
	in    inotify
	ended chan struct{} // closed when forward has returned
	users int           // guarded by sharedMu

	mu      sync.Mutex
	readErr error // events cannot be read any more
	// subscribers has the event mask of each subscriber, by watch descriptor. Linux gives
	// all watches of one file the same descriptor, so two watchers of a file share it.
	subscribers map[int32]map[subscriber]uint32
}

// subscriber is told of the events of a watch, in the mux's goroutine. It must not block.
type subscriber interface {
	fire(gone bool) // gone: the path does not lead to the watched file any more
}

// The instance of this process, which exists while at least one watcher uses it. A
// process that closes all its files keeps neither a descriptor nor a goroutine.
var (
	sharedMu sync.Mutex
	shared   *inotifyMux
)

// acquireMux returns the shared instance and creates it for its first user. Each call
// needs a release.
func acquireMux() (*inotifyMux, error) {
	sharedMu.Lock()
	defer sharedMu.Unlock()
	if shared == nil {
		in, err := newInotify()
		if err != nil {
			return nil, err
		}
		shared = &inotifyMux{in: in, ended: make(chan struct{}), subscribers: make(map[int32]map[subscriber]uint32)}
		go shared.forward()
	}
	shared.users++
	return shared, nil
}

// release closes the instance after its last user, and returns when its goroutine has
// ended.
func (m *inotifyMux) release() {
	sharedMu.Lock()
	defer sharedMu.Unlock()
	if m.users--; m.users > 0 {
		return
	}
	shared = nil
	m.in.close()
	<-m.ended
}

const (
	moved = unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
	// gone are the events after which the path does not lead to the watched file any more.
	gone = moved | unix.IN_IGNORED | unix.IN_UNMOUNT
)

// subscribe fires e at the events of mask at path, and when the file there is gone. It
// returns the watch descriptor for unsubscribe.
func (m *inotifyMux) subscribe(e subscriber, path string, mask uint32) (int32, error) {
	// The lock is held over the system call: an event may arrive before it returns, and
	// dispatch must find the subscriber.
	m.mu.Lock()
	defer m.mu.Unlock()
	wd, err := m.in.watch(path, mask|moved)
	// A watch that is never read from would look as if the file were quiet.
	if err = cmp.Or(m.readErr, err); err != nil {
		return 0, err
	}
	all := m.subscribers[wd]
	if all == nil {
		all = make(map[subscriber]uint32, 1)
		m.subscribers[wd] = all
	}
	// The kernel's mask is the union of all subscribers', so each keeps its own.
	all[e] |= mask | gone
	return wd, nil
}

// unsubscribe ends a subscription, and the watch with its last one.
func (m *inotifyMux) unsubscribe(e subscriber, wd int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.subscribers[wd]
	if all == nil {
		return // the kernel has ended the watch with the file
	}
	delete(all, e)
	if len(all) == 0 {
		delete(m.subscribers, wd)
		m.in.forget(wd)
	}
}

// mergeFor is how long the reader lets events pile up. A commit is several writes, and
// each of them would wake a blocked reader, on the writer's time. The kernel merges equal
// events that were not read yet.
const mergeFor = 500 * time.Microsecond

// forward dispatches what the kernel reports until release closes the instance.
func (m *inotifyMux) forward() {
	defer close(m.ended)
	buf := make([]byte, 4096)
	err := m.in.read(buf, m.dispatch)
	for ; err == nil; err = m.in.read(buf, m.dispatch) {
		sqlite.Pause(mergeFor) // a timer of the runtime counts in milliseconds here
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	// After close there is no subscriber left. After any other error all of them poll.
	m.readErr = err
	m.fireAllLocked()
}

// dispatch fires the subscribers of one event.
func (m *inotifyMux) dispatch(wd int32, mask uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if mask&unix.IN_Q_OVERFLOW != 0 {
		m.fireAllLocked()
		return
	}
	m.fireLocked(wd, mask)
	// The last event of a watch. The kernel does not use its descriptor again.
	if mask&unix.IN_IGNORED != 0 {
		delete(m.subscribers, wd)
	}
}

// fireAllLocked is for lost events: each may have been any event of any file.
func (m *inotifyMux) fireAllLocked() {
	for wd := range m.subscribers {
		m.fireLocked(wd, ^uint32(0))
	}
}

func (m *inotifyMux) fireLocked(wd int32, mask uint32) {
	for e, wanted := range m.subscribers[wd] {
		if mask&wanted != 0 {
			e.fire(mask&gone != 0)
		}
	}
}
