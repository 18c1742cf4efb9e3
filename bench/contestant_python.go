package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

//go:embed pull.py
var pullScript string

// interpreter returns a Python that has honker's own package, or "". It is $HONKER_PYTHON, or what .ci/interop has installed.
func interpreter() string {
	if named := os.Getenv("HONKER_PYTHON"); named != "" {
		return named
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	found, _ := filepath.Glob(filepath.Join(cache, "honker-go", "interop-*", "bin", "python"))
	if len(found) == 0 {
		return ""
	}
	return found[len(found)-1]
}

// pythons is honker's own Python package, on a file that this project has made and filled.
func pythons() Contestant {
	return Contestant{Name: "honker for Python", About: "honker 0.2.4 with its defaults, in a process of its own; claim_batch and ack_batch, and claim, which is an asynchronous iterator",
		Open: func(ctx context.Context, path string, d Durability) (Queue, error) {
			h, err := openHonker(ctx, path, d)
			return &pythonQueue{h, path}, err
		}}
}

type pythonQueue struct {
	*honkerQueue
	path string
}

// Pull implements Puller.
func (p *pythonQueue) Pull(ctx context.Context, most, n int, until time.Time) (int, time.Duration, error) {
	return p.run(ctx, "batches", most, n, until)
}

// Iterate implements Puller.
func (p *pythonQueue) Iterate(ctx context.Context, n int, until time.Time) (int, time.Duration, error) {
	return p.run(ctx, "jobs", 1, n, until)
}

func (p *pythonQueue) run(ctx context.Context, kind string, most, n int, until time.Time) (acked int, took time.Duration, err error) {
	cmd := exec.CommandContext(ctx, interpreter(), "-c", pullScript, p.path, kind, strconv.Itoa(most), strconv.Itoa(n), fmt.Sprint(time.Until(until).Seconds()))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return 0, 0, fmt.Errorf("python: %w", err)
	}
	var seconds float64
	_, err = fmt.Sscan(string(out), &acked, &seconds)
	return acked, time.Duration(seconds * float64(time.Second)), err
}
