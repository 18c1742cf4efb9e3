package testkit

import (
	"sync"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/observe"
)

// Recorder collects the events of an Observer. It is safe for concurrent use.
type Recorder struct {
	mu       sync.Mutex
	Enqueued []observe.Enqueued
	Claimed  []observe.Claimed
	Started  []observe.Started
	Settled  []observe.Settled
	Woke     []observe.Woke
}

// Record appends e to all, which must point to a field of s.
func Record[E any](s *Recorder, all *[]E, e E) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*all = append(*all, e)
}

// Recorded returns a copy of the events in all, which must point to a field of s.
func Recorded[E any](s *Recorder, all *[]E) []E {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]E(nil), *all...)
}

// Outcomes returns the settled claims' outcomes, in order.
func (s *Recorder) Outcomes() (all []honker.Outcome) {
	for _, e := range Recorded(s, &s.Settled) {
		all = append(all, e.Outcome)
	}
	return all
}
