package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	wakeWorkers = 8
	tooLate     = 20 * time.Second // per sample
)

// wakeSuite measures the latency from the call of Enqueue to the first line of the handler of an
// idle worker.
func wakeSuite() Suite {
	s := Suite{Name: "wake"}
	for _, processes := range []int{1, 2} {
		for _, traffic := range []int{1, 100, 1000} {
			s.Cases = append(s.Cases, wakeCase(processes, traffic))
		}
	}
	return s
}

var where = map[int]string{1: "same process", 2: "two processes"}

func wakeCase(processes, traffic int) Case {
	name := fmt.Sprintf("%s, %d unrelated commits/s", where[processes], traffic)
	return Case{Name: name, Durability: Normal, Metrics: latencyMetrics, Turn: func(ctx context.Context, t *Turn) ([]float64, error) {
		if processes == 2 && t.Name == "backlite" {
			return nil, fmt.Errorf("%w: never notices a job of another process", errNA)
		}
		path, err := t.path()
		if err != nil {
			return nil, err
		}
		q, err := t.Open(ctx, path, t.Durability)
		if err != nil {
			return nil, err
		}
		defer q.Close()
		w, err := startWaker(ctx, t, q, path, processes)
		if err != nil {
			return nil, err
		}
		noise := background(ctx, func(ctx context.Context) error { return makeNoise(ctx, q, traffic) })
		took, err := wakes(ctx, t, q, w)
		if err = errors.Join(err, noise(), w.stop()); err != nil {
			return nil, err
		}
		return took.values(), nil
	}}
}

func makeNoise(ctx context.Context, q Queue, perSecond int) error {
	return pace(ctx, perSecond, func(n int64) error {
		_, err := q.SQL().ExecContext(ctx, insertNoise, n)
		return err
	})
}

// waker is a worker in this process or another that reports the start of each job.
type waker struct {
	started chan start
	stop    func() error
}

type start struct {
	n  int64
	at time.Time
}

// since returns the time from t to the start by the clock that all processes share.
func (s start) since(t time.Time) time.Duration {
	return time.Unix(0, s.at.UnixNano()).Sub(time.Unix(0, t.UnixNano()))
}

func startWaker(ctx context.Context, t *Turn, q Queue, path string, processes int) (*waker, error) {
	w := &waker{started: make(chan start, 64)}
	if processes == 1 {
		w.stop = background(ctx, func(ctx context.Context) error {
			return q.Work(ctx, wakeWorkers, func(n int64) { w.started <- start{n, time.Now()} })
		})
		return w, nil
	}
	c, err := startChild(ctx, task{Do: "work", Contestant: t.Name, Path: path, Durability: t.Durability})
	if err != nil {
		return nil, err
	}
	go w.hear(c)
	w.stop = c.end0
	return w, nil
}

// hear forwards the reports of the child until it exits.
func (w *waker) hear(c *child) {
	for c.out.Scan() {
		var n, at int64
		if _, err := fmt.Sscan(c.out.Text(), &n, &at); err == nil {
			w.started <- start{n, time.Unix(0, at)}
		}
	}
}

// end0 is end for a child whose output is read by another goroutine.
func (c *child) end0() error {
	_ = c.stdin.Close()
	return c.cmd.Wait()
}

// work reports the start of each job.
func (t task) work(ctx context.Context, c Contestant) error {
	q, err := c.Open(ctx, t.Path, t.Durability)
	if err != nil {
		return err
	}
	defer q.Close()
	fmt.Println("READY")
	return q.Work(ctx, wakeWorkers, func(n int64) { fmt.Println(n, time.Now().UnixNano()) })
}

// wakes takes samples of the time from the call of an enqueue to the start of the handler.
func wakes(ctx context.Context, t *Turn, q Queue, w *waker) (took latencies, err error) {
	took, _, err = starts(ctx, t, q, w)
	return took, err
}

// starts takes samples, with pauses of at least 2 ms between them. They begin with the call of an enqueue, and with its
// return.
func starts(ctx context.Context, t *Turn, q Queue, w *waker) (call, commit latencies, err error) {
	if _, _, err := wake(ctx, q, w, 0); err != nil { // wait until the worker is running
		return nil, nil, err
	}
	for began := time.Now(); time.Since(began) < t.Length || len(call) < t.Fewest; {
		t.pause()
		sinceCall, sinceCommit, err := wake(ctx, q, w, int64(len(call)+1))
		if err != nil {
			return nil, nil, err
		}
		call.add(sinceCall)
		commit.add(max(0, sinceCommit))
	}
	return call, commit, nil
}

// pause lets workers go to sleep. Its length is random to avoid sampling in phase with polls.
func (t *Turn) pause() {
	time.Sleep(2*time.Millisecond + time.Duration(t.Rand.Int64N(int64(max(10*time.Millisecond, t.Poll)))))
}

// wake returns the time from the call of Enqueue to the start, and from the return of Enqueue, which a start may precede.
func wake(ctx context.Context, q Queue, w *waker, n int64) (sinceCall, sinceCommit time.Duration, err error) {
	called := time.Now()
	if err := q.Enqueue(ctx, n); err != nil {
		return 0, 0, err
	}
	committed := time.Now()
	late := time.NewTimer(tooLate)
	defer late.Stop()
	for {
		select {
		case s := <-w.started:
			if s.n == n {
				return s.since(called), s.since(committed), nil
			}
		case <-late.C:
			return 0, 0, fmt.Errorf("no handler started within %v", tooLate)
		case <-ctx.Done():
			return 0, 0, context.Cause(ctx)
		}
	}
}
