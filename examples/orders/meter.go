package main

import (
	"slices"
	"sync"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/observe"
)

// meter measures the jobs run by this process.
type meter struct {
	mu      sync.Mutex // guards all fields
	printed int
	retries int

	// commits and starts hold the times of commits and first starts by order id, until both are
	// known. Either may come first: a worker can start the job before Tx returns to the intake.
	commits map[string]time.Time
	starts  map[string]time.Time
	waits   []time.Duration

	// Only first attempts are counted, because the backoff delays later attempts.
	firsts      int
	begun, last time.Time
}

func newMeter() *meter {
	return &meter{commits: make(map[string]time.Time), starts: make(map[string]time.Time)}
}

// committed records the commit of an order and its job.
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

// started records the start of the first attempt of an order's job.
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

// settled is called by honker with the outcome of each attempt.
func (m *meter) settled(s observe.Settled) {
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

// measured holds a meter's results.
type measured struct {
	printed, retries int
	waits            int // sample size of p50 and p99
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
