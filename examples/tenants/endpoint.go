package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/honker-go/honker"
)

// endpoints simulates the customers' endpoints. They measure the calls to which the limits apply.
type endpoints struct {
	of  map[string]*endpoint
	all *meter // calls to all endpoints
}

func newEndpoints(work time.Duration) endpoints {
	e := endpoints{of: make(map[string]*endpoint), all: new(meter)}
	for _, name := range tenants {
		e.of[name] = &endpoint{work: work, fails: make(map[int]int)}
	}
	return e
}

// handle handles the jobs of all scenarios.
func (e endpoints) handle(ctx context.Context, job *honker.Job[Webhook]) error {
	defer e.all.enter()()
	err := e.of[job.Args.Tenant].post(ctx, job.Args.Number)
	if errors.Is(err, errTooMany) {
		return honker.SlowDown(time.Second, err) // pauses this customer's jobs
	}
	if errors.Is(err, errBroken) {
		return honker.RetryAfter(0, err)
	}
	return err
}

var (
	errTooMany = errors.New("429 too many requests")
	errBroken  = errors.New("500 internal server error")
)

// endpoint simulates a customer's endpoint.
type endpoint struct {
	meter
	work  time.Duration
	fails map[int]int // remaining failures by number; set before the first call

	closedFor time.Duration // counted from the first call; the endpoint answers 429 meanwhile

	delivered []int
	refused   int
	ended     time.Time // time of the last delivery
}

func (e *endpoint) post(ctx context.Context, number int) error {
	defer e.enter()()
	select {
	case <-time.After(e.work):
	case <-ctx.Done():
		return ctx.Err()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case time.Since(e.calls[0]) < e.closedFor:
		e.refused++
		return errTooMany
	case e.fails[number] > 0:
		e.fails[number]--
		return errBroken
	}
	e.delivered, e.ended = append(e.delivered, number), time.Now()
	return nil
}

// done returns the number of delivered webhooks.
func (e *endpoint) done() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.delivered)
}

// meter counts concurrent calls and records when each began.
type meter struct {
	mu    sync.Mutex // also guards the fields of endpoint
	busy  int
	most  int
	calls []time.Time
}

// enter records the beginning of a call. The caller must call leave at its end.
func (m *meter) enter() (leave func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.busy++
	m.most = max(m.most, m.busy)
	m.calls = append(m.calls, time.Now())
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.busy--
	}
}
