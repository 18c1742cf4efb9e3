package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// The load of a queue with a hot partition.
const (
	skewPartitions = 64
	skewOthers     = 200  // messages per second for all other partitions together
	skewHot        = 1800 // messages per second for the hot partition
)

var skewMetrics = []Metric{
	{"p99 of the others", "× alone", false}, {"p99 beside", "ms", false}, {"p99 alone", "ms", false},
	{"p50 beside", "ms", false}, {"p50 alone", "ms", false}, {"hot partition", "messages/s", true},
}

// skewCase measures the latency from a send to the handler for 63 partitions, first alone and then
// while another partition has nine times their load. The handler takes as long as work. With a
// millisecond, the hot partition is overloaded.
func skewCase(work time.Duration) Case {
	name := fmt.Sprintf("%d partitions, one with 90 %% of the load, a handler takes %v", skewPartitions, work)
	return Case{Name: name, Durability: Normal, Shortest: 6 * time.Second, Metrics: skewMetrics, Turn: func(ctx context.Context, t *Turn) ([]float64, error) {
		if t.Name != honkerName {
			return nil, fmt.Errorf("%w: has one loop, not several processors", errNA)
		}
		q, r, _, err := relayFile(ctx, t, skewPartitions)
		if err != nil {
			return nil, err
		}
		defer q.Close()
		l, err := openLedger(ctx, q)
		if err != nil {
			return nil, err
		}
		s := &skewed{Relayer: r, length: t.Length / 2, fewest: t.Fewest, sent: make([][]time.Time, skewPartitions)}
		stop := background(ctx, func(ctx context.Context) error {
			return r.Deliver(ctx, delivery{Kind: byMessage}, func(partition int, seq int64, payload []byte) {
				s.started(partition, seq)
				l.deliver(partition, seq, payload)
				time.Sleep(work)
			})
		})
		values, err := s.measure(ctx)
		if err == nil {
			err = untilDone(ctx, q)
		}
		if err = errors.Join(err, stop()); err != nil {
			return nil, err
		}
		return values, errors.Join(l.verify(ctx, q, s.total()), verifyDrained(ctx, q, delivery{}, 0))
	}}
}

// skewed sends messages to the partitions and records the latencies.
type skewed struct {
	Relayer
	length time.Duration
	fewest int
	hot    atomic.Int64 // messages of the hot partition that have started

	mu   sync.Mutex
	sent [][]time.Time // by partition and message number
	due  int           // number of messages sent to the other partitions
	took latencies     // of the other partitions
}

func (s *skewed) measure(ctx context.Context) ([]float64, error) {
	alone, _, err := s.others(ctx)
	if err != nil {
		return nil, err
	}
	stop := background(ctx, func(ctx context.Context) error {
		return pace(ctx, skewHot, func(int64) error { return s.send(ctx, 0) })
	})
	beside, hot, err := s.others(ctx)
	if err = errors.Join(err, stop()); err != nil {
		return nil, err
	}
	p99, p99Alone := quantile(beside, 0.99), quantile(alone, 0.99)
	return []float64{p99 / p99Alone, p99, p99Alone, quantile(beside, 0.5), quantile(alone, 0.5), hot}, nil
}

// others sends messages to the other partitions in turn for length. It returns their latencies and
// the rate of the hot partition in the meantime.
func (s *skewed) others(ctx context.Context) (took latencies, hot float64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	began := time.Now()
	err = pace(ctx, skewOthers, func(n int64) error {
		if time.Since(began) > s.length && int(n) >= s.fewest {
			cancel()
			return nil
		}
		return s.send(ctx, 1+int(n)%(skewPartitions-1))
	})
	if err != nil {
		return nil, 0, err
	}
	hot = float64(s.hot.Swap(0)) / time.Since(began).Seconds()
	took, err = s.taken()
	return took, hot, err
}

func (s *skewed) send(ctx context.Context, partition int) error {
	s.mu.Lock()
	s.sent[partition] = append(s.sent[partition], time.Now())
	n := len(s.sent[partition])
	if partition > 0 {
		s.due++
	}
	s.mu.Unlock()
	return s.Send(context.WithoutCancel(ctx), partition, int64(n))
}

// total returns the number of messages sent.
func (s *skewed) total() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sent := range s.sent {
		n += len(sent)
	}
	return n
}

func (s *skewed) started(partition int, seq int64) {
	if partition == 0 {
		s.hot.Add(1)
		return
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if int(seq) <= len(s.sent[partition]) { // otherwise the ledger reports it
		s.took.add(now.Sub(s.sent[partition][seq-1]))
	}
}

// taken waits for the messages sent to the other partitions and returns their latencies.
func (s *skewed) taken() (latencies, error) {
	for began := time.Now(); time.Since(began) < tooLate; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		took, due := s.took, s.due
		if len(took) == due {
			s.took, s.due = nil, 0
		}
		s.mu.Unlock()
		if len(took) == due {
			return took, nil
		}
	}
	return nil, fmt.Errorf("messages of the others did not come within %v", tooLate)
}

// untilDone waits until no message is left.
func untilDone(ctx context.Context, q Queue) error {
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		waiting, err := count(ctx, q.SQL(), "_honkerx_relay_messages")
		if err != nil || waiting == 0 {
			return err
		}
		if time.Since(began) > patience {
			return fmt.Errorf("%d messages are left after %v", waiting, patience)
		}
	}
}
