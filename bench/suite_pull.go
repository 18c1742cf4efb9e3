package main

import (
	"context"
	"fmt"
	"time"
)

// pullSuite measures loops that claim jobs by calls of their own and ack them, in place of a worker. A batch takes a commit
// for the claim and one for the acks.
func pullSuite() Suite {
	return Suite{Name: "pull", Contestants: pullContestants, Cases: pullCases(Normal)}
}

func pullCases(d Durability) (cases []Case) {
	for _, most := range []int{1, 32, 128} {
		cases = append(cases, pullCase(fmt.Sprintf("claim and ack, %d at a time", most), d, func(ctx context.Context, p Puller, n int, until time.Time) (int, time.Duration, error) {
			return p.Pull(ctx, most, n, until)
		}))
	}
	return append(cases, pullCase("an iterator over claimed jobs, each acked", d, func(ctx context.Context, p Puller, n int, until time.Time) (int, time.Duration, error) {
		return p.Iterate(ctx, n, until)
	}))
}

// Puller claims jobs of the queue and acks them, until n are acked or the time until has come. It returns their number and
// the time that they took.
type Puller interface {
	// Pull claims up to most jobs at a time and acks them together.
	Pull(ctx context.Context, most, n int, until time.Time) (acked int, took time.Duration, err error)
	// Iterate acks each job of an iterator over claimed jobs.
	Iterate(ctx context.Context, n int, until time.Time) (acked int, took time.Duration, err error)
}

// pullContestants returns the driver, honker, and honker's own Python package if it is installed.
func pullContestants() []Contestant {
	all := []Contestant{raw(), honkers()}
	if interpreter() != "" {
		all = append(all, pythons())
	}
	return all
}

func pullCase(name string, d Durability, pull func(ctx context.Context, p Puller, n int, until time.Time) (int, time.Duration, error)) Case {
	return Case{Name: name, Durability: d, Metrics: rate("jobs/s"), Turn: func(ctx context.Context, t *Turn) ([]float64, error) {
		q, n, err := t.backlogged(ctx)
		if err != nil {
			return nil, err
		}
		defer q.Close()
		p, err := as[Puller](q, "no claims")
		if err != nil {
			return nil, err
		}
		acked, took, err := pull(ctx, p, n, time.Now().Add(max(t.Length, t.Bound)))
		if err != nil {
			return nil, err
		}
		left, err := q.Unfinished(ctx)
		if err == nil && left != n-acked {
			err = fmt.Errorf("%d jobs of %d are left after %d acks", left, n, acked)
		}
		if err != nil {
			return nil, err
		}
		return []float64{float64(acked) / took.Seconds()}, nil
	}}
}

// pulled calls batch until it has acked n jobs or the time until has come.
func pulled(n int, until time.Time, batch func() (acked int, err error)) (acked int, took time.Duration, err error) {
	began := time.Now()
	for acked < n && time.Now().Before(until) && err == nil {
		var more int
		more, err = batch()
		acked += more
	}
	return acked, time.Since(began), err
}

// Pull implements Puller.
func (r *rawQueue) Pull(_ context.Context, most, n int, until time.Time) (int, time.Duration, error) {
	return pulled(n, until, func() (int, error) {
		jobs, err := r.claim(most, 0)
		if err != nil {
			return 0, err
		}
		ids := make([]int64, len(jobs))
		for i, j := range jobs {
			ids[i] = j.id
		}
		return len(ids), r.work.exec(rawAck, jsonIDs(ids), time.Now().Unix())
	})
}

// Iterate implements Puller.
func (r *rawQueue) Iterate(ctx context.Context, n int, until time.Time) (int, time.Duration, error) {
	return r.Pull(ctx, 1, n, until)
}

// Pull implements Puller.
func (h *honkerQueue) Pull(ctx context.Context, most, n int, until time.Time) (int, time.Duration, error) {
	return pulled(n, until, func() (int, error) {
		jobs, err := h.queue.Claim(ctx, "bench", most)
		if err != nil {
			return 0, err
		}
		if len(jobs) == 1 {
			return 1, jobs[0].Ack(ctx)
		}
		ids := make([]int64, len(jobs))
		for i, j := range jobs {
			ids[i] = j.ID
		}
		return h.queue.AckMany(ctx, "bench", ids)
	})
}

// Iterate implements Puller.
func (h *honkerQueue) Iterate(ctx context.Context, n int, until time.Time) (acked int, took time.Duration, err error) {
	began := time.Now()
	for job, err := range h.queue.Jobs(ctx, "bench") {
		if err != nil {
			return acked, time.Since(began), err
		}
		if err := job.Ack(ctx); err != nil {
			return acked, time.Since(began), err
		}
		if acked++; acked == n || !time.Now().Before(until) {
			break
		}
	}
	return acked, time.Since(began), nil
}
