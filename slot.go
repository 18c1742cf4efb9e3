package honker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// hand is a job that a crew holds.
type hand struct {
	claim  *claim
	info   *JobInfo
	stored any         // the payload as it lies in the file
	end    *settlement // nil: nothing is left to settle
	began  time.Time
	ran    time.Duration

	cancel context.CancelCauseFunc // of a running handler; guarded by crew.mu
	lost   bool                    // the claim, before the handler ran; guarded by crew.mu
	done   bool                    // the handler has returned; guarded by crew.mu
}

// slot runs handlers, one after another, until there are no more jobs.
func (c *crew) slot() {
	defer c.slots.Done()
	for h := range c.jobs {
		c.handle(h)
	}
}

// handle runs one job and hands it in for settling.
func (c *crew) handle(h *hand) {
	if c.stopping.Load() || c.isLost(h) {
		c.handIn(h, &settlement{outcome: Released})
		return
	}
	err, ended := errGoexit, false
	defer func() {
		if !ended { // runtime.Goexit took this goroutine: t.FailNow in a handler, say
			c.handIn(h, &settlement{outcome: Retried, cause: err, text: describe(err), delay: time.Second})
			c.slots.Add(1)
			go c.slot()
			if err == errGoexit {
				c.tell(h, err)
			}
		}
	}()
	ctx, cancel := c.begin(h)
	defer cancel()
	err = c.attempt(ctx, h)
	end := c.verdict(h, err)
	ended = true
	c.handIn(h, end)
}

func (c *crew) isLost(h *hand) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return h.lost
}

var errGoexit = errors.New("the handler ended its goroutine")

// begin makes the handler's ctx.
func (c *crew) begin(h *hand) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(c.hard)
	c.mu.Lock()
	h.cancel = cancel
	c.mu.Unlock()
	h.began = time.Now()
	end := func() { cancel(nil) }
	if d := c.q.opts.Timeout; d > 0 {
		ctx, end = context.WithTimeoutCause(ctx, d, timeoutError(d))
		return ctx, func() { end(); cancel(nil) }
	}
	return ctx, end
}

type timeoutError time.Duration

func (t timeoutError) Error() string { return fmt.Sprintf("timeout after %v", time.Duration(t)) }

// attempt runs the handler. A panic is an error with its stack.
func (c *crew) attempt(ctx context.Context, h *hand) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n\n%s", p, debug.Stack())
		}
		h.ran = time.Since(h.began)
		var timeout timeoutError
		if err != nil && errors.As(context.Cause(ctx), &timeout) {
			err = fmt.Errorf("%w: %w", timeout, err)
		}
	}()
	return c.run(ctx, h)
}

// verdict decides how the claim ends after an attempt that returned err.
func (c *crew) verdict(h *hand, err error) *settlement {
	said, steered := c.steered(err)
	quiet := h.claim.settledTx.Load()
	switch {
	case h.claim.settled.Load():
		return nil
	case err == nil:
		return &settlement{outcome: Acked, resultTTL: c.q.opts.ResultTTL, quiet: quiet}
	case !steered && c.hard.Err() != nil:
		return &settlement{outcome: Released} // Work has ended, not the handler
	case steered && said.outcome == Snoozed:
		return &settlement{outcome: Snoozed, delay: said.delay}
	}
	c.tell(h, err)
	end := &settlement{outcome: Retried, cause: err, text: describe(err), quiet: quiet}
	if steered {
		end.outcome, end.delay = said.outcome, said.delay
	} else {
		end.delay = c.backoff(h, err)
	}
	return end
}

// steered finds what the handler has said. Its error is the handler's code, too.
func (c *crew) steered(err error) (said *steer, ok bool) {
	defer c.contain("the handler's error")
	ok = errors.As(err, &said)
	return said, ok
}

// tell calls OnError, which must not take the process down either.
func (c *crew) tell(h *hand, err error) {
	if c.opts.OnError == nil {
		return
	}
	defer c.contain("OnError")
	c.opts.OnError(c.hard, h.info, err)
}

func (c *crew) backoff(h *hand, err error) (d time.Duration) {
	d = time.Minute // should Backoff panic
	defer c.contain("Backoff")
	return max(0, c.q.opts.Backoff(h.info.Attempts, err))
}

func (c *crew) contain(what string) {
	if p := recover(); p != nil {
		c.log().Error("honker: "+what+" panicked", "queue", c.q.name, "panic", p, "stack", string(debug.Stack()))
	}
}
