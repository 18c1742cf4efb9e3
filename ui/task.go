package ui

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/honker-go/honker"
)

// task runs a function in the background and keeps the outcome. Only one function runs at a time.
type task struct {
	mu   sync.Mutex
	last outcome
}

// outcome is the state of a task's last run.
type outcome struct {
	Running bool
	Began   time.Time // zero if there was no run
	Took    time.Duration
	err     error
}

// start calls do in a new goroutine unless a call is already running. do must return when its ctx ends, which is when the
// Handler is closed.
func (k *task) start(h *Handler, do func(ctx context.Context) error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.last.Running || !h.spawn(func() { k.end(do(h.ended)) }) {
		return
	}
	k.last = outcome{Running: true, Began: time.Now()}
}

// end stores the outcome. Acquiring the lock ensures that start has stored the new run first.
func (k *task) end(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last.Running, k.last.Took, k.last.err = false, time.Since(k.last.Began), err
}

// result returns the state of the current run, or of the last run if the task is not running.
func (k *task) result() outcome {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last
}

// Err returns the error of the run, or "".
func (o outcome) Err() string {
	if o.err == nil {
		return ""
	}
	return o.err.Error()
}

// Broken returns the rules that a check has found violated.
func (o outcome) Broken() []string {
	if broken, ok := errors.AsType[*honker.BrokenError](o.err); ok {
		return broken.Rules
	}
	return nil
}
