package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// contentionSuite measures the application's own writes while jobs are running.
func contentionSuite() Suite {
	s := Suite{Name: "contention"}
	for _, processes := range []int{1, 2} {
		for _, perSecond := range []int{100, 1000} {
			s.Cases = append(s.Cases, contentionCase(processes, perSecond))
		}
	}
	return s
}

var contentionMetrics = append(latencyMetrics[:len(latencyMetrics):len(latencyMetrics)],
	Metric{"SQLITE_BUSY", "", false}, Metric{"jobs", "/s", true})

func contentionCase(processes, perSecond int) Case {
	name := fmt.Sprintf("%s, %s jobs/s", where[processes], thousands(perSecond))
	return Case{Name: name, Durability: Normal, Metrics: contentionMetrics, Turn: func(ctx context.Context, t *Turn) ([]float64, error) {
		path, err := t.path()
		if err != nil {
			return nil, err
		}
		q, err := t.Open(ctx, path, t.Durability)
		if err != nil {
			return nil, err
		}
		defer q.Close()
		stop, err := startFlow(ctx, t, q, path, processes, perSecond)
		if err != nil {
			return nil, err
		}
		took, busy, err := appWrites(ctx, t, q)
		seen, stopErr := stop()
		if err = errors.Join(err, stopErr); err != nil {
			return nil, err
		}
		return append(took.values(), float64(busy+seen.Busy), seen.PerSecond), nil
	}}
}

// flow has the results of the jobs.
type flow struct {
	Busy      int // SQLITE_BUSY errors of Enqueue
	PerSecond float64
}

// startFlow runs a flow of jobs in this process or in another. The ceiling has no flow: it shows
// the same write on a file without other writers.
func startFlow(ctx context.Context, t *Turn, q Queue, path string, processes, perSecond int) (stop func() (flow, error), err error) {
	if t.Name == ceilingName {
		return func() (flow, error) { return flow{}, nil }, nil
	}
	if processes == 1 {
		var f flow
		end := background(ctx, func(ctx context.Context) (err error) {
			f, err = runFlow(ctx, q, perSecond)
			return err
		})
		return func() (flow, error) { err := end(); return f, err }, nil
	}
	c, err := startChild(ctx, task{Do: "flow", Contestant: t.Name, Path: path, Durability: t.Durability, PerSecond: perSecond})
	if err != nil {
		return nil, err
	}
	return c.lastFlow, nil
}

func (c *child) lastFlow() (f flow, err error) {
	_ = c.stdin.Close()
	line, err := c.line()
	if err == nil {
		if _, err = fmt.Sscan(line, &f.Busy, &f.PerSecond); err != nil {
			err = errors.New(line)
		}
	}
	return f, errors.Join(err, c.end())
}

func (t task) flow(ctx context.Context, c Contestant) error {
	q, err := c.Open(ctx, t.Path, t.Durability)
	if err != nil {
		return err
	}
	defer q.Close()
	fmt.Println("READY")
	f, err := runFlow(ctx, q, t.PerSecond)
	if err == nil {
		fmt.Println(f.Busy, f.PerSecond)
	}
	return err
}

// runFlow enqueues and works jobs at a fixed rate until ctx is done.
func runFlow(ctx context.Context, q Queue, perSecond int) (f flow, err error) {
	ran := make(chan struct{}, 1<<16)
	began := time.Now()
	stop := background(ctx, func(ctx context.Context) error {
		return q.Work(ctx, wakeWorkers, func(int64) { ran <- struct{}{} })
	})
	err = pace(ctx, perSecond, func(n int64) error {
		err := q.Enqueue(context.WithoutCancel(ctx), n)
		if isBusy(err) {
			f.Busy++
			return nil
		}
		return err
	})
	f.PerSecond = float64(len(ran)) / time.Since(began).Seconds()
	return f, errors.Join(err, stop())
}

// appWrites inserts an order every 1 to 9 ms.
func appWrites(ctx context.Context, t *Turn, q Queue) (took latencies, busy int, err error) {
	for began := time.Now(); time.Since(began) < t.Length || len(took) < t.Fewest; {
		time.Sleep(time.Millisecond + time.Duration(t.Rand.Int64N(int64(8*time.Millisecond))))
		called := time.Now()
		_, err := q.SQL().ExecContext(ctx, insertOrder)
		took.add(time.Since(called))
		if isBusy(err) {
			busy++
		} else if err != nil {
			return nil, busy, err
		}
	}
	return took, busy, nil
}
