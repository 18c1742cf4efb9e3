package worker

import (
	"context"
	"slices"
	"sync"

	"github.com/honker-go/honker/internal/wake"
)

// Slots bounds the handlers of all the loops that share it. A slot is reserved by a loop before it
// claims, belongs to the job that was claimed while its handler runs, and then goes to the loop
// that has waited longest. It has no goroutine and no DB: it outlives those of its loops.
type Slots struct {
	mu   sync.Mutex
	free int
	// waiting are loops that have work and no slot, in order of arrival. There is none while a
	// slot is free.
	waiting []*Reservation
}

// NewSlots returns n slots.
func NewSlots(n int) *Slots { return &Slots{free: n} }

// Reservation is what one loop has of Slots: those that it has reserved and not given to a job,
// and its place among the loops that wait. A nil one is that of a loop that shares no slots: it
// grants everything.
type Reservation struct {
	slots    *Slots
	reserved int           // guarded by slots.mu
	granted  chan struct{} // one slot: a wait has ended
}

// Reserve returns the reservation of a loop; nil where there are no Slots to share.
func (s *Slots) Reserve() *Reservation {
	if s == nil {
		return nil
	}
	return &Reservation{slots: s, granted: make(chan struct{}, 1)}
}

// put gives a slot to the loop that has waited longest. That gets one and no more, however many it
// wants: its next wait begins behind those of all others, so none of them starves.
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

// Ask reports whether the loop has a slot. If there is none free it waits for one from now on, see
// Granted, and keeps its place when it asks again.
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

// Granted has a value when a wait has ended. It may be an old one: Ask says what holds. It is nil
// for a nil reservation, which never waits.
func (r *Reservation) Granted() <-chan struct{} {
	if r == nil {
		return nil
	}
	return r.granted
}

// Wait waits for a slot until ctx ends.
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

// Fill reserves more of the slots that are free, up to n with those that it has, and returns how
// many of n it has then. A claim calls it when it has the writer: while it waits for that, at
// most the one slot of Ask lies idle.
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

// Start gives n reserved slots to jobs.
func (r *Reservation) Start(n int) {
	if r == nil {
		return
	}
	r.slots.mu.Lock()
	defer r.slots.mu.Unlock()
	r.reserved -= n
}

// End returns the slot of a job.
func (r *Reservation) End() {
	if r == nil {
		return
	}
	r.slots.mu.Lock()
	defer r.slots.mu.Unlock()
	r.slots.put()
}

// Release returns what is reserved and ends a wait: the loop has nothing to claim.
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
