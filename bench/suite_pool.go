package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/honker-go/honker"
)

// poolSuite measures many files that share few handlers, as with a file per tenant.
func poolSuite() Suite {
	return Suite{Name: "pool", Contestants: onlyHonker, Cases: []Case{
		poolCase(20 * time.Millisecond), poolCase(5 * time.Millisecond), poolCase(time.Millisecond),
		quietFileCase(),
		poolIdleCase("a pool of 16", poolHandlers), poolIdleCase("16 workers each, no pool", 0),
	}}
}

const (
	poolFiles    = 300
	poolHandlers = 16
	poolJobs     = 60_000 // in all files together; enough to never run dry
)

// tenants are open files, each with a queue.
type tenants []*honkerQueue

func (t *Turn) tenants(ctx context.Context, n int) (all tenants, err error) {
	dir, err := os.MkdirTemp(t.dir, "")
	if err != nil {
		return nil, err
	}
	return openTenants(ctx, dir, t.Durability, n)
}

func openTenants(ctx context.Context, dir string, d Durability, n int) (all tenants, err error) {
	all = make(tenants, n)
	var next atomic.Int64
	err = each(min(openers, n), func(int) error {
		for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
			q, err := openHonker(ctx, filepath.Join(dir, fmt.Sprint(i)+".db"), d)
			if err != nil {
				return err
			}
			all[i] = q
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, all.Close())
	}
	return all, nil
}

func (all tenants) Close() error {
	return each(openers, func(k int) (err error) {
		for i := k; i < len(all); i += openers {
			if all[i] != nil {
				err = errors.Join(err, all[i].Close())
			}
		}
		return err
	})
}

func (all tenants) add(ctx context.Context, n int) error {
	return each(openers, func(k int) error {
		for i := k; i < len(all); i += openers {
			if _, err := addBacklog(ctx, all[i], n); err != nil {
				return err
			}
		}
		return nil
	})
}

// work runs the jobs of all files until stop is called.
func (all tenants) work(ctx context.Context, o *honker.WorkOptions, handle func(file int, n int64)) (stop func() error) {
	return background(ctx, func(ctx context.Context) error {
		return each(len(all), func(i int) error {
			return all[i].queue.Work(ctx, func(_ context.Context, job *honker.Job[payload]) error {
				handle(i, job.Args.N)
				return nil
			}, o)
		})
	})
}

// poolCase measures the rate of 16 handlers on 300 files, relative to a single file.
func poolCase(takes time.Duration) Case {
	name := fmt.Sprintf("%d files, a pool of %d, a handler takes %v", poolFiles, poolHandlers, takes)
	metrics := []Metric{{"rate", "× one file with 16 workers", true}, {"rate", "jobs/s", true}, {"one file with a pool of 16", "jobs/s", true}, {"one file with 16 workers", "jobs/s", true}}
	return Case{Name: name, Durability: Normal, Shortest: 4 * time.Second, Metrics: metrics, Turn: func(ctx context.Context, t *Turn) ([]float64, error) {
		alone, err := t.poolRate(ctx, 1, takes, &honker.WorkOptions{Workers: poolHandlers})
		if err != nil {
			return nil, err
		}
		pooled, err := t.poolRate(ctx, 1, takes, &honker.WorkOptions{Pool: honker.NewPool(poolHandlers)})
		if err != nil {
			return nil, err
		}
		many, err := t.poolRate(ctx, t.scaled(poolFiles), takes, &honker.WorkOptions{Pool: honker.NewPool(poolHandlers)})
		return []float64{many / alone, many, pooled, alone}, err
	}}
}

// poolRate returns the jobs per second. It starts counting when each file has run a job.
func (t *Turn) poolRate(ctx context.Context, files int, takes time.Duration, o *honker.WorkOptions) (perSecond float64, err error) {
	all, err := t.tenants(ctx, files)
	if err != nil {
		return 0, err
	}
	defer all.Close()
	if err := all.add(ctx, t.scaled(poolJobs)/files+10); err != nil {
		return 0, err
	}
	var ran atomic.Int64
	var seen sync.Map
	had := make(chan struct{}, files)
	stop := all.work(ctx, o, func(file int, _ int64) {
		time.Sleep(takes)
		ran.Add(1)
		if _, again := seen.LoadOrStore(file, true); !again {
			had <- struct{}{}
		}
	})
	for range files {
		select {
		case <-had:
		case <-ctx.Done():
			return 0, errors.Join(ctx.Err(), stop())
		}
	}
	before, began := ran.Load(), time.Now()
	time.Sleep(max(t.Length/3, 100*time.Millisecond))
	perSecond = float64(ran.Load()-before) / time.Since(began).Seconds()
	return perSecond, stop()
}

// quietFileCase measures the latency of occasional jobs in a file while another file always has a
// thousand waiting jobs.
func quietFileCase() Case {
	metrics := []Metric{{"p50", "ms", false}, {"p99", "ms", false}, {"p50 without the busy file", "ms", false}, {"p99 without the busy file", "ms", false}, {"jobs of the busy file", "/s", true}}
	name := fmt.Sprintf("a job of a quiet file, a pool of %d, beside a file with 1,000 jobs of 5 ms", poolHandlers)
	return Case{Name: name, Durability: Normal, Shortest: 8 * time.Second, Metrics: metrics, Turn: func(ctx context.Context, t *Turn) ([]float64, error) {
		all, err := t.tenants(ctx, t.scaled(poolFiles))
		if err != nil {
			return nil, err
		}
		defer all.Close()
		began := make([]chan struct{}, len(all))
		for i := range began {
			began[i] = make(chan struct{}, 1)
		}
		var busy atomic.Int64
		stop := all.work(ctx, &honker.WorkOptions{Pool: honker.NewPool(poolHandlers)}, func(file int, _ int64) {
			if file > 0 {
				began[file] <- struct{}{}
			} else {
				busy.Add(1)
			}
			time.Sleep(5 * time.Millisecond)
		})
		alone, err := t.quietJobs(ctx, all, began, nil)
		if err != nil {
			return nil, errors.Join(err, stop())
		}
		start := time.Now()
		var took latencies
		enqueued := 0
		took, err = t.quietJobs(ctx, all, began, func() error { // keep a thousand jobs waiting
			if enqueued-int(busy.Load()) > 1000 {
				return nil
			}
			enqueued += 1000
			return all[0].EnqueueBatch(ctx, 1000)
		})
		rate := float64(busy.Load()) / time.Since(start).Seconds()
		if err = errors.Join(err, stop()); err != nil {
			return nil, err
		}
		return []float64{quantile(took, 0.5), quantile(took, 0.99), quantile(alone, 0.5), quantile(alone, 0.99), rate}, nil
	}}
}

// quietJobs enqueues to the quiet files in turn at random times and waits for the handler.
func (t *Turn) quietJobs(ctx context.Context, all tenants, began []chan struct{}, before func() error) (took latencies, err error) {
	for start := time.Now(); time.Since(start) < t.Length/2 || len(took) < t.Fewest; {
		if before != nil {
			if err := before(); err != nil {
				return nil, err
			}
		}
		time.Sleep(time.Duration(t.Rand.Int64N(int64(8 * time.Millisecond))))
		file := 1 + len(took)%(len(all)-1)
		called := time.Now()
		if err := all[file].Enqueue(ctx, 0); err != nil {
			return nil, err
		}
		select {
		case <-began[file]:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		took.add(time.Since(called))
	}
	return took, nil
}

// poolIdleCase measures 300 idle files, each of which has run some jobs.
func poolIdleCase(how string, handlers int) Case {
	name := fmt.Sprintf("%d idle files, %s", poolFiles, how)
	return Case{Name: name, Durability: Normal, Shortest: 15 * time.Second, Once: true, Metrics: idleMetrics(), Turn: func(ctx context.Context, t *Turn) ([]float64, error) {
		dir, err := os.MkdirTemp(t.dir, "")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		length := min(idleLongest, t.Length)
		c, err := startChild(ctx, task{Do: "tenants", Contestant: t.Name, Path: dir, Durability: t.Durability,
			Databases: t.scaled(poolFiles), Goroutines: handlers, Length: length})
		if err != nil {
			return nil, err
		}
		values, err := c.rest(ctx, length)
		return values, errors.Join(err, c.end())
	}}
}

// tenants runs some jobs of each file and then remains idle.
func (t task) tenants(ctx context.Context) error {
	fmt.Println("READY")
	all, err := openTenants(ctx, t.Path, t.Durability, t.Databases)
	if err != nil {
		return err
	}
	const jobs = 20
	if err := all.add(ctx, jobs); err != nil {
		return err
	}
	o := &honker.WorkOptions{Workers: poolHandlers}
	if t.Goroutines > 0 {
		o = &honker.WorkOptions{Pool: honker.NewPool(t.Goroutines)}
	}
	var ran atomic.Int64
	done := make(chan struct{})
	stop := all.work(ctx, o, func(int, int64) {
		time.Sleep(5 * time.Millisecond)
		if ran.Add(1) == int64(jobs*len(all)) {
			close(done)
		}
	})
	<-done
	t.comeToRest(ctx)
	return stop()
}
