package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/honker-go/honker/dispatch"
)

// dispatchSuite is what package dispatch costs: actors that wait, and the triggers that note the life of
// its jobs, for the claims of other queues of the file.
func dispatchSuite() Suite {
	return Suite{Name: "dispatch", Contestants: onlyHonker, Cases: []Case{
		actorsCase(50),
		besideCase("a file with jobs of dispatch", nil),
		besideCase("a file with jobs of dispatch, Log", &dispatch.Options{Log: true}),
		besideCase("a file with jobs of dispatch, Log, LegacyDualPush", &dispatch.Options{Log: true, Legacy: dispatch.LegacyDualPush}),
	}}
}

// actorsCase is n actors of a process, one of a type, with nothing to do.
func actorsCase(n int) Case {
	return Case{Name: fmt.Sprintf("%d idle actors", n), Durability: Normal, Shortest: 30 * time.Second, Once: true, Metrics: idleMetrics(), Turn: func(ctx context.Context, t *Turn) ([]float64, error) {
		dir, err := os.MkdirTemp(t.dir, "")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		length := min(idleLongest, t.Length)
		c, err := startChild(ctx, task{Do: "actors", Contestant: t.Name, Path: dir, Durability: t.Durability, Queues: t.scaled(n), Length: length})
		if err != nil {
			return nil, err
		}
		values, err := c.rest(ctx, length)
		return values, errors.Join(err, c.end())
	}}
}

// actors wait for work until ctx ends.
func (t task) actors(ctx context.Context) error {
	fmt.Println("READY")
	q, err := openHonker(ctx, filepath.Join(t.Path, "bench.db"), t.Durability)
	if err != nil {
		return err
	}
	defer q.Close()
	d := dispatch.New(q.db, nil)
	var all sync.WaitGroup
	for i := range t.Queues {
		id := dispatch.Identity{Type: "bench", Instance: fmt.Sprint(i)}
		actor := dispatch.NewActor(d, id, func(context.Context, *dispatch.Task[payload]) (any, error) { return nil, nil }, nil)
		all.Go(func() { _ = actor.Run(ctx) })
	}
	t.comeToRest(ctx)
	all.Wait()
	return nil
}

// besideCase is a claim and an ack, and the end of a backlog, of a queue that dispatch knows nothing of:
// in a file with jobs of dispatch that wait, and how many times that of a file without.
func besideCase(name string, o *dispatch.Options) Case {
	metrics := []Metric{{"claim + ack", "× without", false}, {"per job of a backlog", "× without", false}, {"claim + ack", "µs/job", false}, {"per job of a backlog", "µs", false}}
	return Case{Name: name, Durability: Normal, Metrics: metrics, Turn: func(ctx context.Context, t *Turn) ([]float64, error) {
		bare, err := t.keep(ctx, "bare", func(q Queue) error { return nil })
		if err != nil {
			return nil, err
		}
		q, err := t.keep(ctx, "dispatch", func(q Queue) error {
			_, err := dispatch.New(q.(*honkerQueue).db, o).Send(ctx, dispatch.Target{Type: "nobody"}, newPayload(0))
			return err
		})
		if err != nil {
			return nil, err
		}
		single, err := growth(ctx, t, bare, q)
		if err != nil {
			return nil, err
		}
		var took [2]time.Duration
		for range parts {
			for i, one := range []Queue{bare, q} {
				perJob, err := ofBacklog(ctx, t, one)
				if err != nil {
					return nil, err
				}
				took[i] += perJob / parts
			}
		}
		return []float64{single[1], float64(took[1]) / float64(took[0]), single[0], float64(took[1].Nanoseconds()) / 1e3}, nil
	}}
}

// ofBacklog is the time per job of one.
func ofBacklog(ctx context.Context, t *Turn, q Queue) (perJob time.Duration, err error) {
	n, err := addBacklog(ctx, q, t.scaled(backlog))
	if err != nil {
		return 0, err
	}
	err = burnSome(ctx, q, n, time.Minute, t.Best, func(took time.Duration) error {
		perJob = took / time.Duration(n)
		return nil
	})
	return perJob, err
}
