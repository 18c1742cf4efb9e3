package sqlite

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"
)

// gate admits one writer of this process at a time, so that writers meet in Go
// and not in SQLite's busy handler, which sleeps up to 100 ms and keeps no order.
//
// It is in one of two modes, as sync.Mutex is, and for the same reason. Normally a
// waiter that is woken has to compete with writers that are running already: a
// strict hand-over would leave the writer idle until a goroutine has been scheduled.
// A writer that comes back in a tight loop wins that race almost every time, though.
// So once the first waiter has waited longer than starvationThreshold, the gate is
// handed to it directly, and nothing that arrives later may overtake it.
//
// It differs from sync.Mutex in what a caller may do while it waits: give up, when its
// ctx ends or its time has passed.
type gate struct {
	mu      sync.Mutex
	held    bool
	waiting list.List // of *waiter, in order of arrival
	grants  int       // how often it was entered
	told    int       // the grant that holding was told of

	holding func() // told once of a holder that has had others wait for lateAfter; nil: none
}

// starvationThreshold is how long running callers may overtake a waiter. sync.Mutex
// has the same millisecond; here it is the length of a few small commits.
const starvationThreshold = time.Millisecond

// waiter is a caller in the queue. The list holds it, or a grant is in its channel,
// never both: leave and wakeNext remove it before they send.
type waiter struct {
	since time.Time
	seen  int       // the gate's grants when it was looked at last
	grant chan bool // true: the gate is held for this waiter; false: it is free, compete for it
}

func newWaiter() *waiter {
	// One slot: the sender holds the gate's mutex and must never block on a waiter
	// that is giving up.
	return &waiter{since: time.Now(), grant: make(chan bool, 1)}
}

// enter waits until the gate is the caller's, ctx ends, or limit has passed.
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

// look tells of the holder if it is the one of w's last look.
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

// takeLocked is the grant of a free gate.
func (g *gate) takeLocked() {
	g.held = true
	g.grants++
}

// errGateBusy names the usual cause: a plain verb inside the caller's own transaction,
// which waits for itself.
func errGateBusy(limit time.Duration) error {
	return fmt.Errorf("%w: another transaction of this process has been writing for %v; "+
		"if this goroutine began it, use the Tx form of the call inside it, and look for a transaction that was never ended",
		ErrBusy, limit)
}

// tryEnter is the fast path. It fails for a free gate too while a starving waiter is
// queued, since that one is next.
func (g *gate) tryEnter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held || g.starvingLocked() != nil {
		return false
	}
	g.takeLocked()
	return true
}

// enqueue puts w last. It returns nil when it took the gate instead: the gate may have
// come free since tryEnter, and then there would be no leave to wake w.
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

// compete takes the gate (nil) or puts w back in front, where it came from: an
// overtaken waiter keeps its place and its age, so it starves at most once.
func (g *gate) compete(w *waiter) *list.Element {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.held {
		g.takeLocked()
		return nil
	}
	return g.waiting.PushFront(w)
}

// abandon takes w out of the queue. A grant that was sent in the meantime must not be
// lost with it: the gate would stay held, or free with nothing awake to take it.
func (g *gate) abandon(w *waiter, place *list.Element) {
	g.mu.Lock()
	g.waiting.Remove(place) // no-op when w has been granted the gate already
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

// leave opens the gate, or hands it to a starving waiter. Handed over, it stays held
// all the time, so that no running caller can slip in between.
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

// wakeNext passes on a wake that its receiver did not use. Where the gate is held
// again there is nothing to pass on: its holder wakes the next one when it leaves.
func (g *gate) wakeNext() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.held {
		g.wakeNextLocked()
	}
}

// wakeNextLocked wakes one waiter, since only one can get in.
func (g *gate) wakeNextLocked() {
	if e := g.waiting.Front(); e != nil {
		g.waiting.Remove(e).(*waiter).grant <- false
	}
}

// starvingLocked returns the first waiter if it has waited past the threshold. The
// others are younger: the list is in order of arrival.
func (g *gate) starvingLocked() *list.Element {
	e := g.waiting.Front()
	if e == nil || time.Since(e.Value.(*waiter).since) <= starvationThreshold {
		return nil
	}
	return e
}
