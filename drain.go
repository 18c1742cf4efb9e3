package honker

import (
	"context"
	"errors"
	"time"
)

// drain ends the work: what has not started is given back, handlers finish; after
// DrainTimeout their ctx is cancelled, and soon after what they still hold is released.
func (c *crew) drain() {
	ctx := context.Background()
	c.giveBack()
	// A timer of its own: a turn may be waiting for the storage.
	killer := time.AfterFunc(c.opts.DrainTimeout, func() { c.kill(errors.New("honker: work has ended")) })
	defer killer.Stop()
	over := time.NewTimer(c.opts.DrainTimeout + lastWord)
	defer over.Stop()
	hopeless := false
	for c.busy() {
		if done := c.collect(); len(done) > 0 {
			hopeless = c.settleLast(ctx, done, hopeless)
			continue
		}
		select {
		case <-c.signal:
		case <-over.C:
			c.abandon(ctx)
			return
		}
	}
}

// settleLast settles done while that can be hoped for; then it lets them go.
func (c *crew) settleLast(ctx context.Context, done []*hand, hopeless bool) bool {
	if !hopeless {
		err := c.turn(ctx, done, 0)
		if err == nil && c.trouble <= 10 {
			return false
		}
		c.log().Error("honker: jobs could not be settled at the end; their leases will lapse", "queue", c.q.name, "error", err)
		done = append(done, c.collect()...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range done {
		delete(c.held, h)
	}
	return true
}

func (c *crew) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.held) > 0
}

// abandon releases jobs whose handlers do not return. Work still waits for them.
func (c *crew) abandon(ctx context.Context) {
	c.mu.Lock()
	var rest []*hand
	for h := range c.held {
		if !h.done && !h.claim.settled.Load() {
			rest = append(rest, &hand{claim: h.claim, info: h.info, end: &settlement{claim: h.claim, outcome: Released}})
			c.log().Warn("honker: a handler ignores the end of its context; its job was released",
				"queue", c.q.name, "job", h.claim.ID)
		}
	}
	rest = append(rest, c.finished...)
	c.finished = nil
	clear(c.held)
	c.mu.Unlock()
	_ = c.turn(ctx, rest, 0)
}
