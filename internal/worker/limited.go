package worker

import (
	"sync"

	"github.com/honker-go/honker/internal/row"
)

// Limited holds the queues of a DB that had limits when a worker last waited for them or claimed from them. In a queue
// with limits, the end of a job may allow another job to start.
type Limited struct {
	mu     sync.RWMutex
	queues map[string]bool
}

// Has reports whether any of queues had limits.
func (l *Limited) Has(queues ...string) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if len(l.queues) == 0 {
		return false
	}
	for _, queue := range queues {
		if l.queues[queue] {
			return true
		}
	}
	return false
}

// claimed records that a claim on queues has met limits.
func (l *Limited) claimed(queues []string) {
	if l.Has(queues...) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queues == nil {
		l.queues = make(map[string]bool, len(queues))
	}
	for _, queue := range queues {
		l.queues[queue] = true
	}
}

// saw records the states of queues.
func (l *Limited) saw(states []row.QueueState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range states {
		switch {
		case !s.Limited:
			delete(l.queues, s.Queue)
		case l.queues == nil:
			l.queues = map[string]bool{s.Queue: true}
		default:
			l.queues[s.Queue] = true
		}
	}
}
