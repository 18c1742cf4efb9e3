package engine

import (
	"context"
	"errors"
	"runtime"
	"sync"
)

// SharedReads lets goroutines that want to read the same page at the same time share a single read. The zero value is
// ready for use, from several goroutines.
type SharedReads[K comparable, P any] struct {
	mu    sync.Mutex
	ahead map[K]*sharedRead[P] // reads that have not begun
}

// sharedRead is a read for one or more goroutines.
type sharedRead[P any] struct {
	readers int           // final once the read has begun
	done    chan struct{} // closed when page and err are set
	page    P
	err     error
}

// errUnread is the error of a read that has panicked.
var errUnread = errors.New("the read did not return")

// Read returns the page of key. It calls read itself, or waits for the call by another goroutine that has asked for the
// same key. That call begins after Read was called, so the page contains all earlier commits. If shared is true, other
// goroutines have the same page, which must not be changed.
//
// An error of another goroutine's read may have to do with its ctx, so Read then calls read itself. If ctx ends while
// Read waits, Read returns its cause.
func (s *SharedReads[K, P]) Read(ctx context.Context, key K, read func(ctx context.Context) (P, error)) (page P, shared bool, err error) {
	r, first := s.join(key)
	if first {
		// A commit has probably woken others, which can join before the read begins.
		runtime.Gosched()
		s.begin(key)
		defer close(r.done)
		r.err = errUnread
		r.page, r.err = read(ctx)
		return r.page, r.readers > 1, r.err
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		return page, false, Cause(ctx)
	}
	if r.err != nil {
		page, err = read(ctx)
		return page, false, err
	}
	return r.page, true, nil
}

// join adds a reader to the read of key that has not begun. If there is none, join makes it, and first is true.
func (s *SharedReads[K, P]) join(key K) (r *sharedRead[P], first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r = s.ahead[key]; r == nil {
		r, first = &sharedRead[P]{done: make(chan struct{})}, true
		if s.ahead == nil {
			s.ahead = make(map[K]*sharedRead[P])
		}
		s.ahead[key] = r
	}
	r.readers++
	return r, first
}

// begin makes later readers of key start a read of their own.
func (s *SharedReads[K, P]) begin(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ahead, key)
}
