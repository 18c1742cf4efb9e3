package worker

import (
	"context"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// progressPause is the minimum time between two writes of progress by a pool.
const progressPause = time.Second

// SetProgress records the progress of the handler. The next renewal of the lease, or the settle,
// writes it to the file. It has no effect after the handler has returned or settled its job.
func (c *Claim) SetProgress(p row.Progress) {
	if !c.returned.Load() && !c.Settled.Load() {
		c.progress.Store(&p)
	}
}

// unsaved returns the recorded progress if it is not in the file yet, and nil otherwise.
func (c *Claim) unsaved() *row.Progress {
	if p := c.progress.Load(); p != c.saved.Load() {
		return p
	}
	return nil
}

// noted collects progress that is to be written. All claims must belong to the same worker.
type noted struct {
	claims []*Claim
	values []*row.Progress // progress of claims at the time of add
	all    []row.ProgressOf
}

// add adds the unsaved progress of c, if any.
func (n *noted) add(c *Claim) {
	p := c.unsaved()
	if p == nil {
		return
	}
	n.claims, n.values = append(n.claims, c), append(n.values, p)
	n.all = append(n.all, row.ProgressOf{ID: c.ID, Attempt: c.Attempt, Progress: *p})
}

// save writes the collected progress; see [store.Jobs.SaveProgress].
func (n *noted) save(ctx context.Context, jobs engine.JobStore, q engine.Querier, acked bool, now time.Time) error {
	if len(n.all) == 0 {
		return nil
	}
	return jobs.SaveProgress(ctx, q, n.all, n.claims[0].Worker, acked, now.Unix())
}

// committed marks the progress as saved. It must be called after the commit.
func (n *noted) committed() {
	for i, c := range n.claims {
		c.saved.Store(n.values[i])
	}
}

// with returns an Op that calls run, which renews leases with a single statement, and then saves
// the progress.
func (n *noted) with(jobs engine.JobStore, run engine.SingleOp) engine.Op {
	if len(n.all) == 0 {
		return run
	}
	return engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) error {
		if err := run(ctx, q, now); err != nil {
			return err
		}
		return n.save(ctx, jobs, q, false, now)
	})
}

// WithProgress returns an Op that calls run, which renews the lease of c with a single statement,
// and then saves the unsaved progress of c.
func (s *Source) WithProgress(c *Claim, run engine.SingleOp) engine.Op {
	var n noted
	n.add(c)
	return n.with(s.Engine.Stores.Jobs, run)
}

// saveProgress writes the unsaved progress of claims that are about to be settled. Dead jobs keep
// their progress, and so do jobs that are kept when they are done.
func (s *Source) saveProgress(ctx context.Context, q engine.Querier, ends []*SettleOp, now time.Time) error {
	var acked, others noted
	for _, end := range ends {
		switch end.Outcome {
		case Acked:
			acked.add(end.Claim)
		case Cancelled:
		default:
			others.add(end.Claim)
		}
	}
	if err := acked.save(ctx, s.Engine.Stores.Jobs, q, true, now); err != nil {
		return err
	}
	return others.save(ctx, s.Engine.Stores.Jobs, q, false, now)
}

// news returns the unsaved progress of held, or nothing if the last write was less than
// progressPause ago.
func (p *Pool) news(held []*activeJob, now time.Time) (n noted) {
	if now.Sub(p.progressAt) < progressPause {
		return n
	}
	for _, j := range held {
		n.add(j.claim)
	}
	if len(n.all) > 0 {
		p.progressAt = now
	}
	return n
}
