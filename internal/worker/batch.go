package worker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite"
)

// batchOp settles jobs that have finished, and claims more, in one transaction. A commit costs
// more than all of its statements, so the two share one.
type batchOp struct {
	*ClaimOp
	done  []*activeJob
	exact bool // some claim was lost: find out which
}

// Run implements engine.Op.
func (b *batchOp) Run(ctx context.Context, q engine.Querier, now time.Time) error {
	if err := b.saveProgress(ctx, q, now); err != nil {
		return err
	}
	if err := b.ackTogether(ctx, q, now); err != nil {
		return err
	}
	// What is not a plain ack is rare, and each takes statements of its own.
	var failed []row.Attempt
	for _, j := range b.done {
		if j.end == nil || j.together() {
			continue
		}
		if err := j.end.settle(ctx, q, now, b.source.Jobs.Ack); err != nil {
			return err
		}
		failed = j.end.failed(failed)
	}
	if err := b.source.Jobs.AddAttempts(ctx, q, failed); err != nil {
		return err
	}
	if b.Want == 0 {
		return nil
	}
	// After the settles: a job that goes back to the queue may be the next one in its order.
	return b.ClaimOp.Run(ctx, q, now)
}

func (b *batchOp) saveProgress(ctx context.Context, q engine.Querier, now time.Time) error {
	var ends []*SettleOp
	for _, j := range b.done {
		if j.end != nil && j.claim.unsaved() != nil { // few have
			ends = append(ends, j.end)
		}
	}
	return b.source.saveProgress(ctx, q, ends, now)
}

// together reports that j is acked by one statement with others. A job that its handler may
// have settled in a transaction of its own is not: to find its claim gone is not a loss.
func (j *activeJob) together() bool { return j.end.Outcome == Acked && !j.end.mayBeSettled }

// errSomeLost undoes a batch in which some claim was lost, to find out which.
var errSomeLost = errors.New("some claim was lost")

// ackTogether acks all jobs that succeeded, by one statement for each attempt number: the
// jobs of a batch are mostly of the first.
func (b *batchOp) ackTogether(ctx context.Context, q engine.Querier, now time.Time) error {
	// The fence of a settle is (id, worker, attempt). Worker is one for all, so jobs of one
	// attempt differ in their id alone.
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
	// Results only now: those of a job that lost its claim must not be saved.
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

// ackAttempt adds to lost what is no longer held. The first try only counts, because the ids
// of the rows cost a third more and a lost claim is rare.
func (b *batchOp) ackAttempt(ctx context.Context, q engine.Querier, ids []int64, attempt, now int64, lost map[int64]bool) error {
	jobs := b.source.Jobs
	if !b.exact {
		// Fewer rows than ids mean a lost claim. The transaction is undone and comes back with
		// exact set, so that nothing of it was decided on a wrong outcome.
		n, err := jobs.AckAttempt(ctx, q, ids, b.Worker, attempt, now)
		if err != nil {
			return err
		}
		if n < len(ids) {
			return errSomeLost
		}
		return nil
	}
	// The same fence, and the rows that passed it.
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

// newClaim returns a claim of up to want jobs, and of no more than there are slots for by then.
func (p *Pool) newClaim(want int) *ClaimOp {
	c := p.source.NewClaim(p.WorkerID, want, p.Lease)
	c.slots = p.slots
	return c
}

// runBatch settles done and claims up to want jobs, in one commit. After an error that may
// pass, done is settled by a later batch: until then the leases are renewed.
//
// It returns the error, and the caller paces the next try: a batch of the loop waits
// differently from one of the drain.
func (p *Pool) runBatch(ctx context.Context, done []*activeJob, want int) error {
	b := &batchOp{ClaimOp: p.newClaim(want), done: done}
	if err := p.write(ctx, b); err != nil {
		p.keep(ctx, done, err)
		if want > 0 {
			p.source.ClaimFailed(ctx, err)
			// What a trigger refuses may be the claim, which must not undo these settles again: the
			// next batch does without. The wait after it looks for jobs anew.
			p.more = !sqlite.IsConstraint(err)
		}
		return err
	}
	p.failures.Reset()
	// Deferred, since a callback may end this goroutine by runtime.Goexit: the jobs are claimed.
	defer p.start(b.ClaimOp)
	// Observers hear of what is committed, and only then.
	p.settled(done)
	// A claim that was filled may have left jobs behind. One that was not has found the end of
	// the queue, and the next look is that of the wait.
	if want > 0 {
		p.more = b.full()
	}
	if b.paused {
		p.releaseUnstarted() // claimed ahead, before the pause
	}
	return nil
}

// write commits b.
func (p *Pool) write(ctx context.Context, b *batchOp) error {
	err := p.source.Engine.Write(ctx, "", b)
	if errors.Is(err, errSomeLost) {
		b.exact = true
		err = p.source.Engine.Write(ctx, "", b)
	}
	return err
}

// keep leaves done to a later batch. What a rule of the application's, such as a trigger,
// refuses again and again is settled one by one: one job must not hold up the others.
func (p *Pool) keep(ctx context.Context, done []*activeJob, err error) {
	if p.failures.Failures() >= 2 && sqlite.IsConstraint(err) {
		for _, j := range done {
			p.settleAlone(ctx, j)
		}
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// In front: they have waited longest for their settle, and their leases run.
	p.finished = append(done, p.finished...)
}

// settleAlone lets j go if it cannot be settled: its lease will lapse.
func (p *Pool) settleAlone(ctx context.Context, j *activeJob) {
	done := []*activeJob{j}
	b := &batchOp{ClaimOp: p.newClaim(0), done: done, exact: true}
	if err := p.write(ctx, b); err != nil {
		p.forget(done)
		return
	}
	p.settled(done)
}

// settled forgets jobs with claims that have ended, and reports how.
func (p *Pool) settled(done []*activeJob) {
	p.forget(done)
	for _, j := range done {
		// A handler that has settled its job itself has told of it there.
		if j.end == nil || j.end.mayBeSettled && j.end.Became == Lost {
			continue
		}
		p.OnSettled(j.end, j.ran)
		if j.end.Became == Cancelled {
			p.Logger.Info("honker: job cancelled while it was claimed",
				"queue", j.claim.Queue, "job", j.claim.ID, "attempt", j.claim.Attempt)
		}
		// A release that comes too late loses nothing: the handler never ran, or was given up.
		if j.end.Became == Lost && j.end.Outcome != Released {
			p.Logger.Warn("honker: worker: claim lost before the job was settled",
				"queue", j.claim.Queue, "job", j.claim.ID, "attempt", j.claim.Attempt)
			p.reportError(j, engine.WrapID("settle job", j.claim.ID, engine.ErrClaimLost))
		}
	}
}
