package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// enqueueSuite measures how fast jobs are added.
func enqueueSuite() Suite {
	s := Suite{Name: "enqueue"}
	for _, d := range []Durability{Normal, Full} {
		s.Cases = append(s.Cases,
			enqueueCase("1 per commit", d, 1, one),
			enqueueCase("1 per commit, 64 goroutines", d, 64, one),
			enqueueCase("100 per commit", d, 1, batch(100)),
			enqueueCase("1,000 per commit", d, 1, batch(1000)),
			enqueueCase("in the caller's transaction, with an order", d, 1, withOrder),
		)
	}
	return s
}

// adder returns a function that adds jobs, and the number of jobs per call.
type adder func(q Queue) (add func(ctx context.Context) error, jobs int, err error)

func one(q Queue) (func(context.Context) error, int, error) {
	var n atomic.Int64
	return func(ctx context.Context) error { return q.Enqueue(ctx, n.Add(1)) }, 1, nil
}

func batch(size int) adder {
	return func(q Queue) (func(context.Context) error, int, error) {
		b, err := as[Batcher](q, "no batches")
		return func(ctx context.Context) error { return b.EnqueueBatch(ctx, size) }, size, err
	}
}

func withOrder(q Queue) (func(context.Context) error, int, error) {
	t, err := as[TxEnqueuer](q, "does not join a transaction")
	return func(ctx context.Context) error { return t.EnqueueTx(ctx) }, 1, err
}

func enqueueCase(name string, d Durability, callers int, kind adder) Case {
	return Case{Name: name, Durability: d, Metrics: rate("jobs/s"), Turn: func(ctx context.Context, t *Turn) ([]float64, error) {
		q, err := t.fresh(ctx)
		if err != nil {
			return nil, err
		}
		defer q.Close()
		add, jobs, err := kind(q)
		if err != nil {
			return nil, err
		}
		if err := add(ctx); err != nil { // prepares statements and creates the log
			return nil, err
		}
		calls, err := repeat(ctx, callers, t.Length, add)
		return []float64{calls * float64(jobs)}, err
	}}
}

// repeat calls f from several goroutines and returns the number of calls per second.
func repeat(ctx context.Context, callers int, length time.Duration, f func(ctx context.Context) error) (float64, error) {
	var calls atomic.Int64
	var failed atomic.Pointer[error]
	var all sync.WaitGroup
	began := time.Now()
	for range callers {
		all.Go(func() {
			for time.Since(began) < length && failed.Load() == nil {
				if err := f(ctx); err != nil {
					failed.Store(&err)
				}
				calls.Add(1)
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return 0, fmt.Errorf("after %d calls: %w", calls.Load(), *err)
	}
	return float64(calls.Load()) / time.Since(began).Seconds(), nil
}
