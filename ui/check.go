package ui

import (
	"errors"
	"sync"
	"time"

	"github.com/honker-go/honker"
)

// checker runs DB.Check in the background and keeps the last result. Only one check runs at a time.
type checker struct {
	mu   sync.Mutex
	last check
}

// check is the state of the last check.
type check struct {
	Running bool
	Began   time.Time
	Took    time.Duration
	Err     string   // error if the check could not be completed
	Broken  []string // violated rules
}

// start starts a check in a new goroutine unless a check is already running.
func (k *checker) start(h *Handler, db *honker.DB) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.last.Running || !h.spawn(func() { k.end(db.Check(h.ended)) }) {
		return
	}
	k.last = check{Running: true, Began: time.Now()}
}

// end stores the result of a check. Acquiring the lock ensures that start has stored the new check
// first.
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

// result returns the running check, or the last check if none is running.
func (k *checker) result() check {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last
}
