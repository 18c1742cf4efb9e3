package wake

import (
	"context"
	"slices"
	"sync"
)

// FIFO holds lists by name, each in order of arrival. The zero value is empty and ready for
// use. It is safe for concurrent use.
type FIFO[T comparable] struct {
	mu     sync.Mutex
	byName map[string][]T
}

// Push adds v as the last of name and reports whether it is the only one.
func (f *FIFO[T]) Push(name string, v T) (first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byName == nil {
		f.byName = make(map[string][]T)
	}
	f.byName[name] = append(f.byName[name], v)
	return len(f.byName[name]) == 1
}

// Pop removes the first of name and returns it.
func (f *FIFO[T]) Pop(name string) (v T, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.byName[name]) == 0 {
		return v, false
	}
	v = f.byName[name][0]
	f.removeLocked(name, 0)
	return v, true
}

// Remove removes v. found is false when it is no longer in the list; next is the first of the
// list when v was that before.
func (f *FIFO[T]) Remove(name string, v T) (found bool, next T, hasNext bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.Index(f.byName[name], v)
	if i < 0 {
		return false, next, false
	}
	f.removeLocked(name, i)
	if rest := f.byName[name]; i == 0 && len(rest) > 0 {
		return true, rest[0], true
	}
	return true, next, false
}

// removeLocked copies what follows down: lists are short, and their order is the point.
func (f *FIFO[T]) removeLocked(name string, i int) {
	f.byName[name] = slices.Delete(f.byName[name], i, i+1)
	if len(f.byName[name]) == 0 {
		delete(f.byName, name) // names come and go: the map must not keep them
	}
}

// Empty reports whether name has no entry.
func (f *FIFO[T]) Empty(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.byName[name]) == 0
}

// KeyedMutex is a mutex per name that is granted in order of arrival. It makes one goroutine
// of this process look at the file for all that wait for the same thing. The zero value is
// ready for use.
type KeyedMutex struct {
	waiting FIFO[chan struct{}] // the first of a name holds it; its channel is closed
}

// Lock waits for the mutex called name until ctx ends, and returns its unlock.
func (m *KeyedMutex) Lock(ctx context.Context, name string) (unlock func(), err error) {
	granted := make(chan struct{})
	// unlock also takes back a wait that has not ended: the entry is the claim, granted or not.
	unlock = func() {
		if _, next, ok := m.waiting.Remove(name, granted); ok {
			close(next)
		}
	}
	if m.waiting.Push(name, granted) {
		close(granted)
	}
	select {
	case <-granted:
		return unlock, nil
	case <-ctx.Done():
		unlock()
		return nil, Cause(ctx)
	}
}
