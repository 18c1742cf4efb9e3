package testkit

import (
	"sync"

	"github.com/honker-go/honker"
)

// Recorder collects what an observer was told.
type Recorder struct {
	mu       sync.Mutex
	Enqueued []honker.Enqueued
	Claimed  []honker.Claimed
	Started  []honker.Started
	Settled  []honker.Settled
	Woke     []honker.Woke
}

// Record adds e to all, which is a slice of s.
func Record[E any](s *Recorder, all *[]E, e E) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*all = append(*all, e)
}

// Recorded returns the events so far.
func Recorded[E any](s *Recorder, all *[]E) []E {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]E(nil), *all...)
}

// Outcomes is how the claims ended, so far and in that order.
func (s *Recorder) Outcomes() (all []honker.Outcome) {
	for _, e := range Recorded(s, &s.Settled) {
		all = append(all, e.Outcome)
	}
	return all
}
