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
// A running caller may barge in while others wait: a strict hand-over would leave
// the writer idle until a goroutine has woken up. But whoever has waited longer
// than patience is served first, in order; sync.Mutex is the model.
type gate struct {
	mu      sync.Mutex
	held    bool
	waiting list.List // of *waiter, in order of arrival
}

const patience = time.Millisecond

type waiter struct {
	since time.Time
	turn  chan bool // true: the gate is yours; false: it is free, try for it
}

// enter waits until the gate is the caller's, ctx ends, or limit has passed.
func (g *gate) enter(ctx context.Context, limit time.Duration) error {
	if g.tryEnter() {
		return nil
	}
	w := &waiter{since: time.Now(), turn: make(chan bool, 1)}
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	place := g.queue(w)
	for place != nil {
		select {
		case mine := <-w.turn:
			if mine {
				return nil
			}
			place = g.compete(w)
		case <-ctx.Done():
			g.giveUp(w, place)
			return ctx.Err()
		case <-timeout.C:
			g.giveUp(w, place)
			return errGateBusy(limit)
		}
	}
	return nil
}

func errGateBusy(limit time.Duration) error {
	return fmt.Errorf("%w: another transaction of this process has been writing for %v; "+
		"if this goroutine began it, use the Tx form of the call inside it, and look for a transaction that was never ended",
		ErrBusy, limit)
}

func (g *gate) tryEnter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held || g.overdueLocked() != nil {
		return false
	}
	g.held = true
	return true
}

// queue puts w last, or takes the gate if it came free meanwhile (nil).
func (g *gate) queue(w *waiter) *list.Element {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.held && g.waiting.Len() == 0 {
		g.held = true
		return nil
	}
	return g.waiting.PushBack(w)
}

// compete takes the gate (nil) or puts w back in front, where it came from.
func (g *gate) compete(w *waiter) *list.Element {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.held {
		g.held = true
		return nil
	}
	return g.waiting.PushFront(w)
}

func (g *gate) giveUp(w *waiter, place *list.Element) {
	g.mu.Lock()
	g.waiting.Remove(place) // no-op when leave has already called w up
	g.mu.Unlock()
	select {
	case mine := <-w.turn: // called up while giving up: pass the turn on
		if mine {
			g.leave()
		} else {
			g.wakeNext()
		}
	default:
	}
}

// leave opens the gate, or hands it to somebody who has waited too long.
func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e := g.overdueLocked(); e != nil {
		g.waiting.Remove(e).(*waiter).turn <- true
		return
	}
	g.held = false
	g.wakeNextLocked()
}

func (g *gate) wakeNext() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.held {
		g.wakeNextLocked()
	}
}

func (g *gate) wakeNextLocked() {
	if e := g.waiting.Front(); e != nil {
		g.waiting.Remove(e).(*waiter).turn <- false
	}
}

// overdueLocked returns the first waiter if it has waited longer than patience.
func (g *gate) overdueLocked() *list.Element {
	if e := g.waiting.Front(); e != nil && time.Since(e.Value.(*waiter).since) > patience {
		return e
	}
	return nil
}
