package honker

import (
	"context"
	"slices"
	"sync"
)

// lines have those of this process who wait for the same thing stand one behind the
// other: first come, first served, and only the first looks at the file.
type lines struct {
	mu      sync.Mutex
	waiting map[string][]chan struct{} // closed: it has its turn
}

// join returns when it is the caller's turn, until leave is called, or when ctx ends.
func (l *lines) join(ctx context.Context, name string) (leave func(), err error) {
	turn := make(chan struct{})
	leave = func() { l.leave(name, turn) }
	l.enqueue(name, turn)
	select {
	case <-turn:
		return leave, nil
	case <-ctx.Done():
		leave()
		return nil, ended(ctx)
	}
}

func (l *lines) enqueue(name string, turn chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting == nil {
		l.waiting = make(map[string][]chan struct{})
	}
	l.waiting[name] = append(l.waiting[name], turn)
	if len(l.waiting[name]) == 1 {
		close(turn)
	}
}

func (l *lines) leave(name string, turn chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.waiting[name], turn)
	rest := slices.Delete(l.waiting[name], i, i+1)
	if len(rest) == 0 {
		delete(l.waiting, name)
		return
	}
	l.waiting[name] = rest
	if i == 0 {
		close(rest[0])
	}
}
