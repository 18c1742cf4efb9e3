package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// neighboursSuite measures how a process that writes without a pause affects other processes on its
// file. A foreign writer depends on SQLite's busy handler, which retries after sleeping for 1 to
// 100 ms.
func neighboursSuite() Suite {
	s := Suite{Name: "neighbours", Contestants: func() []Contestant {
		return []Contestant{raw(), honkers(), riverTuned(), goqiteTuned()}
	}}
	for _, n := range []int{1, 8, 64} {
		s.Cases = append(s.Cases, pacedCase("enqueues by "+goroutines(n), func(ctx context.Context, q Queue) *flatOut { return startEnqueues(ctx, q, n) }))
	}
	s.Cases = append(s.Cases, pacedCase("8 workers", func(ctx context.Context, q Queue) *flatOut { return startWorkers(ctx, q, 8) }))
	for _, n := range []int{1, 64} {
		s.Cases = append(s.Cases, quietCase(n, "waits", "crowd"), quietCase(n, "reads", "reads"))
	}
	for _, n := range []int{1, 8} {
		s.Cases = append(s.Cases, twoWritersCase(n))
	}
	return s
}

const neighbourly = 6 * time.Second // minimum length of a turn

func goroutines(n int) string {
	if n == 1 {
		return "1 goroutine"
	}
	return fmt.Sprintf("%d goroutines", n)
}

func startEnqueues(ctx context.Context, q Queue, n int) *flatOut {
	return startFlatOut(ctx, n, func(ctx context.Context) error { return q.Enqueue(ctx, 0) })
}

// meeting is a file of the contestant that is shared with other processes.
type meeting struct {
	*Turn
	Queue
	path string
}

func (t *Turn) meet(ctx context.Context) (*meeting, error) {
	path, err := t.path()
	if err != nil {
		return nil, err
	}
	q, err := t.Open(ctx, path, t.Durability)
	return &meeting{t, q, path}, err
}

func (m *meeting) child(ctx context.Context, do string, goroutines int) (*child, error) {
	return startChild(ctx, task{Do: do, Contestant: m.Name, Path: m.path, Durability: m.Durability, Queues: 1, Goroutines: goroutines})
}

// pacedCase measures a foreign writer next to the contestant.
func pacedCase(beside string, start func(ctx context.Context, q Queue) *flatOut) Case {
	metrics := []Metric{{"p50", "ms", false}, {"p90", "ms", false}, {"p99", "ms", false}, {"max", "ms", false},
		{"commits", "/s", true}, {"SQLITE_BUSY", "", false}, {"beside", "× alone", true}, {"beside", "/s", true}}
	return Case{Name: "a paced writer beside " + beside, Durability: Normal, Shortest: neighbourly, Metrics: metrics, Turn: func(ctx context.Context, t *Turn) ([]float64, error) {
		m, err := t.meet(ctx)
		if err != nil {
			return nil, err
		}
		defer m.Close()
		o := start(ctx, m)
		alone, err := o.rate(t.Length / 3)
		if err != nil {
			return nil, errors.Join(err, o.end())
		}
		var paced report
		perSecond, err := o.during(func() error {
			paced, err = m.beside(ctx, "paced", 0, 2*t.Length/3)
			return err
		})
		if err = errors.Join(err, o.end()); err != nil {
			return nil, err
		}
		took := paced.Took
		return []float64{quantile(took, 0.5), quantile(took, 0.9), quantile(took, 0.99), quantile(took, 1),
			paced.PerSecond, float64(paced.Busy), perSecond / alone, perSecond}, nil
	}}
}

// beside lets another process write for length and returns its report.
func (m *meeting) beside(ctx context.Context, do string, goroutines int, length time.Duration) (r report, err error) {
	c, err := m.child(ctx, do, goroutines)
	if err != nil {
		return r, err
	}
	time.Sleep(length)
	_ = c.stdin.Close()
	line, err := c.line()
	if err == nil && json.Unmarshal([]byte(line), &r) != nil {
		err = errors.New(line)
	}
	return r, errors.Join(err, c.end())
}

// quietCase measures the effect of another process that never writes. The process comes and goes,
// so that slow periods of the machine affect both measurements.
func quietCase(n int, does, do string) Case {
	const parts = 3
	metrics := []Metric{{"enqueues", "× alone", true}, {"enqueues", "/s", true}}
	name := fmt.Sprintf("enqueues by %s beside a process that %s", goroutines(n), does)
	return Case{Name: name, Durability: Normal, Shortest: neighbourly, Metrics: metrics, Turn: func(ctx context.Context, t *Turn) ([]float64, error) {
		m, err := t.meet(ctx)
		if err != nil {
			return nil, err
		}
		defer m.Close()
		o := startEnqueues(ctx, m, n)
		var alone, beside float64
		for range parts {
			without, err := o.rate(t.Length / (2 * parts))
			if err != nil {
				return nil, errors.Join(err, o.end())
			}
			with, err := m.quiet(ctx, do, o, t.Length/(2*parts))
			if err != nil {
				return nil, errors.Join(err, o.end())
			}
			alone, beside = alone+without/parts, beside+with/parts
		}
		return []float64{beside / alone, beside}, o.end()
	}}
}

// quiet returns the rate while a child that never writes is running.
func (m *meeting) quiet(ctx context.Context, do string, o *flatOut, length time.Duration) (perSecond float64, err error) {
	c, err := m.child(ctx, do, 0)
	if err != nil {
		return 0, err
	}
	if line, err := c.line(); err != nil || line != resting {
		return 0, errors.Join(fmt.Errorf("the other process says %q", line), err, c.end())
	}
	perSecond, err = o.rate(length)
	return perSecond, errors.Join(err, c.end())
}

// twoWritersCase measures two processes of the contestant that both write without a pause.
func twoWritersCase(n int) Case {
	metrics := []Metric{{"share of the slower", "%", true}, {"p99 of the slower", "ms", false}, {"max", "ms", false},
		{"both", "× alone", true}, {"both", "/s", true}, {"SQLITE_BUSY", "", false}}
	name := fmt.Sprintf("two processes, enqueues by %s each", goroutines(n))
	return Case{Name: name, Durability: Normal, Shortest: neighbourly, Metrics: metrics, Turn: func(ctx context.Context, t *Turn) ([]float64, error) {
		m, err := t.meet(ctx)
		if err != nil {
			return nil, err
		}
		defer m.Close()
		first := startEnqueues(ctx, m, n)
		alone, err := first.rate(t.Length / 3)
		if err = errors.Join(err, first.end()); err != nil {
			return nil, err
		}
		o := startEnqueues(ctx, m, n) // latencies while both are writing
		var other report
		ours, err := o.during(func() error {
			other, err = m.beside(ctx, "enqueue", n, 2*t.Length/3)
			return err
		})
		if err = errors.Join(err, o.end()); err != nil {
			return nil, err
		}
		both := ours + other.PerSecond
		return []float64{100 * min(ours, other.PerSecond) / both, max(quantile(o.took, 0.99), quantile(other.Took, 0.99)),
			max(quantile(o.took, 1), quantile(other.Took, 1)), both / alone, both, float64(o.busy.Load()) + float64(other.Busy)}, nil
	}}
}

// report is printed by a child that writes.
type report struct {
	Took      latencies
	PerSecond float64
	Busy      int
}

func (r report) say() error {
	text, err := json.Marshal(r)
	if err == nil {
		fmt.Println(string(text))
	}
	return err
}

const pacedPause = 2 * time.Millisecond

// paced is the foreign writer. It repeats BEGIN IMMEDIATE, an insert, COMMIT and a pause.
func (t task) paced(ctx context.Context) error {
	c, err := t.foreign()
	if err != nil {
		return err
	}
	fmt.Println("READY")
	var r report
	commits := 0
	began := time.Now()
	for len(r.Took) == 0 || ctx.Err() == nil {
		called := time.Now()
		err := c.tx(func() error { return c.exec(insertNoise, 1) })
		r.Took.add(time.Since(called))
		switch {
		case err == nil:
			commits++
		case isBusy(err):
			r.Busy++
		default:
			return err
		}
		time.Sleep(pacedPause)
	}
	r.PerSecond = float64(commits) / time.Since(began).Seconds()
	return r.say()
}

// foreign opens a connection without the settings of any contestant.
func (t task) foreign() (*rawConn, error) {
	pool, err := openPool(t.Path, t.Durability)
	if err != nil {
		return nil, err
	}
	return newRawConn(context.Background(), pool)
}

// reads is a foreign process that counts rows from time to time.
func (t task) reads(ctx context.Context) error {
	c, err := t.foreign()
	if err != nil {
		return err
	}
	fmt.Println("READY")
	fmt.Println(resting)
	for ctx.Err() == nil {
		s, err := c.stmt("SELECT count(*) FROM noise")
		if err != nil {
			return err
		}
		var n int
		if err := s.QueryRowContext(context.Background()).Scan(&n); err != nil {
			return err
		}
		time.Sleep(pacedPause)
	}
	return nil
}

// enqueue is another process of the contestant that writes without a pause.
func (t task) enqueue(ctx context.Context, c Contestant) error {
	q, err := c.Open(ctx, t.Path, t.Durability)
	if err != nil {
		return err
	}
	defer q.Close()
	fmt.Println("READY")
	if t.Gate {
		if err := passGate(q.SQL()); err != nil {
			return err
		}
	}
	began := time.Now()
	o := startEnqueues(context.Background(), q, t.Goroutines)
	<-ctx.Done()
	r := report{PerSecond: float64(o.done.Load()) / time.Since(began).Seconds()}
	if err := o.end(); err != nil {
		return err
	}
	r.Took, r.Busy = sample(o.took, 10_000), int(o.busy.Load())
	return r.say()
}

// sample returns at most n of the latencies, including the longest.
func sample(took latencies, n int) latencies {
	if len(took) <= n {
		return took
	}
	every := (len(took) + n - 1) / n
	out := latencies{quantile(took, 1)}
	for i := 0; i < len(took); i += every {
		out = append(out, took[i])
	}
	return out
}
