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

// idleSuite measures the cost of idle databases, each contestant in its own process.
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
	restful     = 20 * time.Second // time for opened databases to become idle; periodic work is more frequent at first
	openBound   = 20 * time.Second
	openers     = 8
	resting     = "RESTING" // printed by a child that is idle
	quiet       = 100 * time.Millisecond
)

// idleMetrics includes system calls if they can be counted.
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

// rest measures the usage of an idle child during length, without communicating with it.
func (c *child) rest(ctx context.Context, length time.Duration) ([]float64, error) {
	line, err := c.line()
	if err != nil {
		return nil, err
	}
	if line != resting {
		return nil, fmt.Errorf("%w: %s", errNA, strings.TrimPrefix(line, "ERROR "))
	}
	time.Sleep(quiet) // let the child go to sleep after printing
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

// meanwhile waits for length and counts the system calls of a process if possible.
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

// idle opens the databases, reports when they are idle, and remains idle until ctx is done. The
// process exit closes all open files.
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

// comeToRest waits until the process is idle, reports it, and waits until ctx is done.
func (t task) comeToRest(ctx context.Context) {
	t.calmDown()
	fmt.Println(resting)
	<-ctx.Done()
}

// calmDown waits until the process is idle.
func (t task) calmDown() {
	rest := min(restful, 4*t.Length)
	time.Sleep(rest / 2)
	debug.FreeOSMemory() // otherwise garbage of the opening is collected in some turns only
	time.Sleep(rest / 2)
}

// openAll opens the databases concurrently, because creating a file waits for the disk.
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
