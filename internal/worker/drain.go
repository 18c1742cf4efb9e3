package worker

import (
	"context"
	"errors"
	"time"
)

// CancelGrace is the time that handlers have to return after the drain has cancelled their ctx.
const CancelGrace = time.Second

// settleFailures is the number of consecutive batches that may fail during the drain. After that,
// the leases are left to expire.
const settleFailures = 10

// ErrEnded is the cancellation cause of a handler's ctx when the drain has taken too long.
var ErrEnded = errors.New("honker: work has ended")

// lastTry is the time limit for releasing the jobs of handlers that do not return.
const lastTry = 500 * time.Millisecond

// limitDrain limits the time of the drain. Handlers are cancelled after DrainTimeout, and unsettled
// jobs are abandoned CancelGrace later. In between, handlers can still return and have their jobs
// settled accordingly. stop ends both timers.
func (p *Pool) limitDrain() (stop func()) {
	cancelling := time.AfterFunc(p.DrainTimeout, func() { p.cancelHandlers(ErrEnded) })
	// The sum may overflow.
	over := time.AfterFunc(max(p.DrainTimeout, p.DrainTimeout+CancelGrace), func() { p.giveUp(ErrEnded) })
	return func() {
		cancelling.Stop()
		over.Stop()
	}
}

// drain releases jobs that have not started and waits for the running handlers, within the bounds
// set by limitDrain. At the end it releases the jobs of handlers that have not returned.
func (p *Pool) drain() {
	p.collect()
	p.releaseUnstarted()
	// Once a settle has failed for good, drop the rest without another try: each try may take a
	// BusyTimeout, and the caller of Close is waiting.
	failing := false
	for p.busy() {
		if done := p.takeFinished(); len(done) > 0 {
			failing = failing || !p.settleLast(p.settleCtx, done)
			if failing {
				p.forget(done)
			}
			continue
		}
		select {
		case <-p.signal:
		case <-p.settleCtx.Done():
			p.releaseHeld()
			return
		}
	}
}

// settleLast settles done. It returns false if later tries are pointless, because the file of the
// DB is gone or the writer stays busy.
func (p *Pool) settleLast(ctx context.Context, done []*activeJob) bool {
	err := p.runBatch(ctx, done, 0)
	if err == nil {
		return true
	}
	if p.failures.After(ctx, err) == nil && p.failures.Failures() <= settleFailures {
		return true // runBatch has kept the jobs for another try
	}
	p.Logger.Error("honker: worker: jobs could not be settled at the end; their leases will lapse",
		"queue", p.source.Name, "error", err)
	p.forget(p.takeFinished()) // the failed batch has put its jobs back
	return false
}

// busy reports whether the pool holds any jobs.
func (p *Pool) busy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.held) > 0
}

// releaseHeld releases the jobs of handlers that do not return. Run still waits for these handlers.
func (p *Pool) releaseHeld() {
	p.mu.Lock()
	var rest []*activeJob
	for j := range p.held {
		// Jobs whose handlers have returned are in finished and keep their outcomes.
		if j.returned || j.claim.Settled.Load() {
			continue
		}
		// Use a copy, because the handler may still set the end of the original.
		rest = append(rest, &activeJob{claim: j.claim, row: j.row, handler: j.handler, end: p.source.release(j.claim)})
		p.Logger.Warn("honker: worker: a handler is still running after its context was cancelled; its job was released",
			"queue", j.claim.Queue, "job", j.claim.ID)
	}
	rest = append(rest, p.finished...)
	p.finished = nil
	clear(p.held)
	p.mu.Unlock()
	// Try only once: a lease that cannot be released expires.
	ctx, cancel := context.WithTimeout(context.Background(), lastTry)
	defer cancel()
	_ = p.runBatch(ctx, rest, 0)
}
