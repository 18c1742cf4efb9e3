package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	history     = 1_000_000 // events to replay
	ackedEvents = 20_000
	groupEvents = 20_000
	members     = 4
)

// streamSuite measures how fast events are published and consumed. River, backlite and goqite have
// no streams.
func streamSuite() Suite {
	return Suite{Name: "stream", Cases: streamCases(Normal, "a million", history)}
}

// streamCases returns the cases of a stream with n events to replay, which the case calls called.
func streamCases(d Durability, called string, n int) []Case {
	inTurn := func(name string, turn func(ctx context.Context, t *Turn) ([]float64, error)) Case {
		return Case{Name: name, Durability: d, Metrics: rate("events/s"), Turn: turn}
	}
	cases := []Case{
		publishCase("publish, 1 per commit", d, 1),
		publishCase("publish, 1,000 per commit", d, 1000),
		inTurn(fmt.Sprintf("replay of %s, offset saved", called), func(ctx context.Context, t *Turn) ([]float64, error) { return replay(ctx, t, n) }),
		inTurn("a consumer that acks each event", ackEach),
		inTurn(fmt.Sprintf("group of %d members, each event acked", members), shareOut),
	}
	for _, n := range []int{1, 10, 100} {
		cases = append(cases, liveCase(d, n))
	}
	return cases
}

const noStream = "has no streams"

func publishCase(name string, d Durability, size int) Case {
	return Case{Name: name, Durability: d, Metrics: rate("events/s"), Turn: func(ctx context.Context, t *Turn) ([]float64, error) {
		q, s, err := freshStream(ctx, t)
		if err != nil {
			return nil, err
		}
		defer q.Close()
		calls, err := repeat(ctx, 1, t.Length, func(ctx context.Context) error {
			if size == 1 {
				return s.Publish(ctx, 0)
			}
			return s.PublishBatch(ctx, size)
		})
		return []float64{calls * float64(size)}, err
	}}
}

// publishAll publishes n events, rounded up to whole batches.
func publishAll(ctx context.Context, s Streamer, n int) (published int, err error) {
	for size := min(n, 1000); err == nil && published < n; published += size {
		err = s.PublishBatch(ctx, size)
	}
	return published, err
}

func replay(ctx context.Context, t *Turn, n int) ([]float64, error) {
	q, err := t.keep(ctx, "history", func(q Queue) error {
		s, err := as[Streamer](q, noStream)
		if err == nil {
			_, err = publishAll(ctx, s, t.scaled(n))
		}
		if err == nil && t.Durability.onPostgres() {
			_, err = q.SQL().ExecContext(ctx, "VACUUM (ANALYZE)") // otherwise autovacuum does it in the middle of some turns
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	s := q.(Streamer)
	consumer := fmt.Sprint("c", t.Rand.Uint64())
	perSecond, err := drain(ctx, t.scaled(n), func(ctx context.Context, handle func(int64)) error {
		return s.Subscribe(ctx, consumer, handle)
	})
	return []float64{perSecond}, err
}

func ackEach(ctx context.Context, t *Turn) ([]float64, error) {
	q, s, err := freshStream(ctx, t)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	a, err := as[Acker](q, "has no acks of an event")
	if err != nil {
		return nil, err
	}
	n, err := publishAll(ctx, s, t.scaled(ackedEvents))
	if err != nil {
		return nil, err
	}
	perSecond, err := drain(ctx, n, func(ctx context.Context, handle func(int64)) error {
		return a.SubscribeAcking(ctx, "acks", handle)
	})
	return []float64{perSecond}, err
}

// freshStream opens a new file that has a stream.
func freshStream(ctx context.Context, t *Turn) (Queue, Streamer, error) {
	q, err := t.fresh(ctx)
	if err != nil {
		return nil, nil, err
	}
	s, err := as[Streamer](q, noStream)
	if err != nil {
		return nil, nil, errors.Join(err, q.Close())
	}
	return q, s, nil
}

// drain runs read until it has handled n events and returns the number per second.
func drain(ctx context.Context, n int, read workFunc) (float64, error) {
	var seen atomic.Int64
	enough, failed := make(chan struct{}), make(chan error, 1)
	began := time.Now()
	stop := background(ctx, func(ctx context.Context) error {
		err := read(ctx, func(int64) {
			if seen.Add(1) == int64(n) {
				close(enough)
			}
		})
		failed <- err
		return err
	})
	select {
	case <-enough:
	case err := <-failed:
		return 0, errors.Join(err, fmt.Errorf("ended after %d events", seen.Load()))
	}
	perSecond := float64(n) / time.Since(began).Seconds()
	return perSecond, stop()
}

func shareOut(ctx context.Context, t *Turn) ([]float64, error) {
	q, s, err := freshStream(ctx, t)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	g, err := as[Grouper](q, "has no groups")
	if err != nil {
		return nil, err
	}
	n, err := publishAll(ctx, s, t.scaled(groupEvents))
	if err != nil {
		return nil, err
	}
	perSecond, err := drain(ctx, n, func(ctx context.Context, handle func(int64)) error {
		return each(members, func(i int) error { return g.Member(ctx, "group", fmt.Sprint("member-", i), handle) })
	})
	return []float64{perSecond}, err
}

// each runs f concurrently for 0 to n-1.
func each(n int, f func(i int) error) error {
	var all sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		all.Go(func() {
			if err := f(i); !errors.Is(err, context.Canceled) {
				errs[i] = err
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func liveCase(d Durability, subscribers int) Case {
	name := fmt.Sprintf("live, %d subscribers", subscribers)
	return Case{Name: name, Durability: d, Metrics: latencyMetrics, Turn: func(ctx context.Context, t *Turn) ([]float64, error) {
		q, s, err := freshStream(ctx, t)
		if err != nil {
			return nil, err
		}
		defer q.Close()
		came := make(chan start, subscribers)
		stop := background(ctx, func(ctx context.Context) error {
			return each(subscribers, func(i int) error {
				return s.Subscribe(ctx, fmt.Sprint("c", i), func(n int64) { came <- start{n, time.Now()} })
			})
		})
		took, err := lives(ctx, t, s, came, subscribers)
		if err = errors.Join(err, stop()); err != nil {
			return nil, err
		}
		return took.values(), nil
	}}
}

// lives measures the latency from a publish to each subscriber.
func lives(ctx context.Context, t *Turn, s Streamer, came <-chan start, subscribers int) (took latencies, err error) {
	if err := live(ctx, s, came, subscribers, &latencies{}); err != nil { // wait until all subscribers are running
		return nil, err
	}
	for began := time.Now(); time.Since(began) < t.Length || len(took) < t.Fewest; {
		t.pause()
		if err := live(ctx, s, came, subscribers, &took); err != nil {
			return nil, err
		}
	}
	return took, nil
}

func live(ctx context.Context, s Streamer, came <-chan start, subscribers int, took *latencies) error {
	called := time.Now()
	if err := s.Publish(ctx, 0); err != nil {
		return err
	}
	for range subscribers {
		select {
		case c := <-came:
			took.add(c.at.Sub(called))
		case <-time.After(tooLate):
			return fmt.Errorf("an event did not come within %v", tooLate)
		}
	}
	return nil
}
