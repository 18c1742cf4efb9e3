package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"
)

// idleSuite is what it costs while nothing happens, each in a process of its own.
func idleSuite() Suite {
	s := Suite{Name: "idle", Cases: []Case{idleCase("10 queues, 100 listeners", 30*time.Second, 1, 10, 100)}}
	for _, n := range []int{1, 100, 1000} {
		name := fmt.Sprintf("%s open databases, a queue and a listener each", thousands(n))
		s.Cases = append(s.Cases, idleCase(name, 10*time.Second, n, 1, 1))
	}
	return s
}

const (
	idleLongest = 30 * time.Second
	restful     = 20 * time.Second // until what was opened is at rest: a contestant that looks now and then does so more at first
	openBound   = 20 * time.Second
	openers     = 8
	resting     = "RESTING" // says a child once it is
	quiet       = 100 * time.Millisecond
)

// idleMetrics has system calls where something counts them.
func idleMetrics() []Metric {
	m := []Metric{{"CPU", "% of a core", false}, {"written", "KiB/s", false}, {"memory", "MiB", false}}
	if perfTells() {
		m = append(m, Metric{"system calls", "/s", false})
	}
	return m
}

func idleCase(name string, shortest time.Duration, databases, queues, listeners int) Case {
	return Case{Name: name, Durability: Normal, Shortest: shortest, Metrics: idleMetrics(), Turn: func(ctx context.Context, t *Turn) ([]float64, error) {
		if isServer(t.Name) {
			return nil, fmt.Errorf("%w: its server is a process of its own", errNA)
		}
		dir, err := os.MkdirTemp(t.dir, "")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		length := min(idleLongest, t.Length)
		c, err := startChild(ctx, task{Do: "idle", Contestant: t.Name, Path: dir, Durability: t.Durability,
			Databases: t.scaled(databases), Queues: queues, Listeners: listeners, Length: length})
		if err != nil {
			return nil, err
		}
		values, err := c.rest(ctx, length)
		return values, errors.Join(err, c.end())
	}}
}

// rest is what an idle child uses while length goes by. It is not asked.
func (c *child) rest(ctx context.Context, length time.Duration) ([]float64, error) {
	line, err := c.line()
	if err != nil {
		return nil, err
	}
	if line != resting {
		return nil, fmt.Errorf("%w: %s", errNA, strings.TrimPrefix(line, "ERROR "))
	}
	time.Sleep(quiet) // it has said so, and falls asleep
	pid := c.cmd.Process.Pid
	began := time.Now()
	before, err := usageOf(pid)
	if err != nil {
		return nil, err
	}
	calls, err := meanwhile(ctx, pid, length)
	if err != nil {
		return nil, err
	}
	after, err := usageOf(pid)
	seconds := time.Since(began).Seconds()
	cpu := 100 * (after.cpu - before.cpu).Seconds() / seconds
	return append([]float64{cpu, (after.written - before.written) / seconds, memoryOf(pid)}, calls...), err
}

// meanwhile lets length go by, and counts the system calls of that process if it can.
func meanwhile(ctx context.Context, pid int, length time.Duration) ([]float64, error) {
	if perfTells() {
		calls, err := syscalls(ctx, pid, length)
		return []float64{calls}, err
	}
	select {
	case <-time.After(length):
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// idle opens the databases, says when they have come to rest, and is there to be looked at
// until ctx ends. What is open ends with the process.
func (t task) idle(ctx context.Context, c Contestant) error {
	fmt.Println("READY")
	queues, err := t.openAll(ctx, c)
	if err != nil {
		return err
	}
	for _, q := range queues {
		go func() { _ = q.(Idler).Idle(ctx, t.Queues, t.Listeners) }()
	}
	t.comeToRest(ctx)
	return nil
}

// comeToRest says so when the process has, and waits until ctx ends.
func (t task) comeToRest(ctx context.Context) {
	rest := min(restful, 4*t.Length)
	time.Sleep(rest / 2)
	debug.FreeOSMemory() // else what opening has left is collected in some turns and not in others
	time.Sleep(rest / 2)
	fmt.Println(resting)
	<-ctx.Done()
}

// openAll opens several at once: making a file waits for the disk.
func (t task) openAll(ctx context.Context, c Contestant) ([]Queue, error) {
	queues := make([]Queue, t.Databases)
	var next atomic.Int64
	began := time.Now()
	err := each(min(openers, t.Databases), func(int) error {
		for i := next.Add(1) - 1; i < int64(t.Databases); i = next.Add(1) - 1 {
			if time.Since(began) > openBound {
				return fmt.Errorf("only %d databases open after %v", i, openBound)
			}
			q, err := c.Open(ctx, filepath.Join(t.Path, fmt.Sprint(i)+".db"), t.Durability)
			if err != nil {
				return err
			}
			queues[i] = q
		}
		return nil
	})
	return queues, err
}
