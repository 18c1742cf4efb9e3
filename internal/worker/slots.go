package worker

import (
	"context"
	"slices"
	"sync"

	"github.com/honker-go/honker/internal/wake"
)

// Slots limits the total number of running handlers of several loops. A loop reserves a slot before
// it claims. The slot then belongs to the claimed job until its handler returns, and passes to the
// loop that has waited longest. Slots has no goroutine and no DB, so it can outlive the DBs of its
// loops.
type Slots struct {
	mu   sync.Mutex
	free int
	// waiting holds the loops that have work and no slot, in order of arrival. It is empty while a
	// slot is free.
	waiting []*Reservation
}

// NewSlots returns n slots.
func NewSlots(n int) *Slots { return &Slots{free: n} }

// Reservation holds the slots that a loop has reserved and not yet given to jobs, and the loop's
// place among the waiting loops. A nil Reservation belongs to a loop without shared slots and
// grants everything.
type Reservation struct {
	slots    *Slots
	reserved int           // guarded by slots.mu
	granted  chan struct{} // capacity 1; a wait has ended
}

// Reserve returns a new reservation for a loop. It returns nil for nil Slots.
func (s *Slots) Reserve() *Reservation {
	if s == nil {
		return nil
	}
	return &Reservation{slots: s, granted: make(chan struct{}, 1)}
}

// put gives a slot to the loop that has waited longest, and only a single slot, however many the
// loop wants. Its next wait begins behind all other loops, so that no loop starves.
func (s *Slots) put() {
	if len(s.waiting) == 0 {
		s.free++
		return
	}
	next := s.waiting[0]
	s.waiting = slices.Delete(s.waiting, 0, 1)
	next.reserved++
	select {
	case next.granted <- struct{}{}:
	default:
	}
}

// Ask reports whether the loop has a slot. If no slot is free, the loop is queued for the next one,
// see Granted. Asking again keeps its place.
func (r *Reservation) Ask() bool {
	if r == nil {
		return true
	}
	r.slots.mu.Lock()
	defer r.slots.mu.Unlock()
	if r.reserved == 0 && r.slots.free > 0 {
		r.slots.free--
		r.reserved++
	}
	if r.reserved == 0 && !slices.Contains(r.slots.waiting, r) {
		r.slots.waiting = append(r.slots.waiting, r)
	}
	return r.reserved > 0
}

// Granted returns a channel that receives a value when a wait has ended. The value may be stale, so
// call Ask afterwards. The channel of a nil reservation is nil, because it never waits.
func (r *Reservation) Granted() <-chan struct{} {
	if r == nil {
		return nil
	}
	return r.granted
}

// Wait blocks until the loop has a slot or ctx ends.
func (r *Reservation) Wait(ctx context.Context) error {
	for !r.Ask() {
		select {
		case <-r.granted:
		case <-ctx.Done():
			r.Release()
			return wake.Cause(ctx)
		}
	}
	return nil
}

// Fill reserves free slots until the loop has n, and returns how many of n it has. A claim calls it
// when it has the writer, so that at most the slot from Ask is idle during the wait for the writer.
func (r *Reservation) Fill(n int) int {
	if r == nil {
		return n
	}
	r.slots.mu.Lock()
	defer r.slots.mu.Unlock()
	more := max(0, min(n-r.reserved, r.slots.free))
	r.slots.free -= more
	r.reserved += more
	return min(n, r.reserved)
}

// Start passes n reserved slots to jobs.
func (r *Reservation) Start(n int) {
	if r == nil {
		return
	}
	r.slots.mu.Lock()
	defer r.slots.mu.Unlock()
	r.reserved -= n
}

// End returns the slot of a job whose handler has returned.
func (r *Reservation) End() {
	if r == nil {
		return
	}
	r.slots.mu.Lock()
	defer r.slots.mu.Unlock()
	r.slots.put()
}

// Release returns all reserved slots and ends the wait, because the loop has nothing to claim.
func (r *Reservation) Release() {
	if r == nil {
		return
	}
	r.slots.mu.Lock()
	defer r.slots.mu.Unlock()
	if i := slices.Index(r.slots.waiting, r); i >= 0 {
		r.slots.waiting = slices.Delete(r.slots.waiting, i, i+1)
	}
	for ; r.reserved > 0; r.reserved-- {
		r.slots.put()
	}
}
