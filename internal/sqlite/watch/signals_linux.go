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

	"github.com/honker-go/honker/internal/wake"
)

// signalFiles let a process tell other processes that use this library that it has committed something for their
// waiters. They are empty files in the directory <database>-wake, one per signal. Opening a file raises its signal:
// inotify reports it only to the processes that watch this file. Raising a signal writes nothing to disk.
//
// Signals are an optimization for busy databases, where WAL events would wake every process on every commit. If a
// file is missing or was deleted, the commit is found when the timer next triggers a check.
type signalFiles struct {
	dir string

	// Used by raise, on any goroutine.
	watched atomic.Uint64    // signals watched by this process
	own     atomic.Uint64    // subset of watched whose next event is caused by this process
	next    [64]atomic.Int64 // earliest time of the next raise, in Unix nanoseconds

	// Used on the watcher's goroutine, except that fire runs on the mux's goroutine.
	fired   chan struct{}
	arrived atomic.Uint64
	files   [64]signalFile
	created bool // a file was created, so close must remove the files
}

// signalFile subscribes to the events of a single file.
type signalFile struct {
	all *signalFiles
	bit uint64
	wd  int32
}

// raiseGap is the minimum time between two raises of a signal. A process woken by the first raise checks again within
// a few milliseconds, so a second raise adds little. absentGap is the same for a signal without a file.
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

// raise wakes the processes that watch a signal in set. A signal that no process watches has no
// file, and raising it costs a failing system call.
func (s *signalFiles) raise(set wake.Signals) {
	now := time.Now().UnixNano()
	for rest := uint64(set); rest != 0; rest &= rest - 1 {
		i := bits.TrailingZeros64(rest)
		next := s.next[i].Load()
		if now < next && next-now <= int64(absentGap) || !s.next[i].CompareAndSwap(next, now+int64(raiseGap)) {
			continue // too soon, unless the clock was set back
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

// C receives a value after a signal was raised.
func (s *signalFiles) C() <-chan struct{} { return s.fired }

// take returns the signals raised since the last call.
func (s *signalFiles) take() wake.Signals { return wake.Signals(s.arrived.Swap(0)) }

// watch adds missing watches for set. It returns true if it added any, because earlier signals caused no event. If a
// file can't be watched, the watcher tries again before the next check.
func (s *signalFiles) watch(events *fileEvents, set wake.Signals) (added bool) {
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
	// Create only a missing file, because opening an existing file would raise its signal.
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

// create creates the file with the permissions of the database, so that users who can commit can
// also raise signals.
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
		return nil // another process has just created it
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
		f.all.watched.And(^f.bit) // the watcher watches a new file before its next check
	case f.all.own.And(^f.bit)&f.bit != 0:
		return // caused by this process, whose waiters were woken directly
	default:
		f.all.arrived.Or(f.bit)
	}
	select {
	case f.all.fired <- struct{}{}:
	default:
	}
}

// unwatch removes all watches, and discards pending signals.
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

// close also removes the files, as SQLite removes its WAL. Another process that is watching a file creates it again.
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
