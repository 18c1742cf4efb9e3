package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/honker-go/honker"
)

// endpoints are where webhooks go: one for each customer. They note what they see, since they are what limits are
// for.
type endpoints struct {
	of  map[string]*endpoint
	all *meter // of all of them together
}

func newEndpoints(work time.Duration) endpoints {
	e := endpoints{of: make(map[string]*endpoint), all: new(meter)}
	for _, name := range tenants {
		e.of[name] = &endpoint{work: work, fails: make(map[int]int)}
	}
	return e
}

// handle is the handler of the service's jobs.
func (e endpoints) handle(ctx context.Context, job *honker.Job[Webhook]) error {
	defer e.all.enter()()
	err := e.of[job.Args.Tenant].post(ctx, job.Args.Number)
	if errors.Is(err, errTooMany) {
		return honker.SlowDown(time.Second, err) // nothing more for this customer
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

// endpoint is that of one customer.
type endpoint struct {
	meter
	work  time.Duration
	fails map[int]int // how often the call of a number fails; not changed while it is called

	closedFor time.Duration // so long from the first call on it answers that there are too many

	delivered []int
	refused   int
	ended     time.Time // the last delivery
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

// done is how many webhooks have arrived.
func (e *endpoint) done() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.delivered)
}

// meter sees how many calls there are at a time, and when each came.
type meter struct {
	mu    sync.Mutex // and of what embeds it
	busy  int
	most  int
	calls []time.Time
}

// enter notes a call; the function that it returns, its end.
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
