package watch

import (
	"errors"
	"math/bits"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// signalFiles are how a process of this library tells another one that it has committed
// something for a waiter there. They are empty files in the directory <database>-wake, one
// per signal, and to open one is to raise its signal: inotify reports the opening to the
// processes that watch this file and wakes no other. Opening writes nothing to the disk.
//
// They are a hint for busy files, in which events of the log would wake every process at
// every commit. Where one is missing or was deleted, the next look by timer finds the commit.
type signalFiles struct {
	dir string

	// For raise, which any goroutine calls.
	watched atomic.Uint64    // the signals that this process watches itself
	own     atomic.Uint64    // of these, the ones of which the next event is our own
	next    [64]atomic.Int64 // when each may be raised again, unix nanoseconds

	// For the watcher's goroutine, except for fire, which the mux's calls.
	fired   chan struct{}
	arrived atomic.Uint64
	files   [64]signalFile
	created bool // a watch was set once: close removes the files
}

// signalFile subscribes to the events of one of the files.
type signalFile struct {
	all *signalFiles
	bit uint64
	wd  int32
}

// raiseGap is the shortest time between two raises of a signal. A process that was woken by
// the first looks again within a few milliseconds, so the second adds little. absentGap is the
// same where there was no file.
const (
	raiseGap  = 250 * time.Microsecond
	absentGap = time.Millisecond
)

func newSignalFiles(database string) *signalFiles {
	s := &signalFiles{dir: filepath.Clean(database) + "-wake", fired: make(chan struct{}, 1)}
	for i := range s.files {
		s.files[i] = signalFile{all: s, bit: 1 << i}
	}
	return s
}

func (s *signalFiles) path(i int) string { return s.dir + "/" + strconv.Itoa(i) }

// raise wakes the processes that watch one of set. Where none does there is no file, which
// costs one failing system call.
func (s *signalFiles) raise(set Signals) {
	now := time.Now().UnixNano()
	for rest := uint64(set); rest != 0; rest &= rest - 1 {
		i := bits.TrailingZeros64(rest)
		next := s.next[i].Load()
		if now < next && next-now <= int64(absentGap) || !s.next[i].CompareAndSwap(next, now+int64(raiseGap)) {
			continue // by the time of day, which may have been set back
		}
		if bit := uint64(1) << i; s.watched.Load()&bit != 0 {
			s.own.Or(bit)
		}
		if fd, err := unix.Open(s.path(i), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err == nil {
			_ = unix.Close(fd)
		} else {
			s.next[i].Store(now + int64(absentGap))
		}
	}
}

// C has a value when a signal was raised since the last receive.
func (s *signalFiles) C() <-chan struct{} { return s.fired }

// take returns the signals that were raised since it was called last.
func (s *signalFiles) take() Signals { return Signals(s.arrived.Swap(0)) }

// watch adds what is missing of set, and returns true if it did: what was raised before
// made no event. A file that cannot be watched is tried again before the next look.
func (s *signalFiles) watch(events *fileEvents, set Signals) (added bool) {
	if events.mux == nil {
		return false
	}
	for rest := uint64(set) &^ s.watched.Load(); rest != 0; rest &= rest - 1 {
		f := &s.files[bits.TrailingZeros64(rest)]
		if s.subscribe(events.mux, f) == nil {
			s.watched.Or(f.bit)
			added = true
		}
	}
	return added
}

func (s *signalFiles) subscribe(mux *inotifyMux, f *signalFile) (err error) {
	path := s.path(bits.TrailingZeros64(f.bit))
	// Only a missing file is created: opening one that is there would raise its signal.
	if f.wd, err = mux.subscribe(f, path, unix.IN_OPEN); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := s.create(path); err != nil {
		return err
	}
	s.created = true
	f.wd, err = mux.subscribe(f, path, unix.IN_OPEN)
	return err
}

// create makes the file with the permissions of the database: the same users raise signals
// as write commits.
func (s *signalFiles) create(path string) error {
	mode := os.FileMode(0o600)
	if info, err := os.Stat(s.dir[:len(s.dir)-len("-wake")]); err == nil {
		mode = info.Mode().Perm()
	}
	if err := os.Mkdir(s.dir, mode|mode>>2&0o111); err != nil && !os.IsExist(err) {
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, mode)
	if os.IsExist(err) {
		return nil // by another process, a moment ago
	}
	if err != nil {
		return err
	}
	return file.Close()
}

// fire implements subscriber.
func (f *signalFile) fire(gone bool) {
	switch {
	case gone:
		f.all.watched.And(^f.bit) // the watcher watches a new file before its next look
	case f.all.own.And(^f.bit)&f.bit != 0:
		return // the waiters of this process were woken by the verb itself
	default:
		f.all.arrived.Or(f.bit)
	}
	select {
	case f.all.fired <- struct{}{}:
	default:
	}
}

// unwatch ends all watches, and drops what was raised and not taken.
func (s *signalFiles) unwatch(events *fileEvents) {
	for rest := s.watched.Swap(0); rest != 0; rest &= rest - 1 {
		f := &s.files[bits.TrailingZeros64(rest)]
		events.mux.unsubscribe(f, f.wd)
	}
	s.own.Store(0)
	s.arrived.Store(0)
	select {
	case <-s.fired:
	default:
	}
}

// close also removes the files, as SQLite removes its log. Another process that watches one
// of them creates it again.
func (s *signalFiles) close(events *fileEvents) {
	s.unwatch(events)
	if !s.created {
		return
	}
	for i := range s.files {
		_ = os.Remove(s.path(i))
	}
	_ = os.Remove(s.dir)
}
