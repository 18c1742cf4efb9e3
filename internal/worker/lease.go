package worker

import (
	"context"
	"slices"
	"time"

	"github.com/honker-go/honker/internal/engine"
)

// renewLoop extends the leases of all jobs held, at a third of their length and by one
// statement, until ctx ends or no job is held. At a third, two renewals may fail before a claim lapses. It runs
// beside the batches, because those may wait for a handler to finish and a lease may not.
func (p *Pool) renewLoop(ctx context.Context) {
	third := max(p.Lease/3, time.Millisecond)
	engine.Every(ctx, third, func() time.Duration {
		if held := p.unsettled(); len(held) > 0 {
			p.renew(ctx, held)
		} else if p.rest() {
			return 0
		}
		return third
	})
}

// renew extends the leases of held. A failure is logged: two more tries fit into a lease. ctx
// outlives the drain, which waits for handlers: their leases have to hold.
func (p *Pool) renew(ctx context.Context, held []*activeJob) {
	// By id and worker, not by attempt: of one job this worker holds one claim, the last.
	ids := make([]int64, len(held))
	for i, j := range held {
		ids[i] = j.claim.ID
	}
	var kept []int64
	var until int64
	news := p.news(held, time.Now())
	op := news.with(p.source.Jobs, func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
		until = now.Unix() + engine.Seconds(p.Lease)
		kept, err = p.source.Jobs.Renew(ctx, q, ids, p.WorkerID, now.Unix(), until)
		if err != nil || len(kept) == len(ids) {
			return err
		}
		return p.source.Jobs.RenewPlaces(ctx, q, ids, p.WorkerID, now.Unix(), until) // of those that were cancelled
	})
	err := p.source.Engine.Write(ctx, "", op)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		// Not lost yet: only a statement that ran and did not find the claim says so.
		p.Logger.Error("honker: worker: leases not renewed", "queue", p.source.Queue, "error", err)
		return
	}
	news.committed()
	missed := slices.DeleteFunc(held, func(j *activeJob) bool {
		renewed := slices.Contains(kept, j.claim.ID)
		if renewed {
			j.claim.HoldUntil(until)
		}
		return renewed
	})
	if len(missed) > 0 {
		p.cancelGone(context.Background(), missed)
		p.lose(missed)
	}
}

// unsettled are the jobs held that their handlers have not settled. A settled one may stay
// in held until its handler returns, and has no lease any more.
func (p *Pool) unsettled() (jobs []*activeJob) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for j := range p.held {
		if !j.claim.Settled.Load() {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// lose cancels the handlers of jobs with claims that were not renewed, unless a batch has
// settled them meanwhile.
func (p *Pool) lose(jobs []*activeJob) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, j := range jobs {
		if _, held := p.held[j]; held {
			j.loseLocked()
		}
	}
}

// supersedeLocked cancels an earlier handler of a job that this pool has claimed again.
func (p *Pool) supersedeLocked(id int64) {
	for j := range p.held {
		if j.claim.ID == id {
			j.loseLocked()
		}
	}
}

// loseLocked cancels the handler, unless it has settled the job itself: then what it still
// does needs no claim.
func (j *activeJob) loseLocked() {
	if j.cancelled || j.claim.ended() {
		return
	}
	j.lost = true
	if j.cancel != nil {
		j.cancel(engine.ErrClaimLost)
	}
}
