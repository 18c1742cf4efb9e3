package watch

import (
	"cmp"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/honker-go/honker/internal/sqlite"
)

// inotifyMux is an inotify instance shared by all watchers in the process. By default, Linux allows 128 instances per
// user, and a process may have a thousand files open.
type inotifyMux struct {
	in    inotify
	ended chan struct{} // closed when forward has returned
	users int           // guarded by sharedMu

	mu      sync.Mutex
	readErr error // set once events can no longer be read
	// subscribers maps watch descriptors to the subscribers and their event masks. Linux returns
	// the same descriptor for all watches of a file, so two watchers of a file share it.
	subscribers map[int32]map[subscriber]uint32
}

// subscriber receives the events of a watch, on the mux's goroutine. Its method must not block.
type subscriber interface {
	fire(gone bool) // gone: the path no longer leads to the watched file
}

// shared is this process's instance. It exists only while at least one watcher uses it, so that a process without
// open databases keeps neither a descriptor nor a goroutine.
var (
	sharedMu sync.Mutex
	shared   *inotifyMux
)

// acquireMux returns the shared instance, and creates it if needed. Each call must be paired with a
// call to release.
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

// release closes the instance after its last user has released it, and waits for its goroutine to end.
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
	// gone contains the events after which the path no longer leads to the watched file.
	gone = moved | unix.IN_IGNORED | unix.IN_UNMOUNT
)

// subscribe makes the mux call e.fire for events in mask at path, and when that file is gone. It returns the watch
// descriptor to pass to unsubscribe.
func (m *inotifyMux) subscribe(e subscriber, path string, mask uint32) (int32, error) {
	// Hold the lock during the system call: an event may arrive before it returns, and dispatch
	// must find the subscriber.
	m.mu.Lock()
	defer m.mu.Unlock()
	wd, err := m.in.watch(path, mask|moved)
	// If nothing read a watch's events, the file would look quiet.
	if err = cmp.Or(m.readErr, err); err != nil {
		return 0, err
	}
	all := m.subscribers[wd]
	if all == nil {
		all = make(map[subscriber]uint32, 1)
		m.subscribers[wd] = all
	}
	// The kernel's mask is the union of all subscribers' masks, so each subscriber keeps its own.
	all[e] |= mask | gone
	return wd, nil
}

// unsubscribe ends a subscription. If there are no further subscriptions, it also removes the
// watch.
func (m *inotifyMux) unsubscribe(e subscriber, wd int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.subscribers[wd]
	if all == nil {
		return // the kernel has already removed the watch with the file
	}
	delete(all, e)
	if len(all) == 0 {
		delete(m.subscribers, wd)
		m.in.forget(wd)
	}
}

// mergeFor is how long the reader lets events accumulate. A commit consists of several writes, each
// of which would wake a blocked reader and slow down the writer. The kernel merges equal unread
// events.
const mergeFor = 500 * time.Microsecond

// forward dispatches events until release closes the instance.
func (m *inotifyMux) forward() {
	defer close(m.ended)
	buf := make([]byte, 4096)
	err := m.in.read(buf, m.dispatch)
	for ; err == nil; err = m.in.read(buf, m.dispatch) {
		sqlite.Pause(mergeFor) // a timer's resolution would be a millisecond
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	// After close there are no subscribers left. After any other error, all subscribers must poll.
	m.readErr = err
	m.fireAllLocked()
}

// dispatch passes an event to its subscribers.
func (m *inotifyMux) dispatch(wd int32, mask uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if mask&unix.IN_Q_OVERFLOW != 0 {
		m.fireAllLocked()
		return
	}
	m.fireLocked(wd, mask)
	// This is a watch's last event. The kernel does not reuse the descriptor.
	if mask&unix.IN_IGNORED != 0 {
		delete(m.subscribers, wd)
	}
}

// fireAllLocked is called after events were lost, which may have been for any file.
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
