package worker

import (
	"context"
	"errors"
	"time"
)

// CancelGrace is what a handler has to return after its ctx was cancelled at the end of the
// drain.
const CancelGrace = time.Second

// settleFailures is how many batches in a row may fail at the end before the leases are left
// to lapse.
const settleFailures = 10

// ErrEnded is the cause of the end of a handler's ctx when the drain has taken too long.
var ErrEnded = errors.New("honker: work has ended")

// drain ends the work. What has not started is released, and handlers finish. After
// DrainTimeout their ctx is cancelled; soon after that, what they still hold is released.
func (p *Pool) drain() {
	// Not the ctx of Run, which has ended: what is done now is done to end well.
	ctx := context.Background()
	p.releaseUnstarted()
	// A timer of its own cancels, because a batch may be waiting for the disk.
	// Handlers are told to stop a moment before they are given up, so that one that heeds its
	// ctx can return, and is settled by what it returns.
	cancelling := time.AfterFunc(p.DrainTimeout, func() { p.cancelHandlers(ErrEnded) })
	defer cancelling.Stop()
	over := time.NewTimer(max(p.DrainTimeout, p.DrainTimeout+CancelGrace)) // the sum may overflow
	defer over.Stop()
	// Once a settle has failed for good, the rest is let go without another try: each try may
	// take a BusyTimeout, and the caller of Close is waiting.
	failing := false
	for p.busy() {
		if done := p.takeFinished(); len(done) > 0 {
			failing = failing || !p.settleLast(ctx, done)
			if failing {
				p.forget(done)
			}
			continue
		}
		select {
		case <-p.signal:
		case <-over.C:
			p.giveUp(ctx)
			return
		}
	}
}

// settleLast settles done, and returns false when there is no hope of it any more: the DB's file
// is gone, or the writer stays busy.
func (p *Pool) settleLast(ctx context.Context, done []*activeJob) bool {
	err := p.runBatch(ctx, done, 0)
	if err == nil {
		return true
	}
	if p.failures.After(ctx, err) == nil && p.failures.Failures() <= settleFailures {
		return true // the batch is kept, and tried again
	}
	p.Logger.Error("honker: worker: jobs could not be settled at the end; their leases will lapse",
		"queue", p.source.Queue, "error", err)
	p.forget(p.takeFinished()) // the failed batch has put its jobs back
	return false
}

func (p *Pool) busy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.held) > 0
}

// giveUp releases jobs with handlers that do not return. Run still waits for the handlers.
func (p *Pool) giveUp(ctx context.Context) {
	p.mu.Lock()
	var rest []*activeJob
	for j := range p.held {
		// What has returned is in finished, and is settled as its handler wanted.
		if j.returned || j.claim.Settled.Load() {
			continue
		}
		// A copy: the handler may still set the end of its own.
		rest = append(rest, &activeJob{claim: j.claim, row: j.row, end: p.source.release(j.claim)})
		p.Logger.Warn("honker: worker: a handler ignores the end of its context; its job was released",
			"queue", p.source.Queue, "job", j.claim.ID)
	}
	rest = append(rest, p.finished...)
	p.finished = nil
	clear(p.held)
	p.mu.Unlock()
	// Without another try: a lease that cannot be given back lapses.
	_ = p.runBatch(ctx, rest, 0)
}
