package pgbackend

import (
	"context"
	"sync"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/wake"
)

// Watch implements engine.Backend.
func (b *Backend) Watch(e wake.Events) wake.Watcher {
	w := &poller{backend: b, events: e, wake: make(chan struct{}, 1), end: make(chan struct{})}
	return w
}

type poller struct {
	backend *Backend
	events  wake.Events
	wake    chan struct{}
	end     chan struct{}
	once    sync.Once
	mu      sync.Mutex
	n       int
	running bool
	done    sync.WaitGroup
}

func (w *poller) AddWaiter(wake.Signals) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n++
	if !w.running {
		w.running = true
		w.done.Go(w.loop)
	}
}

func (w *poller) RemoveWaiter(wake.Signals) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n--
}

func (w *poller) loop() {
	for {
		select {
		case <-w.end:
			return
		case <-time.After(20 * time.Millisecond):
		case <-w.wake:
		}
		w.mu.Lock()
		n := w.n
		w.mu.Unlock()
		if n > 0 {
			w.backend.catchUp(context.Background(), w.backend.pool, pgsql.Resolve|pgsql.Number, w.backend.Now())
			w.events.Changed(wake.Commit, wake.AllSignals)
		}
	}
}

func (w *poller) Committed() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *poller) Raise(wake.Signals) { w.Committed() }
func (w *poller) WakeAt(time.Time)   {}
func (w *poller) Close() error {
	w.once.Do(func() { close(w.end) })
	w.done.Wait()
	return nil
}
