package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// filtersCase measures the cost of an event for a process whose many subscribers each filter for
// their own key, relative to a process with a single subscriber.
func filtersCase(subscribers int) Case {
	name := fmt.Sprintf("%s subscribers of a topic, a key each", thousands(subscribers))
	metrics := []Metric{{"CPU", "× one subscriber", false}, {"CPU", "ms/event", false}, {"p50", "ms", false}, {"p99", "ms", false}}
	return Case{Name: name, Durability: Normal, Shortest: 6 * time.Second, Metrics: metrics, Turn: func(ctx context.Context, t *Turn) ([]float64, error) {
		one, _, err := t.perEvent(ctx, 1)
		if err != nil {
			return nil, err
		}
		many, took, err := t.perEvent(ctx, t.scaled(subscribers))
		if err != nil {
			return nil, err
		}
		return []float64{many / one, many, quantile(took, 0.5), quantile(took, 0.99)}, nil
	}}
}

// perEvent returns the CPU time per event of the subscribers' process, in milliseconds, and the
// latencies from each publish to its subscriber.
func (t *Turn) perEvent(ctx context.Context, subscribers int) (ms float64, took latencies, err error) {
	path, err := t.path()
	if err != nil {
		return 0, nil, err
	}
	q, err := t.Open(ctx, path, t.Durability)
	if err != nil {
		return 0, nil, err
	}
	defer q.Close()
	k, err := as[Keyed](q, "has no streams with keys")
	if err != nil {
		return 0, nil, err
	}
	c, err := startCrowd(ctx, t, task{Do: "follow", Contestant: t.Name, Path: path, Durability: t.Durability, Listeners: subscribers}, 1)
	if err != nil {
		return 0, nil, err
	}
	spent, err := c.spends(func() (err error) {
		took, err = publishToEach(ctx, t, k, c[0], subscribers)
		return err
	})
	if failed := c.end(); failed > 0 && err == nil {
		err = errors.New("a subscriber has given up")
	}
	return float64(spent.Microseconds()) / 1000 / float64(len(took)), took, err
}

// publishToEach publishes an event to each subscriber in turn, waiting for each event to arrive.
func publishToEach(ctx context.Context, t *Turn, k Keyed, c *child, subscribers int) (took latencies, err error) {
	for began := time.Now(); time.Since(began) < t.Length/2 || len(took) < t.Fewest; {
		n := len(took) % subscribers
		called := time.Now()
		if err := k.PublishKey(ctx, n); err != nil {
			return nil, err
		}
		line, err := c.line()
		if err != nil || line != fmt.Sprint(n) {
			return nil, errors.Join(fmt.Errorf("subscriber %d did not get its event: %q", n, line), err)
		}
		took.add(time.Since(called))
		time.Sleep(10 * time.Millisecond)
	}
	return took, nil
}

// follow prints the number of the subscriber for each event.
func (t task) follow(ctx context.Context, c Contestant) error {
	return t.wait(ctx, c, func(q Queue) error {
		return q.(Keyed).SubscribeKeys(ctx, t.Listeners, func(n int) { fmt.Println(n) })
	})
}
