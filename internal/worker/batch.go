package worker

import (
	"context"
	"errors"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// batchOp settles finished jobs and claims more in one transaction. A commit costs more than all of
// its statements together.
type batchOp struct {
	*ClaimOp
	done  []*activeJob
	exact bool // a claim was lost; find out which

	asked int // Want, before slots may have reduced it

	// Of a batch beside others, after its write.
	err    error
	lasted time.Duration
}

// Run implements engine.Op.
func (b *batchOp) Run(ctx context.Context, q engine.Querier, now time.Time) error {
	step := row.Step{Settle: b.settlements(), Exact: b.exact}
	if b.Want > 0 {
		step.Claim = b.prepare()
	}
	claimed, err := b.source.Engine.Stores.Jobs.Step(ctx, q, step, now)
	if err != nil {
		return err
	}
	for _, j := range b.done {
		if j.end != nil {
			j.end.settled(now)
		}
	}
	if step.Claim != nil {
		b.took(claimed)
	}
	return nil
}

// Again implements engine.Fenced. Jobs that an earlier run has claimed stay claimed until their leases expire.
func (b *batchOp) Again() {
	for _, j := range b.done {
		if j.end != nil {
			j.end.repeated = true
		}
	}
}

// settlements returns the settlements of the finished jobs.
func (b *batchOp) settlements() []*row.Settlement {
	if len(b.done) == 0 {
		return nil
	}
	all := make([]*row.Settlement, 0, len(b.done))
	for _, j := range b.done {
		if j.end != nil {
			all = append(all, j.end.prepare())
		}
	}
	return all
}

// newClaim returns a claim of up to want jobs, or fewer if fewer slots are free when it runs.
func (p *Pool) newClaim(want int) *ClaimOp {
	c := p.source.NewClaim(p.WorkerID, want, p.Lease)
	c.slots = p.slots
	return c
}

// runBatch settles done and claims up to want jobs in one commit. After a temporary error, done is
// kept for a later batch and its leases are renewed until then.
//
// The caller paces the next try, because the loop and the drain wait differently.
func (p *Pool) runBatch(ctx context.Context, done []*activeJob, want int) error {
	b := &batchOp{ClaimOp: p.newClaim(want), done: done, asked: want}
	return p.endBatch(ctx, b, p.write(ctx, b))
}

// endBatch applies the outcome of a write, or its error.
func (p *Pool) endBatch(ctx context.Context, b *batchOp, err error) error {
	done, want := b.done, b.asked
	if err != nil {
		p.keep(ctx, done, err)
		if want > 0 {
			p.source.ClaimFailed(ctx, err)
			// A trigger may have refused the claim. The next batch only settles, because another
			// refused claim would roll back its settles again. Then waitForWork looks for jobs.
			p.more = !p.source.Engine.Refused(err)
		}
		return err
	}
	p.failures.Reset()
	// Deferred: the jobs are claimed even if a callback ends this goroutine with runtime.Goexit.
	defer p.start(b.ClaimOp)
	// Only now, because observers must see nothing but committed changes.
	p.settled(done)
	// A full claim may have left jobs behind. Otherwise the claim has reached the end of the queue,
	// and waitForWork looks again.
	if want > 0 {
		p.more = b.full()
	}
	if b.paused {
		p.releaseUnstarted() // jobs that were claimed ahead, before the pause
	}
	return nil
}

// write commits b. If a claim was lost, it runs b a second time with exact set.
func (p *Pool) write(ctx context.Context, b *batchOp) error {
	err := p.source.Engine.Write(ctx, "", b)
	if errors.Is(err, row.ErrClaimsLost) {
		b.exact = true
		err = p.source.Engine.Write(ctx, "", b)
	}
	return err
}

// keep puts done back into finished, for a later batch. After repeated constraint errors, for
// instance from an application's trigger, it settles each job in its own transaction, so that a
// single job cannot hold up the others.
func (p *Pool) keep(ctx context.Context, done []*activeJob, err error) {
	if p.failures.Failures() >= 2 && p.source.Engine.Refused(err) {
		for _, j := range done {
			p.settleAlone(ctx, j)
		}
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// These jobs go to the front. They have waited longest, and their leases are running.
	p.finished = append(done, p.finished...)
}

// settleAlone settles j in its own transaction. If that fails, the pool drops the job and its lease
// expires.
func (p *Pool) settleAlone(ctx context.Context, j *activeJob) {
	done := []*activeJob{j}
	b := &batchOp{ClaimOp: p.newClaim(0), done: done, exact: true}
	if err := p.write(ctx, b); err != nil {
		p.forget(done)
		return
	}
	p.settled(done)
}

// settled drops jobs whose claims have ended and reports their outcomes.
func (p *Pool) settled(done []*activeJob) {
	p.forget(done)
	for _, j := range done {
		// A handler that settled its job itself has already reported the outcome.
		if j.end == nil || j.end.Ended && j.end.Became == Lost {
			continue
		}
		j.handler.OnSettled(j.end, j.ran)
		if j.end.Became == Cancelled {
			p.Logger.Info("honker: job cancelled while it was claimed",
				"queue", j.claim.Queue, "job", j.claim.ID, "attempt", j.claim.Attempt)
		}
		// A late release loses nothing: the handler never ran, or the drain abandoned it.
		if j.end.Became == Lost && j.end.Outcome != Released {
			p.Logger.Warn("honker: worker: claim lost before the job was settled",
				"queue", j.claim.Queue, "job", j.claim.ID, "attempt", j.claim.Attempt)
			p.reportError(j, engine.WrapID("settle job", j.claim.ID, engine.ErrClaimLost))
		}
	}
}
