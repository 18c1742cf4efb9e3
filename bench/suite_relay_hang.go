package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"time"

	"github.com/honker-go/honker/relay"
)

// The load of the healthy endpoints. It lasts long enough for the first attempts at the hanging
// endpoints, their timeouts and later attempts.
const (
	hangPartitions = 16
	hangRate       = 100 // messages per second
	hangFor        = 25 * time.Second
)

// hangCase measures the latency from a send to a healthy endpoint while other endpoints accept
// requests and never answer. The hanging endpoints have partitions of the same queue, or all
// partitions of another queue. Relay and HTTP use their default options.
func hangCase(hanging int, apart bool) Case {
	name := fmt.Sprintf("%d partitions, %d of them with an endpoint that hangs", hangPartitions, hanging)
	if apart {
		name = fmt.Sprintf("a queue beside another with %d endpoints that hang", hanging)
	}
	return Case{Name: name, Durability: Normal, Shortest: hangFor, Metrics: latencyMetrics, Turn: func(ctx context.Context, t *Turn) ([]float64, error) {
		if t.Name != honkerName {
			return nil, fmt.Errorf("%w: has one loop, not several processors", errNA)
		}
		q, _, _, err := relayFile(ctx, t, hangPartitions)
		if err != nil {
			return nil, err
		}
		defer q.Close()
		h := newHangs(relay.New(q.(*honkerQueue).db, nil), hanging, apart)
		defer h.close()
		return h.measure(ctx, t.Length)
	}}
}

// hangs has healthy and hanging endpoints, and the queues of webhooks to them.
type hangs struct {
	relay    *relay.Relay
	bad      *relay.Queue
	good     *relay.Queue
	hanging  int
	apart    bool
	silent   *httptest.Server
	released chan struct{} // closed to make silent answer
	healthy  *httptest.Server

	mu   sync.Mutex
	sent []time.Time // by payload
	took latencies
}

func newHangs(r *relay.Relay, hanging int, apart bool) *hangs {
	h := &hangs{relay: r, hanging: hanging, apart: apart, released: make(chan struct{})}
	h.silent = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-h.released:
		case <-r.Context().Done():
		}
	}))
	h.healthy = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if err := h.arrived(string(body)); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	}))
	toSilent, toHealthy := relay.HTTP(nil, h.silent.URL, nil), relay.HTTP(nil, h.healthy.URL, nil)
	if apart {
		h.bad, h.good = r.Queue("bad", hangPartitions), r.Queue("good", 1)
		h.bad.Handle(toSilent)
		h.good.Handle(toHealthy)
		return h
	}
	h.good = r.Queue("hooks", hangPartitions)
	h.bad = h.good
	h.good.Handle(func(ctx context.Context, m *relay.Message) error {
		if m.Partition < hanging {
			return toSilent(ctx, m)
		}
		return toHealthy(ctx, m)
	})
	return h
}

func (h *hangs) close() {
	h.silent.Close()
	h.healthy.Close()
}

// arrived records the arrival of message n at a healthy endpoint.
func (h *hangs) arrived(n string) error {
	now := time.Now()
	i, err := strconv.Atoi(n)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil || i >= len(h.sent) {
		return fmt.Errorf("no message %s was sent", n)
	}
	h.took.add(now.Sub(h.sent[i]))
	return nil
}

func (h *hangs) measure(ctx context.Context, length time.Duration) ([]float64, error) {
	stop := background(ctx, h.relay.Run)
	err := h.send(ctx, length)
	if err == nil {
		err = h.untilArrived()
	}
	close(h.released) // otherwise the drain would wait for the hanging requests
	if err = errors.Join(err, stop()); err != nil {
		return nil, err
	}
	return h.took.values(), nil
}

// send sends some messages to the hanging endpoints and then messages to the healthy endpoints.
func (h *hangs) send(ctx context.Context, length time.Duration) error {
	for p := range h.hanging {
		for range 3 {
			if _, err := h.bad.Send(ctx, relay.Outgoing{Partition: p}); err != nil {
				return err
			}
		}
	}
	sending, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	return pace(sending, hangRate, func(n int64) error { return h.sendOne(ctx, n) })
}

// sendOne sends message n to a healthy endpoint.
func (h *hangs) sendOne(ctx context.Context, n int64) error {
	h.mu.Lock()
	h.sent = append(h.sent, time.Now())
	h.mu.Unlock()
	partition := 0
	if !h.apart {
		partition = h.hanging + int(n)%(hangPartitions-h.hanging)
	}
	_, err := h.good.Send(ctx, relay.Outgoing{Partition: partition, Payload: strconv.AppendInt(nil, n, 10)})
	return err
}

// untilArrived waits until every message to a healthy endpoint has arrived. It fails on duplicates.
func (h *hangs) untilArrived() error {
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		h.mu.Lock()
		sent, arrived := len(h.sent), len(h.took)
		h.mu.Unlock()
		switch {
		case arrived == sent:
			return nil
		case arrived > sent:
			return fmt.Errorf("%d messages arrived of %d", arrived, sent)
		case time.Since(began) > patience:
			return fmt.Errorf("%d messages of %d did not arrive within %v", sent-arrived, sent, patience)
		}
	}
}
