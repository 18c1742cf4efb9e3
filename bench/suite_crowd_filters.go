package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// filtersCase is what an event costs a process with many subscribers of its topic, each of
// which wants another key, beside one with a single subscriber.
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

// perEvent is how many ms of CPU the subscribers' process uses for each event, and the time
// from publishing one to the subscriber that wants it.
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

// publishToEach publishes to one subscriber after another, each time when the last has its
// event.
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

// follow says which subscriber has got an event.
func (t task) follow(ctx context.Context, c Contestant) error {
	return t.wait(ctx, c, func(q Queue) error {
		return q.(Keyed).SubscribeKeys(ctx, t.Listeners, func(n int) { fmt.Println(n) })
	})
}
