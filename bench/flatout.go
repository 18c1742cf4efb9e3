package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// flatOut repeats an operation in several goroutines without a pause.
type flatOut struct {
	done atomic.Int64
	busy atomic.Int64 // SQLITE_BUSY errors
	end  func() error
	mu   sync.Mutex // guards the latencies while the goroutines end
	took latencies
}

func startFlatOut(ctx context.Context, goroutines int, f func(ctx context.Context) error) *flatOut {
	o := &flatOut{}
	o.end = background(ctx, func(ctx context.Context) error {
		return each(goroutines, func(int) error { return o.loop(ctx, f) })
	})
	return o
}

func (o *flatOut) loop(ctx context.Context, f func(ctx context.Context) error) error {
	var took latencies
	defer func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.took = append(o.took, took...)
	}()
	for len(took) == 0 || ctx.Err() == nil {
		called := time.Now()
		err := f(context.WithoutCancel(ctx))
		took.add(time.Since(called))
		switch {
		case err == nil:
			o.done.Add(1)
		case isBusy(err):
			o.busy.Add(1)
		default:
			return err
		}
	}
	return nil
}

// startWorkers starts workers and keeps them supplied with jobs. It does not record latencies.
func startWorkers(ctx context.Context, q Queue, workers int) *flatOut {
	o := &flatOut{}
	o.end = background(ctx, func(ctx context.Context) error {
		feeding := background(ctx, func(ctx context.Context) error { return o.feed(ctx, q) })
		err := q.Work(ctx, workers, func(int64) { o.done.Add(1) })
		return errors.Join(err, feeding())
	})
	return o
}

// feed keeps a backlog of jobs for the workers.
func (o *flatOut) feed(ctx context.Context, q Queue) error {
	const batch, ahead = 1000, 20_000
	for fed := int64(0); ctx.Err() == nil; {
		if fed-o.done.Load() > ahead {
			time.Sleep(time.Millisecond)
			continue
		}
		added, err := addBacklog(context.WithoutCancel(ctx), q, batch)
		if err != nil {
			return err
		}
		fed += int64(added)
	}
	return nil
}

// during returns the number of operations per second while f runs.
func (o *flatOut) during(f func() error) (perSecond float64, err error) {
	began, before := time.Now(), o.done.Load()
	err = f()
	return float64(o.done.Load()-before) / time.Since(began).Seconds(), err
}

// rate returns the number of operations per second within length. It waits for at least a single
// operation.
func (o *flatOut) rate(length time.Duration) (perSecond float64, err error) {
	before := o.done.Load()
	return o.during(func() error {
		time.Sleep(length)
		for began := time.Now(); o.done.Load() == before; time.Sleep(time.Millisecond) {
			if time.Since(began) > tooLate {
				return fmt.Errorf("nothing was done within %v", tooLate)
			}
		}
		return nil
	})
}
