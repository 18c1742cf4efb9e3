package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// flatSuite measures whether the cost of a claim and an ack depends on the other jobs in the file.
func flatSuite() Suite {
	s := Suite{Name: "flat"}
	for _, due := range []int{0, 1000, 100_000, 1_000_000} {
		c := flatCase(thousands(due)+" due", Due, due)
		c.Curve, c.X = "due jobs", float64(due)
		s.Cases = append(s.Cases, c)
	}
	s.Cases = append(s.Cases,
		flatCase("50,000 in flight", InFlight, 50_000),
		flatCase("100,000 delayed, of a higher priority", Delayed, 100_000),
		flatCase("1,000,000 dead", Dead, 1_000_000))
	return s
}

var flatMetrics = []Metric{{"claim + ack", "µs/job", false}, {"growth", "× bare", false}}

func flatCase(name string, kind Kind, n int) Case {
	return Case{Name: name, Durability: Normal, Metrics: flatMetrics, Turn: func(ctx context.Context, t *Turn) ([]float64, error) {
		bare, err := t.keep(ctx, "bare", func(Queue) error { return nil })
		if err != nil {
			return nil, err
		}
		q, err := t.keep(ctx, "full", func(q Queue) error { return surround(ctx, t, q, kind, n) })
		if err != nil {
			return nil, err
		}
		return growth(ctx, t, bare, q)
	}}
}

// growth returns the cost of a job in q, relative to a file without other jobs. It alternates
// between the files, so that slow periods of the machine affect both.
func growth(ctx context.Context, t *Turn, bare, q Queue) ([]float64, error) {
	var times [2]time.Duration
	for range parts {
		for i, one := range []Queue{bare, q} {
			took, err := claims(ctx, t, one)
			if err != nil {
				return nil, err
			}
			times[i] += took / parts
		}
	}
	return []float64{float64(times[1].Nanoseconds()) / 1e3, float64(times[1]) / float64(times[0])}, nil
}

func surround(ctx context.Context, t *Turn, q Queue, kind Kind, n int) error {
	f, err := as[Filler](q, "cannot be filled")
	if err != nil || n == 0 {
		return err
	}
	return f.Fill(ctx, kind, t.scaled(n))
}

const (
	claimsAtOnce = 50
	parts        = 2 // of a turn, for each of its two files
)

// claims adds jobs and returns the time per job of claiming and acking them.
func claims(ctx context.Context, t *Turn, q Queue) (perJob time.Duration, err error) {
	c, ok := q.(Claimer)
	if !ok {
		return workOne(ctx, t, q)
	}
	var spent time.Duration
	jobs := 0
	for began := time.Now(); time.Since(began) < t.Length/(2*parts) || jobs == 0; {
		if _, err := addBacklog(ctx, q, claimsAtOnce); err != nil {
			return 0, err
		}
		n, took, err := claimSome(ctx, c, max(t.Length/(2*parts), t.Bound/parts))
		if err != nil {
			return 0, err
		}
		jobs, spent = jobs+n, spent+took
	}
	return spent / time.Duration(jobs), nil
}

func claimSome(ctx context.Context, c Claimer, bound time.Duration) (n int, took time.Duration, err error) {
	began := time.Now()
	for n < claimsAtOnce && err == nil && (n == 0 || took < bound) {
		err = c.ClaimAck(ctx)
		n++
		took = time.Since(began)
	}
	return n, took, err
}

// workOne measures contestants that have workers but no claim. It returns the time per finished job
// with their best number of workers.
func workOne(ctx context.Context, t *Turn, q Queue) (perJob time.Duration, err error) {
	n, err := addBacklog(ctx, q, t.scaled(backlog/8))
	if err != nil {
		return 0, err
	}
	before, err := q.Unfinished(ctx)
	if err != nil {
		return 0, err
	}
	var took time.Duration
	after := before
	err = burnSome(ctx, q, n, max(t.Length/(2*parts), t.Bound/parts), t.Best, func(spent time.Duration) (err error) {
		took = spent
		after, err = q.Unfinished(ctx)
		return err
	})
	if err == nil && after >= before {
		err = fmt.Errorf("%w: no job was finished within %v", errNA, took.Round(time.Millisecond))
	}
	if err != nil {
		return 0, err
	}
	return took / time.Duration(before-after), nil
}

// burnSome runs n jobs, or as many as possible within bound. It then calls look while the workers
// are still running.
func burnSome(ctx context.Context, q Queue, n int, bound time.Duration, workers int, look func(took time.Duration) error) error {
	var ran atomic.Int64
	enough := make(chan struct{})
	began := time.Now()
	stop := background(ctx, func(ctx context.Context) error {
		return q.Work(ctx, workers, func(int64) {
			if ran.Add(1) == int64(n) {
				close(enough)
			}
		})
	})
	select {
	case <-enough:
	case <-time.After(bound):
	}
	err := look(time.Since(began))
	return errors.Join(err, stop())
}
