package ui

import (
	"errors"
	"sync"
	"time"

	"github.com/honker-go/honker"
)

// checker runs DB.Check for the pages of a file, one at a time, and keeps what it has found.
type checker struct {
	mu   sync.Mutex
	last check
}

// check is the last check of a file that was asked for.
type check struct {
	Running bool
	Began   time.Time
	Took    time.Duration
	Err     string   // why it could not be made
	Broken  []string // rules that the file breaks
}

// start begins a check, unless one runs.
func (k *checker) start(h *Handler, db *honker.DB) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.last.Running || !h.spawn(func() { k.end(db.Check(h.ended)) }) {
		return
	}
	k.last = check{Running: true, Began: time.Now()}
}

// end keeps what a check has found. It waits for start.
func (k *checker) end(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last.Running, k.last.Took = false, time.Since(k.last.Began)
	if broken, ok := errors.AsType[*honker.BrokenError](err); ok {
		k.last.Broken = broken.Rules
	} else if err != nil {
		k.last.Err = err.Error()
	}
}

// result is the check that runs, or the last one.
func (k *checker) result() check {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last
}
