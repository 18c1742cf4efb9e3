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

// lastTry bounds the release of jobs with handlers that do not return.
const lastTry = 500 * time.Millisecond

// limitDrain bounds the end of the work: handlers are told to stop after DrainTimeout, and a
// moment later what is not settled is given up. One that heeds its ctx can return meanwhile, and
// is settled by what it returns.
func (p *Pool) limitDrain() (stop func()) {
	cancelling := time.AfterFunc(p.DrainTimeout, func() { p.cancelHandlers(ErrEnded) })
	// The sum may overflow.
	over := time.AfterFunc(max(p.DrainTimeout, p.DrainTimeout+CancelGrace), func() { p.giveUp(ErrEnded) })
	return func() {
		cancelling.Stop()
		over.Stop()
	}
}

// drain ends the work, see limitDrain. What has not started is released, and handlers finish;
// at the end what they still hold is released.
func (p *Pool) drain() {
	p.releaseUnstarted()
	// Once a settle has failed for good, the rest is let go without another try: each try may
	// take a BusyTimeout, and the caller of Close is waiting.
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

// releaseHeld releases jobs with handlers that do not return. Run still waits for the handlers.
func (p *Pool) releaseHeld() {
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
			"queue", j.claim.Queue, "job", j.claim.ID)
	}
	rest = append(rest, p.finished...)
	p.finished = nil
	clear(p.held)
	p.mu.Unlock()
	// Without another try: a lease that cannot be given back lapses.
	ctx, cancel := context.WithTimeout(context.Background(), lastTry)
	defer cancel()
	_ = p.runBatch(ctx, rest, 0)
}
