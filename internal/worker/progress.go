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

// startAge is the age at which the start of an attempt is written, so that shorter attempts cost nothing.
const startAge = 2 * time.Second

// lasts reports whether the start of c's attempt is due to be written: it is startAge old and not in the file yet.
func (c *Claim) lasts(now time.Time) bool {
	if c.Pooled && !c.started.Load() || c.startSaved.Load() {
		return false
	}
	return !c.Made.IsZero() && now.Sub(c.Made) >= startAge
}

// noted collects the progress and the starts to be written. All claims must belong to the same worker.
type noted struct {
	claims []*Claim
	values []*row.Progress // progress of claims at the time of add
	all    []row.ProgressOf

	lasting []*Claim
	starts  []row.StartOf // of lasting
}

// addStart adds the start of c's attempt if it is due.
func (n *noted) addStart(c *Claim, now time.Time) {
	if c.lasts(now) {
		n.lasting, n.starts = append(n.lasting, c), append(n.starts, row.StartOf{ID: c.ID, Attempt: c.Attempt, At: c.Made})
	}
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

// committed marks the progress and the starts as saved. It must be called after the commit.
func (n *noted) committed() {
	for _, c := range n.lasting {
		c.startSaved.Store(true)
	}
	for i, c := range n.claims {
		c.saved.Store(n.values[i])
	}
}

// with returns run, which renews leases and saves the progress and the starts, as an Op. These take further statements,
// and therefore a transaction.
func (n *noted) with(run engine.SingleOp) engine.Op {
	if len(n.all) == 0 && len(n.starts) == 0 {
		return run
	}
	return engine.OpFunc(run)
}

// Extend returns an Op that extends the lease of c to by after the time of the transaction, and saves c's
// unsaved progress and start.
func (s *Source) Extend(c *Claim, by time.Duration) engine.Op {
	var n noted
	n.add(c)
	n.addStart(c, s.Engine.Now())
	e := row.Extension{Claim: c.Claim, Lease: by, Progress: c.unsaved()}
	if len(n.starts) > 0 {
		e.Start = c.Made
	}
	return n.with(func(ctx context.Context, q engine.Querier, now time.Time) error {
		held, err := s.Engine.Stores.Jobs.Extend(ctx, q, e, now)
		if err == nil && !held {
			return engine.ErrClaimLost // nothing has changed, so the rollback of an error is harmless
		}
		if err == nil {
			c.HoldUntil(now.Unix() + engine.Seconds(by))
		}
		return err
	})
}

// news returns the starts and the unsaved progress of held, without progress if the last write of progress was less
// than progressPause ago.
func (p *Pool) news(held []*activeJob, now time.Time) (n noted) {
	backend := p.source.Engine.Now()
	for _, j := range held {
		n.addStart(j.claim, backend)
	}
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
