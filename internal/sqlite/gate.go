package sqlite

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/honker-go/honker/internal/engine"
)

// gate admits one of this process's writers at a time. Writers thus queue in Go rather than in
// SQLite's busy handler, which sleeps for up to 100 ms and is not fair.
//
// Like sync.Mutex, and for the same reason, it has two modes. Normally, a waiter that has been woken competes with
// goroutines that are already running. If the gate were handed to the waiter instead, it would be unused until the
// waiter's goroutine is scheduled. However, a writer in a tight loop would win that race almost every time. So once
// the first waiter has waited longer than starvationThreshold, the gate is handed to it directly, and no later caller
// may overtake it.
//
// Unlike with sync.Mutex, a waiter may give up when its ctx ends or its time limit has passed.
type gate struct {
	mu      sync.Mutex
	held    bool
	waiting list.List // of *waiter, in order of arrival
	grants  int       // number of entries
	told    int       // value of grants when holding was last called

	holding func() // called once for each holder that makes others wait for lateAfter; may be nil
}

// starvationThreshold is how long running callers may overtake a waiter. It is a millisecond, as in sync.Mutex, which
// is about as long as a few small commits take.
const starvationThreshold = time.Millisecond

// waiter is a caller in the queue. It is either in the list or has a grant in its channel, never
// both: leave and wakeNext remove a waiter before sending to it.
type waiter struct {
	since time.Time
	seen  int       // value of grants when last checked
	grant chan bool // true: the waiter holds the gate; false: the gate is free, and the waiter must compete for it
}

func newWaiter() *waiter {
	// The buffer of 1 is needed because the sender holds the gate's mutex, and must not block on a
	// waiter that is giving up.
	return &waiter{since: time.Now(), grant: make(chan bool, 1)}
}

// enter waits for the gate. It returns an error if ctx ends or limit elapses first.
func (g *gate) enter(ctx context.Context, limit time.Duration) error {
	if g.tryEnter() {
		return nil
	}
	w := newWaiter()
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	late := time.NewTimer(lateAfter)
	defer late.Stop()
	place := g.enqueue(w)
	for place != nil {
		select {
		case held := <-w.grant:
			if held {
				return nil
			}
			place = g.compete(w)
		case <-ctx.Done():
			g.abandon(w, place)
			return ctx.Err()
		case <-timeout.C:
			g.abandon(w, place)
			return errGateBusy(limit)
		case <-late.C:
			g.look(w)
			late.Reset(lateAfter)
		}
	}
	return nil
}

// look reports the holder if it hasn't changed since w last checked.
func (g *gate) look(w *waiter) {
	g.mu.Lock()
	same := g.held && g.grants == w.seen
	w.seen = g.grants
	first := same && g.told != g.grants
	if first {
		g.told = g.grants
	}
	g.mu.Unlock()
	if first && g.holding != nil {
		g.holding()
	}
}

// takeLocked grants the free gate to the caller.
func (g *gate) takeLocked() {
	g.held = true
	g.grants++
}

// errGateBusy mentions the usual cause: a call to a method without a Tx suffix inside the caller's
// own transaction, which then waits for itself.
func errGateBusy(limit time.Duration) error {
	return fmt.Errorf("%w: another transaction of this process has been writing for %v; "+
		"if this goroutine began it, use the Tx form of the call inside it, and look for a transaction that was never ended",
		engine.ErrBusy, limit)
}

// tryEnter is the fast path. While a starving waiter is queued, tryEnter fails even if the gate is
// free, since that waiter is next.
func (g *gate) tryEnter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held || g.starvingLocked() != nil {
		return false
	}
	g.takeLocked()
	return true
}

// enqueue appends w to the queue. It returns nil if it took the gate instead: the gate may have
// become free since tryEnter, in which case no call to leave would wake w.
func (g *gate) enqueue(w *waiter) *list.Element {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.held && g.waiting.Len() == 0 {
		g.takeLocked()
		return nil
	}
	w.seen = g.grants
	return g.waiting.PushBack(w)
}

// compete takes the gate and returns nil, or puts w back at the front. A waiter that was overtaken keeps its place
// and its age, so it starves at most once.
func (g *gate) compete(w *waiter) *list.Element {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.held {
		g.takeLocked()
		return nil
	}
	return g.waiting.PushFront(w)
}

// abandon removes w from the queue. If w has already been granted the gate, the grant must be passed on. Otherwise
// the gate would stay held, or free with all waiters asleep.
func (g *gate) abandon(w *waiter, place *list.Element) {
	g.mu.Lock()
	g.waiting.Remove(place) // no-op if w has been granted the gate
	g.mu.Unlock()
	select {
	case held := <-w.grant:
		if held {
			g.leave()
		} else {
			g.wakeNext()
		}
	default:
	}
}

// leave frees the gate, or hands it to a starving waiter. A gate that is handed over stays held, so that no running
// caller can slip in.
func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e := g.starvingLocked(); e != nil {
		g.grants++
		g.waiting.Remove(e).(*waiter).grant <- true
		return
	}
	g.held = false
	g.wakeNextLocked()
}

// wakeNext passes on a wake-up that its receiver did not use. If the gate is held again, its holder
// will wake the next waiter.
func (g *gate) wakeNext() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.held {
		g.wakeNextLocked()
	}
}

// wakeNextLocked wakes a single waiter, since only one can enter.
func (g *gate) wakeNextLocked() {
	if e := g.waiting.Front(); e != nil {
		g.waiting.Remove(e).(*waiter).grant <- false
	}
}

// starvingLocked returns the first waiter if it has waited longer than the threshold. The list is
// in order of arrival, so all others have waited less.
func (g *gate) starvingLocked() *list.Element {
	e := g.waiting.Front()
	if e == nil || time.Since(e.Value.(*waiter).since) <= starvationThreshold {
		return nil
	}
	return e
}
