package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

const backlog = 20_000 // number of jobs

// workSuite measures how fast a backlog of jobs is worked.
func workSuite() Suite {
	s := Suite{Name: "work"}
	for _, workers := range []int{1, 8, 64} {
		s.Cases = append(s.Cases, workCase(fmt.Sprintf("no-op jobs, %d workers", workers), workers, false))
	}
	s.Cases = append(s.Cases,
		workCase("no-op jobs, as many workers as suit each best", 0, false),
		workCase("a handler that writes a receipt, 8 workers", 8, true))
	return s
}

// workCase measures the rate with the given number of workers. 0 stands for each contestant's best
// number.
func workCase(name string, workers int, writes bool) Case {
	return Case{Name: name, Durability: Normal, Metrics: rate("jobs/s"), Turn: func(ctx context.Context, t *Turn) ([]float64, error) {
		q, n, err := t.backlogged(ctx)
		if err != nil {
			return nil, err
		}
		defer q.Close()
		work, err := worker(q, workers, t.Best, writes)
		if err != nil {
			return nil, err
		}
		perSecond, err := burn(ctx, q, n, max(t.Length, t.Bound), work)
		return []float64{perSecond}, err
	}}
}

type workFunc func(ctx context.Context, handle func(n int64)) error

func worker(q Queue, workers, best int, writes bool) (workFunc, error) {
	if workers == 0 {
		workers = best
	}
	if !writes {
		return func(ctx context.Context, handle func(int64)) error { return q.Work(ctx, workers, handle) }, nil
	}
	w, err := as[TxWorker](q, "no such worker")
	return func(ctx context.Context, handle func(int64)) error { return w.WorkTx(ctx, workers, handle) }, err
}

// backlogged opens a new file with a backlog of n jobs.
func (t *Turn) backlogged(ctx context.Context) (q Queue, n int, err error) {
	if q, err = t.fresh(ctx); err != nil {
		return nil, 0, err
	}
	if n, err = addBacklog(ctx, q, t.scaled(backlog)); err != nil {
		return nil, 0, errors.Join(err, q.Close())
	}
	return q, n, nil
}

// addBacklog adds n jobs, rounded up to whole batches.
func addBacklog(ctx context.Context, q Queue, n int) (added int, err error) {
	b, ok := q.(Batcher)
	if !ok {
		return n, addSingly(ctx, q, n)
	}
	for size := min(n, 1000); err == nil && added < n; added += size {
		err = b.EnqueueBatch(ctx, size)
	}
	return added, err
}

// addSingly adds jobs individually, for contestants without batches.
func addSingly(ctx context.Context, q Queue, n int) error {
	var next atomic.Int64
	return each(16, func(int) error {
		for i := next.Add(1); i <= int64(n); i = next.Add(1) {
			if err := q.Enqueue(ctx, i); err != nil {
				return err
			}
		}
		return nil
	})
}

// burn works n jobs and returns the rate of finished jobs. It ends with the last job or after
// bound.
func burn(ctx context.Context, q Queue, n int, bound time.Duration, work workFunc) (float64, error) {
	var ran atomic.Int64
	last := make(chan struct{})
	began := time.Now()
	stop := background(ctx, func(ctx context.Context) error {
		return work(ctx, func(int64) {
			if ran.Add(1) == int64(n) {
				close(last)
			}
		})
	})
	err := waitDone(ctx, q, last, bound)
	took := time.Since(began)
	left, countErr := q.Unfinished(ctx) // handlers may be ahead of the commits
	return float64(n-left) / took.Seconds(), errors.Join(err, countErr, stop())
}

func waitDone(ctx context.Context, q Queue, last <-chan struct{}, bound time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	select {
	case <-ctx.Done():
		return nil
	case <-last:
	}
	for ctx.Err() == nil {
		left, err := q.Unfinished(ctx)
		if err != nil || left == 0 {
			return ignoreEnd(ctx, err)
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// ignoreEnd returns nil if ctx is done, and err otherwise.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
