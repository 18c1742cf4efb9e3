package wake

import (
	"context"
	"slices"
	"sync"
)

// FIFO holds a list for each name, in order of arrival. The zero value is empty and ready to use.
// It is safe for concurrent use.
type FIFO[T comparable] struct {
	mu     sync.Mutex
	byName map[string][]T
}

// Push appends v to name's list and reports whether it is the only entry.
func (f *FIFO[T]) Push(name string, v T) (first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byName == nil {
		f.byName = make(map[string][]T)
	}
	f.byName[name] = append(f.byName[name], v)
	return len(f.byName[name]) == 1
}

// Pop removes and returns name's first entry. ok is false if there is none.
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

// Remove removes v from name's list. found is false if v is not in the list. If v was the first
// entry and another follows it, next is the following entry and hasNext is true.
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

// removeLocked moves the following entries down. The lists are short and must stay in order.
func (f *FIFO[T]) removeLocked(name string, i int) {
	f.byName[name] = slices.Delete(f.byName[name], i, i+1)
	if len(f.byName[name]) == 0 {
		delete(f.byName, name) // names come and go, so they must not stay in the map
	}
}

// Empty reports whether name has no entry.
func (f *FIFO[T]) Empty(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.byName[name]) == 0
}

// KeyedMutex provides a mutex for each name, granted in order of arrival. With it, only a single goroutine among
// those that wait for the same name checks the file. The zero value is ready to use.
type KeyedMutex struct {
	waiting FIFO[chan struct{}] // a name's first entry holds the mutex; its channel is closed
}

// Lock locks the mutex called name. It blocks until the mutex is granted or ctx ends. The caller
// must call unlock.
func (m *KeyedMutex) Lock(ctx context.Context, name string) (unlock func(), err error) {
	granted := make(chan struct{})
	// unlock also withdraws a pending wait: it removes the entry, whether or not the mutex was
	// granted.
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
