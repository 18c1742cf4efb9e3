package worker

import (
	"context"
	"slices"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// renewLoop renews the leases of all held jobs with one statement after every third of their
// length, so that two renewals can fail before a claim expires. It also renews them early to save the
// starts of handlers that last. It returns when ctx ends or the pool holds no jobs. It runs beside the
// batches, because a batch may wait for a handler and a lease cannot.
func (p *Pool) renewLoop(ctx context.Context) {
	third := max(p.Lease/3, time.Millisecond)
	due := time.Now().Add(third)
	engine.Every(ctx, min(third, startAge), func() time.Duration {
		held := p.unsettled()
		isDue := !time.Now().Before(due)
		switch {
		case len(held) > 0 && (isDue || p.anyLasts(held)):
			p.renew(ctx, held)
			due = time.Now().Add(third)
		case isDue && len(held) == 0 && p.rest():
			return 0
		case isDue:
			due = time.Now().Add(third)
		}
		return min(startAge, max(time.Until(due), time.Millisecond))
	})
}

// anyLasts reports whether the start of any job in held is due to be saved.
func (p *Pool) anyLasts(held []*activeJob) bool {
	now := p.source.Engine.Now()
	return slices.ContainsFunc(held, func(j *activeJob) bool { return j.claim.lasts(now) })
}

// renew extends the leases of held. Failures are logged only, since a lease leaves time for two
// more tries. ctx outlives the drain: the leases must hold while the drain waits for handlers.
func (p *Pool) renew(ctx context.Context, held []*activeJob) {
	ids := make([]int64, len(held))
	for i, j := range held {
		ids[i] = j.claim.ID
	}
	var kept []int64
	var until int64
	news := p.news(held, time.Now())
	op := news.with(func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
		until = now.Unix() + engine.Seconds(p.Lease)
		r := row.Renewal{Worker: p.WorkerID, IDs: ids, Lease: p.Lease, Progress: news.all, Starts: news.starts}
		kept, err = p.source.Engine.Stores.Jobs.Renew(ctx, q, r, now)
		return err
	})
	err := p.source.Engine.Write(ctx, "", op)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		// The claims are not lost yet. Only a successful statement that did not find a claim shows
		// that.
		p.Logger.Error("honker: worker: leases not renewed", "queue", p.source.Name, "error", err)
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

// unsettled returns the held jobs that their handlers have not settled. A job settled by its
// handler has no lease any more but stays in held until the handler returns.
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

// lose cancels the handlers of jobs whose claims were not renewed, unless a batch has settled them
// in the meantime.
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

// loseLocked cancels the handler, unless it has settled the job itself and needs no claim for the
// rest of its work.
func (j *activeJob) loseLocked() {
	if j.cancelled || j.claim.ended() {
		return
	}
	j.lost = true
	if j.cancel != nil {
		j.cancel(engine.ErrClaimLost)
	}
}
