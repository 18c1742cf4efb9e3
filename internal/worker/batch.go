package worker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// batchOp settles finished jobs and claims more in one transaction. A commit costs more than all of
// its statements together.
type batchOp struct {
	*ClaimOp
	done  []*activeJob
	exact bool // a claim was lost: find out which
}

// Run implements engine.Op.
func (b *batchOp) Run(ctx context.Context, q engine.Querier, now time.Time) error {
	if err := b.saveProgress(ctx, q, now); err != nil {
		return err
	}
	if err := b.ackTogether(ctx, q, now); err != nil {
		return err
	}
	// Other outcomes than a plain ack are rare. Each takes its own statements.
	var failed []row.Attempt
	for _, j := range b.done {
		if j.end == nil || j.together() {
			continue
		}
		if err := j.end.settle(ctx, q, now, b.source.Engine.Stores.Jobs.Ack); err != nil {
			return err
		}
		failed = j.end.failed(failed)
	}
	if err := b.source.Engine.Stores.Jobs.AddAttempts(ctx, q, failed); err != nil {
		return err
	}
	if b.Want == 0 {
		return nil
	}
	// Claim after the settles: a job that returns to the queue may be next in its order.
	return b.ClaimOp.Run(ctx, q, now)
}

func (b *batchOp) saveProgress(ctx context.Context, q engine.Querier, now time.Time) error {
	var ends []*SettleOp
	for _, j := range b.done {
		if j.end != nil && j.claim.unsaved() != nil { // rare
			ends = append(ends, j.end)
		}
	}
	return b.source.saveProgress(ctx, q, ends, now)
}

// together reports whether j can be acked in the same statement as other jobs. A job whose handler
// may have settled it in its own transaction cannot, because a missing claim is no loss then.
func (j *activeJob) together() bool { return j.end.Outcome == Acked && !j.end.mayBeSettled }

// errSomeLost rolls back a batch that contains a lost claim. The batch then runs again to find out
// which claim it was.
var errSomeLost = errors.New("a claim of the batch was lost")

// ackTogether acks all jobs that succeeded, with one statement per attempt number. Most jobs of a
// batch are on their first attempt.
func (b *batchOp) ackTogether(ctx context.Context, q engine.Querier, now time.Time) error {
	// A settle is fenced by (id, worker, attempt). The worker is the same for the whole batch, so
	// jobs with equal attempt numbers differ only in their ids.
	byAttempt := make(map[int64][]int64, 1)
	for _, j := range b.done {
		if j.end != nil && j.together() {
			byAttempt[j.claim.Attempt] = append(byAttempt[j.claim.Attempt], j.claim.ID)
		}
	}
	lost := make(map[int64]bool) // by id
	for attempt, ids := range byAttempt {
		if err := b.ackAttempt(ctx, q, ids, attempt, now.Unix(), lost); err != nil {
			return err
		}
	}
	// Save results only now: the result of a job with a lost claim must not be saved.
	for _, j := range b.done {
		if j.end == nil || !j.together() {
			continue
		}
		if err := j.end.finish(ctx, q, now, !lost[j.claim.ID], false); err != nil {
			return err
		}
	}
	return nil
}

// ackAttempt acks the jobs with the given ids and adds the ids of lost claims to lost. The first
// try only counts rows: returning ids costs a third more, and lost claims are rare.
func (b *batchOp) ackAttempt(ctx context.Context, q engine.Querier, ids []int64, attempt, now int64, lost map[int64]bool) error {
	jobs := b.source.Engine.Stores.Jobs
	if !b.exact {
		// Fewer rows than ids mean a lost claim. Roll back and run again with exact set, so that no
		// other decision in this transaction rests on a wrong outcome.
		n, err := jobs.AckAttempt(ctx, q, ids, b.Worker, attempt, now)
		if err != nil {
			return err
		}
		if n < len(ids) {
			return errSomeLost
		}
		return nil
	}
	// The fence is the same, but the statement returns the ids of the acked rows.
	acked, err := jobs.AckAttemptIDs(ctx, q, ids, b.Worker, attempt, now)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if !slices.Contains(acked, id) {
			lost[id] = true
		}
	}
	return nil
}

// newClaim returns a claim of up to want jobs. When it runs, the free slots may lower that number.
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
	b := &batchOp{ClaimOp: p.newClaim(want), done: done}
	if err := p.write(ctx, b); err != nil {
		p.keep(ctx, done, err)
		if want > 0 {
			p.source.ClaimFailed(ctx, err)
			// A trigger may have refused the claim. The next batch does without a claim, so that
			// its settles are not rolled back again. The wait after it looks for jobs anew.
			p.more = !p.source.Engine.Refused(err)
		}
		return err
	}
	p.failures.Reset()
	// Deferred: the jobs are claimed even if a callback ends this goroutine with runtime.Goexit.
	defer p.start(b.ClaimOp)
	// Observers must see committed changes only.
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
	if errors.Is(err, errSomeLost) {
		b.exact = true
		err = p.source.Engine.Write(ctx, "", b)
	}
	return err
}

// keep returns done to the jobs that wait to be settled. After repeated constraint errors, for
// instance from a trigger of the application, it settles each job in its own transaction, so that a
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
	// In front: these jobs have waited longest, and their leases are running.
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
		if j.end == nil || j.end.mayBeSettled && j.end.Became == Lost {
			continue
		}
		p.OnSettled(j.end, j.ran)
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
