package worker

import (
	"context"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// progressPause is how often a pool writes progress at most.
const progressPause = time.Second

// SetProgress notes how far the handler is, for the next renewal of the lease, or the settle. From one that has
// returned it has no effect.
func (c *Claim) SetProgress(p row.Progress) {
	if !c.returned.Load() && !c.Settled.Load() {
		c.progress.Store(&p)
	}
}

// unsaved is what was noted and is not in the file; nil: nothing.
func (c *Claim) unsaved() *row.Progress {
	if p := c.progress.Load(); p != c.saved.Load() {
		return p
	}
	return nil
}

// noted is progress on its way to the file. All of it is of claims of one worker.
type noted struct {
	claims []*Claim
	values []*row.Progress // of these, as they were noted
	all    []row.ProgressOf
}

// add takes what is not saved of a claim.
func (n *noted) add(c *Claim) {
	p := c.unsaved()
	if p == nil {
		return
	}
	n.claims, n.values = append(n.claims, c), append(n.values, p)
	n.all = append(n.all, row.ProgressOf{ID: c.ID, Attempt: c.Attempt, Progress: *p})
}

// save writes it; see [store.Jobs.SaveProgress].
func (n *noted) save(ctx context.Context, jobs Jobs, q engine.Querier, acked bool, now time.Time) error {
	if len(n.all) == 0 {
		return nil
	}
	return jobs.SaveProgress(ctx, q, n.all, n.claims[0].Worker, acked, now.Unix())
}

// committed is called when it is.
func (n *noted) committed() {
	for i, c := range n.claims {
		c.saved.Store(n.values[i])
	}
}

// with is run, which renews leases by one statement, and takes the progress along.
func (n *noted) with(jobs Jobs, run engine.SingleOp) engine.Op {
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

// WithProgress is run, which renews the lease of c by one statement, and takes along what was noted.
func (s *Source) WithProgress(c *Claim, run engine.SingleOp) engine.Op {
	var n noted
	n.add(c)
	return n.with(s.Jobs, run)
}

// saveProgress writes what was noted for claims that are about to be settled: a dead job keeps it, and so does one
// that is kept when it is done.
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
	if err := acked.save(ctx, s.Jobs, q, true, now); err != nil {
		return err
	}
	return others.save(ctx, s.Jobs, q, false, now)
}

// news is the progress of held, as far as it may be written by now.
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
