package main

import (
	"slices"
	"sync"
	"time"

	"github.com/honker-go/honker"
)

// meter measures the receipts that this process works off.
type meter struct {
	mu      sync.Mutex // guards all fields
	printed int
	retries int

	// By order id: a commit and the start that follows it, whichever was told first.
	// A worker may be at it before Tx has returned to the intake.
	commits map[string]time.Time
	starts  map[string]time.Time
	waits   []time.Duration

	// First attempts only: later ones are spaced by the backoff.
	firsts      int
	begun, last time.Time
}

func newMeter() *meter {
	return &meter{commits: make(map[string]time.Time), starts: make(map[string]time.Time)}
}

// committed says that an order and its job are in the file.
func (m *meter) committed(id string) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, started := m.starts[id]; started {
		m.waits = append(m.waits, 0)
		delete(m.starts, id)
		return
	}
	m.commits[id] = now
}

// started says that the first attempt of an order's job has begun.
func (m *meter) started(id string) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if at, ok := m.commits[id]; ok {
		m.waits = append(m.waits, now.Sub(at))
		delete(m.commits, id)
		return
	}
	m.starts[id] = now
}

// settled is told by honker how each attempt ended.
func (m *meter) settled(s honker.Settled) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	switch s.Outcome {
	case honker.OutcomeAcked:
		m.printed++
	case honker.OutcomeRetried:
		m.retries++
	}
	if s.Attempt == 1 && s.Outcome != honker.OutcomeReleased {
		m.firsts++
		m.last = now
		if m.begun.IsZero() {
			m.begun = now
		}
	}
}

func (m *meter) retried() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.retries
}

// measured is what a meter shows at the end.
type measured struct {
	printed, retries int
	waits            int // how many p50 and p99 stand for
	p50, p99         time.Duration
	perSecond        float64
}

func (m *meter) read() measured {
	m.mu.Lock()
	defer m.mu.Unlock()
	slices.Sort(m.waits)
	out := measured{printed: m.printed, retries: m.retries, waits: len(m.waits)}
	if n := len(m.waits); n > 0 {
		out.p50, out.p99 = m.waits[n/2], m.waits[n*99/100]
	}
	if span := m.last.Sub(m.begun); span > 0 {
		out.perSecond = float64(m.firsts) / span.Seconds()
	}
	return out
}
