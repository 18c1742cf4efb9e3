package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// flowSuite measures functions that survive: their steps, how soon they start and go on, and their cost while they wait.
func flowSuite() Suite {
	s := Suite{Name: "flow", Contestants: flowContestants}
	for _, tx := range []bool{false, true} {
		s.Cases = append(s.Cases, stepsCase(1, 1000, tx), stepsCase(64, 100, tx))
	}
	s.Cases = append(s.Cases, signalCase(), takeoverCase(), waitingRunsCase(1000))
	return s
}

// flowLease is the lease of a claim in the case of a takeover.
const flowLease = 5 * time.Second

// flowTask returns the task of a turn on a new file.
func (t *Turn) flowTask() (task, error) {
	path, err := t.path()
	lease := max(time.Second, time.Duration(t.Scale*float64(flowLease)))
	return task{Contestant: t.Name, Path: path, Durability: t.Durability, Lease: lease, Length: t.Length}, err
}

// stepsCase measures the steps of runs that are under way at the same time.
func stepsCase(runs, steps int, tx bool) Case {
	kind := map[bool]string{false: "plain steps", true: "transactional steps"}[tx]
	name := fmt.Sprintf("%s, 1 run of %s", kind, thousands(steps))
	if runs > 1 {
		name = fmt.Sprintf("%s, %d runs of %d at once", kind, runs, steps)
	}
	metrics := []Metric{{"rate", "steps/s", true}, {"statements", "/step", false}}
	return Case{Name: name, Durability: Normal, Metrics: metrics, Turn: func(ctx context.Context, t *Turn) ([]float64, error) {
		r := &stepRuns{runs: runs, steps: t.scaled(steps), tx: tx}
		stop := traceStatements()
		counted, _, err := r.run(ctx, t, 0)
		stop()
		if err != nil {
			return nil, err
		}
		_, rate, err := r.run(ctx, t, t.Length)
		return []float64{rate, counted}, err
	}}
}

// stepRuns are rounds of runs with steps.
type stepRuns struct {
	runs, steps int
	tx          bool
	rounds      int // so far
}

// run runs rounds on a new file until length has passed, but at least one, and returns the statements per step, if they are
// counted, and the steps per second.
func (r *stepRuns) run(ctx context.Context, t *Turn, length time.Duration) (perStep, rate float64, err error) {
	task, err := t.flowTask()
	if err != nil {
		return 0, 0, err
	}
	f, stop, err := task.served(ctx, flowEvents{})
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := f.Run(ctx, "first", 1, r.tx); err != nil { // wait until the workers are running
		return 0, 0, err
	}
	steps, before := 0, statements.Load()
	began := time.Now()
	for steps == 0 || time.Since(began) < length {
		r.rounds++
		err := each(r.runs, func(i int) error { return f.Run(ctx, fmt.Sprintf("%d/%d", r.rounds, i), r.steps, r.tx) })
		if err != nil {
			return 0, 0, err
		}
		steps += r.runs * r.steps
	}
	took := time.Since(began)
	return float64(statements.Load()-before) / float64(steps), float64(steps) / took.Seconds(), nil
}

// signalCase measures the time from a start to the first line of the function, and from a signal to the first line after it
// was received. Runs that wait take no part in it.
func signalCase() Case {
	metrics := []Metric{
		{"start p50", "ms", false}, {"start p99", "ms", false}, {"signal p50", "ms", false}, {"signal p99", "ms", false}, {"signal max", "ms", false}, {"samples", "", true},
	}
	return Case{Name: "a start and a signal, same process", Durability: Normal, Metrics: metrics, Turn: func(ctx context.Context, t *Turn) ([]float64, error) {
		if err := t.onRaw(); err != nil {
			return nil, err
		}
		task, err := t.flowTask()
		if err != nil {
			return nil, err
		}
		began, resumed := make(chan start, 64), make(chan start, 64)
		f, stop, err := task.served(ctx, flowEvents{reporter(began), reporter(resumed)})
		if err != nil {
			return nil, err
		}
		starts, signals, err := t.signals(ctx, f, began, resumed)
		if err = errors.Join(err, stop()); err != nil {
			return nil, err
		}
		return []float64{quantile(starts, 0.5), quantile(starts, 0.99), quantile(signals, 0.5), quantile(signals, 0.99), quantile(signals, 1), float64(len(signals))}, nil
	}}
}

// reporter reports the numbers of runs on c.
func reporter(c chan<- start) func(id string) {
	return func(id string) {
		at := time.Now()
		var n int64
		if _, err := fmt.Sscan(id, &n); err == nil {
			c <- start{n, at}
		}
	}
}

func (t *Turn) signals(ctx context.Context, f Flows, began, resumed <-chan start) (starts, signals latencies, err error) {
	for n, from := int64(0), time.Now(); time.Since(from) < t.Length || len(signals) < t.Fewest; n++ {
		id := fmt.Sprint(n)
		t.pause()
		started, err := after(ctx, began, n, func() error { return f.Begin(ctx, id) })
		if err != nil {
			return nil, nil, err
		}
		t.pause()
		went, err := after(ctx, resumed, n, func() error { return f.Signal(ctx, id) })
		if err != nil {
			return nil, nil, err
		}
		for len(began) > 0 { // the function of honker begins again
			<-began
		}
		if n > 0 { // the workers were running
			starts.add(started)
			signals.add(went)
		}
	}
	return starts, signals, nil
}

// after calls f and returns the time until the event of run n.
func after(ctx context.Context, events <-chan start, n int64, f func() error) (time.Duration, error) {
	called := time.Now()
	if err := f(); err != nil {
		return 0, err
	}
	late := time.NewTimer(tooLate)
	defer late.Stop()
	for {
		select {
		case s := <-events:
			if s.n == n {
				return s.since(called), nil
			}
		case <-late.C:
			return 0, fmt.Errorf("run %d did not go on within %v", n, tooLate)
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// takeoverCase kills a process whose run is under way, and measures the time until a second process that works on the
// same file calls the run's function.
func takeoverCase() Case {
	metrics := []Metric{{"takeover", "s", false}}
	name := fmt.Sprintf("takeover after a kill, lease of %v", flowLease)
	return Case{Name: name, Durability: Normal, Once: true, Metrics: metrics, Turn: func(ctx context.Context, t *Turn) ([]float64, error) {
		if err := t.onRaw(); err != nil {
			return nil, err
		}
		task, err := t.flowTask()
		if err != nil {
			return nil, err
		}
		first, err := startFlowChild(ctx, task, "hold")
		if err != nil {
			return nil, err
		}
		if _, err := first.line(); err != nil {
			return nil, errors.Join(err, first.end())
		}
		second, err := startFlowChild(ctx, task, "await")
		if err != nil {
			return nil, errors.Join(err, first.end())
		}
		killed := time.Now()
		if err := first.cmd.Process.Kill(); err != nil {
			return nil, err
		}
		_ = first.end() // it was killed
		took, err := second.takes(killed, 3*task.Lease)
		return []float64{took.Seconds()}, errors.Join(err, second.end())
	}}
}

func startFlowChild(ctx context.Context, t task, do string) (*child, error) {
	t.Do = do
	return startChild(ctx, t)
}

// takes waits until the child reports that it has a run, at most for bound.
func (c *child) takes(killed time.Time, bound time.Duration) (time.Duration, error) {
	var late atomic.Bool
	timer := time.AfterFunc(bound, func() {
		late.Store(true)
		_ = c.stdin.Close()
	})
	defer timer.Stop()
	_, err := c.line()
	if late.Load() {
		return 0, fmt.Errorf("%w: no process had taken the run over after %v", errNA, bound)
	}
	return time.Since(killed), err
}

// hold serves runs, and reports each function that begins. It starts a run that does not end, unless it only awaits
// it.
func (t task) hold(ctx context.Context) error {
	f, _, err := t.served(ctx, flowEvents{began: func(id string) { fmt.Println(id) }})
	if err != nil {
		return err
	}
	fmt.Println("READY")
	if t.Do == "hold" {
		if err := f.Hold(ctx, "1"); err != nil {
			return err
		}
	}
	<-ctx.Done() // the end of the process ends the run
	return nil
}

// waitingRunsCase measures a process with runs that wait for a signal.
func waitingRunsCase(runs int) Case {
	metrics := []Metric{{"CPU", "% of a core", false}, {"statements", "/s", false}, {"written", "KiB/s", false}, {"memory", "MiB", false}}
	name := fmt.Sprintf("%s waiting runs", thousands(runs))
	return Case{Name: name, Durability: Normal, Shortest: 20 * time.Second, Once: true, Metrics: metrics, Turn: func(ctx context.Context, t *Turn) ([]float64, error) {
		if err := t.onRaw(); err != nil {
			return nil, err
		}
		task, err := t.flowTask()
		if err != nil {
			return nil, err
		}
		task.Length, task.Runs = min(idleLongest, t.Length), t.scaled(runs)
		c, err := startFlowChild(ctx, task, "waiting")
		if err != nil {
			return nil, err
		}
		values, err := c.rest(ctx, task.Length)
		if err != nil {
			return nil, errors.Join(err, c.end())
		}
		perSecond, err := c.told()
		return []float64{values[0], perSecond, values[1], values[2]}, errors.Join(err, c.end())
	}}
}

// told ends the child's task and returns the number that it then prints.
func (c *child) told() (v float64, err error) {
	_ = c.stdin.Close()
	line, err := c.line()
	if err == nil {
		_, err = fmt.Sscan(line, &v)
	}
	return v, err
}

// waiting starts runs that wait, comes to rest, and prints its statements per second when ctx is done.
func (t task) waiting(ctx context.Context) error {
	fmt.Println("READY")
	defer traceStatements()()
	nothing := func(string) {}
	f, stop, err := t.served(ctx, flowEvents{nothing, nothing})
	if err != nil {
		return err
	}
	for i := range t.Runs {
		if err := f.Begin(ctx, fmt.Sprint(i)); err != nil {
			return err
		}
	}
	t.calmDown()
	before, began := statements.Load(), time.Now()
	fmt.Println(resting)
	<-ctx.Done()
	fmt.Println(float64(statements.Load()-before) / time.Since(began).Seconds())
	return stop()
}
