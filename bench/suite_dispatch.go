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

// dispatchSuite measures the cost of package dispatch: of idle actors, and of its triggers to
// claims of other queues in the same file.
func dispatchSuite() Suite {
	return Suite{Name: "dispatch", Contestants: onlyHonker, Cases: []Case{
		actorsCase(50),
		besideCase("a file with jobs of dispatch", nil),
		besideCase("a file with jobs of dispatch, Log", &dispatch.Options{Log: true}),
		besideCase("a file with jobs of dispatch, Log, LegacyDualPush", &dispatch.Options{Log: true, Legacy: dispatch.LegacyDualPush}),
	}}
}

// actorsCase measures n idle actors of different types in a process.
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

// actors runs actors that wait for work until ctx is done.
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

// besideCase measures a queue that is not used by dispatch, in a file with waiting jobs of
// dispatch. The results are relative to a file without them.
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

// ofBacklog returns the time per job of a backlog.
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
