package honker

import (
	"context"
	"slices"
	"time"

	"github.com/honker-go/honker/internal/store"
)

// keepLeases starts the renewer unless there is one. The caller holds mu, and a job.
func (c *crew) keepLeases() {
	if !c.renewing {
		c.renewing = true
		c.renewer.Go(c.renew)
	}
}

// renew extends the leases of all jobs held, at a third of their length, until there are
// none.
func (c *crew) renew() {
	tick := time.NewTicker(max(c.opts.Lease/3, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if !c.renewOnce() {
				return
			}
		case <-c.ended:
			return
		}
	}
}

// renewOnce is false when there is nothing to renew.
func (c *crew) renewOnce() bool {
	held := c.unsettled()
	if len(held) == 0 {
		return false
	}
	ids := make([]int64, len(held))
	for i, h := range held {
		ids[i] = h.claim.ID
	}
	var kept []int64
	err := c.q.db.writer.Do(context.Background(), write(func(ctx context.Context, q store.Querier, now time.Time) (err error) {
		kept, err = store.Jobs{}.Renew(ctx, q, ids, c.opts.WorkerID, now.Unix(), now.Unix()+seconds(c.opts.Lease))
		return err
	}))
	if err != nil {
		c.log().Error("honker: leases were not renewed", "queue", c.q.name, "error", err)
		return true
	}
	c.lost(slices.DeleteFunc(held, func(h *hand) bool { return slices.Contains(kept, h.claim.ID) }))
	return true
}

// unsettled are the jobs held whose handlers have not settled them. Without any the
// renewer ends, and the next job starts another.
func (c *crew) unsettled() (hands []*hand) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for h := range c.held {
		if !h.claim.settled.Load() {
			hands = append(hands, h)
		}
	}
	c.renewing = len(hands) > 0
	return hands
}

// lost cancels handlers whose claims were not renewed, unless they have been settled
// meanwhile.
func (c *crew) lost(gone []*hand) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range gone {
		if _, held := c.held[h]; held {
			h.lose()
		}
	}
}

// supersede tells an earlier handler of a job that is here again, by a new claim.
func (c *crew) supersede(id int64) {
	for h := range c.held {
		if h.claim.ID == id {
			h.lose()
		}
	}
}

// lose cancels the handler, unless it has settled the job itself: then it may go on.
func (h *hand) lose() {
	if h.claim.settled.Load() || h.claim.settledTx.Load() {
		return
	}
	if h.lost = true; h.cancel != nil {
		h.cancel(ErrClaimLost)
	}
}
