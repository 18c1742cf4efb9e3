package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// crowdSuite measures the cost of idle processes: to a writer, to themselves, and to a worker that
// waits for the writer's jobs.
func crowdSuite() Suite {
	s := Suite{Name: "crowd", Contestants: crowdContestants}
	for _, pause := range []time.Duration{5 * time.Millisecond, 50 * time.Millisecond, 0} {
		for _, processes := range []int{1, 10, 25, 50} {
			s.Cases = append(s.Cases, crowdCase(processes, pause))
		}
	}
	for _, queues := range []int{10, 1000, 5000} {
		s.Cases = append(s.Cases, manyQueuesCase(queues))
	}
	s.Cases = append(s.Cases, filtersCase(1000))
	return s
}

// crowdContestants returns the contestants that notice jobs of other processes.
func crowdContestants() []Contestant {
	return slices.Concat([]Contestant{honkers()}, pollers(), []Contestant{riverTuned(), riverDefault(), goqiteTuned(), goqiteDefault()})
}

var crowdMetrics = []Metric{
	{"commits", "× alone", true}, {"commits", "/s", true},
	{"p50", "× alone", false}, {"p50", "ms", false}, {"p99", "ms", false},
	{"idle CPU", "% of a core", false},
	{"wake p50", "ms", false}, {"wake p99", "ms", false},
	{"errors", "", false},
}

func crowdCase(processes int, pause time.Duration) Case {
	name := fmt.Sprintf("%d idle, %s", processes, pauses(pause))
	return Case{Name: name, Durability: Normal, Shortest: 8 * time.Second, Metrics: crowdMetrics, Turn: func(ctx context.Context, t *Turn) ([]float64, error) {
		path, err := t.path()
		if err != nil {
			return nil, err
		}
		q, err := t.Open(ctx, path, t.Durability)
		if err != nil {
			return nil, err
		}
		defer q.Close()
		alone, err := commits(ctx, t, q, pause, t.Length/4)
		if err != nil {
			return nil, err
		}
		idle, err := startCrowd(ctx, t, t.waits(path, 1), max(min(processes, 2), int(float64(processes)*t.Scale)))
		if err != nil {
			return nil, err
		}
		values, err := besideCrowd(ctx, t, q, path, idle, alone, pause)
		return append(values, float64(idle.end())), err
	}}
}

func pauses(pause time.Duration) string {
	if pause == 0 {
		return "no pauses"
	}
	return fmt.Sprintf("%d ms pauses", pause.Milliseconds())
}

// besideCrowd measures first the writer and the crowd, and then the latency of a worker in another
// process while the writer continues.
func besideCrowd(ctx context.Context, t *Turn, q Queue, path string, idle crowd, alone writing, pause time.Duration) ([]float64, error) {
	var beside writing
	cpu, err := idle.share(func() (err error) {
		beside, err = commits(ctx, t, q, pause, t.Length/2)
		return err
	})
	if err != nil {
		return nil, err
	}
	woken, err := wakesBeside(ctx, t, q, path, pause)
	if err != nil {
		return nil, err
	}
	p50 := quantile(beside.took, 0.5)
	return []float64{
		beside.perSecond / alone.perSecond, beside.perSecond,
		p50 / quantile(alone.took, 0.5), p50, quantile(beside.took, 0.99),
		cpu, quantile(woken, 0.5), quantile(woken, 0.99),
	}, nil
}

// wakesBeside measures how fast a worker in another process is woken while the writer continues.
func wakesBeside(ctx context.Context, t *Turn, q Queue, path string, pause time.Duration) (latencies, error) {
	w, err := startWaker(ctx, t, q, path, 2)
	if err != nil {
		return nil, err
	}
	stop := background(ctx, func(ctx context.Context) error {
		_, err := commits(ctx, t, q, pause, patience)
		return ignoreEnd(ctx, err)
	})
	short := *t
	short.Length = t.Length / 4
	took, err := wakes(ctx, &short, q, w)
	return took, errors.Join(err, stop(), w.stop())
}

// writing has the results of a writer.
type writing struct {
	took      latencies
	perSecond float64
}

// commits enqueues elsewhere, with a pause after each commit, until length has passed or ctx is
// done. A failed commit takes time but is not counted.
func commits(ctx context.Context, t *Turn, q Queue, pause, length time.Duration) (w writing, err error) {
	n, err := as[Neighbour](q, "has one queue")
	if err != nil {
		return w, err
	}
	done := 0
	began := time.Now()
	for ctx.Err() == nil && (time.Since(began) < length || len(w.took) < t.Fewest) {
		called := time.Now()
		err := n.EnqueueElsewhere(context.WithoutCancel(ctx))
		w.took.add(time.Since(called))
		switch {
		case err == nil:
			done++
		case !isBusy(err):
			return w, err
		}
		time.Sleep(pause)
	}
	w.perSecond = float64(done) / time.Since(began).Seconds()
	return w, context.Cause(ctx)
}

// crowd is a set of processes that wait for jobs that never come.
type crowd []*child

const ended = "ENDED" // printed by an idle process whose workers have failed

// waits returns the task of waiting for jobs of the given number of queues.
func (t *Turn) waits(path string, queues int) task {
	return task{Do: "crowd", Contestant: t.Name, Path: path, Durability: t.Durability, Queues: queues}
}

// startCrowd starts processes and waits until all of them are idle.
func startCrowd(ctx context.Context, t *Turn, do task, processes int) (all crowd, err error) {
	for range processes {
		c, err := startChild(ctx, do)
		if err != nil {
			all.end()
			return nil, err
		}
		all = append(all, c)
	}
	for _, c := range all {
		line, err := c.line()
		if err == nil && line != resting {
			err = errors.New(line)
		}
		if err != nil {
			all.end()
			return nil, err
		}
	}
	time.Sleep(min(2*time.Second, t.Length))
	return all, nil
}

// cpu returns the CPU time that all processes have used.
func (all crowd) cpu() (sum time.Duration, err error) {
	for _, c := range all {
		used, err := cpuOf(c.cmd.Process.Pid)
		if err != nil {
			return 0, err
		}
		sum += used
	}
	return sum, nil
}

// spends returns the CPU time that all processes use while f runs.
func (all crowd) spends(f func() error) (time.Duration, error) {
	before, err := all.cpu()
	if err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	after, err := all.cpu()
	return after - before, err
}

// share returns the CPU usage of all processes while f runs, in percent of a core.
func (all crowd) share(f func() error) (percent float64, err error) {
	began := time.Now()
	spent, err := all.spends(f)
	return 100 * spent.Seconds() / time.Since(began).Seconds(), err
}

// end stops the processes and returns the number of those that failed earlier.
func (all crowd) end() (failed int) {
	for _, c := range all {
		_ = c.stdin.Close()
	}
	for _, c := range all {
		for c.out.Scan() {
			if strings.HasPrefix(c.out.Text(), ended) || strings.HasPrefix(c.out.Text(), "ERROR") {
				failed++
			}
		}
		_ = c.cmd.Wait()
	}
	return failed
}

// crowd waits for jobs.
func (t task) crowd(ctx context.Context, c Contestant) error {
	return t.wait(ctx, c, func(q Queue) error { return q.(Idler).Idle(ctx, t.Queues, 0) })
}

// wait runs f until ctx is done. The process exit closes all open files.
func (t task) wait(ctx context.Context, c Contestant, f func(q Queue) error) error {
	fmt.Println("READY")
	q, err := c.Open(ctx, t.Path, t.Durability)
	if err != nil {
		return err
	}
	go func() {
		if err := f(q); ctx.Err() == nil {
			fmt.Println(ended, err)
		}
	}()
	fmt.Println(resting)
	<-ctx.Done()
	return nil
}

const unrelated = 48 // commits per second

// manyQueuesCase measures the cost of unrelated commits by another process, for a process with many
// queues.
func manyQueuesCase(queues int) Case {
	name := fmt.Sprintf("%s queues of a process, %d unrelated commits/s", thousands(queues), unrelated)
	metrics := []Metric{{"CPU", "% of a core", false}, {"errors", "", false}}
	return Case{Name: name, Durability: Normal, Shortest: 6 * time.Second, Metrics: metrics, Turn: func(ctx context.Context, t *Turn) ([]float64, error) {
		path, err := t.path()
		if err != nil {
			return nil, err
		}
		q, err := t.Open(ctx, path, t.Durability)
		if err != nil {
			return nil, err
		}
		defer q.Close()
		idle, err := startCrowd(ctx, t, t.waits(path, t.scaled(queues)), 1)
		if err != nil {
			return nil, err
		}
		stop := background(ctx, func(ctx context.Context) error { return makeNoise(ctx, q, unrelated) })
		time.Sleep(min(2*time.Second, t.Length/2)) // let the work caused by opening finish
		cpu, err := idle.share(func() error { time.Sleep(t.Length); return nil })
		err = errors.Join(err, stop())
		return []float64{cpu, float64(idle.end())}, err
	}}
}
