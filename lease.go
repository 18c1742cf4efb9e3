package honker

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/honker-go/honker/internal/store"
)

// renew extends the leases of all jobs held, at a third of their length.
func (c *crew) renew(stop <-chan struct{}) {
	tick := time.NewTicker(max(c.opts.Lease/3, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			c.renewOnce()
		case <-stop:
			return
		}
	}
}

func (c *crew) renewOnce() {
	c.mu.Lock()
	held := maps.Clone(c.held)
	c.mu.Unlock()
	if len(held) == 0 {
		return
	}
	ids := slices.Collect(maps.Keys(held))
	var kept []int64
	err := c.q.db.writer.Do(context.Background(), write(func(ctx context.Context, q store.Querier, now time.Time) (err error) {
		kept, err = store.Renew(ctx, q, ids, c.opts.WorkerID, now.Unix(), now.Unix()+seconds(c.opts.Lease))
		return err
	}))
	if err != nil {
		c.log().Error("honker: leases were not renewed", "queue", c.q.name, "error", err)
		return
	}
	for _, id := range kept {
		delete(held, id)
	}
	c.lost(held)
}

// lost cancels handlers whose claims were not renewed, unless they have been settled
// meanwhile: their job may be here again, by another claim.
func (c *crew) lost(gone map[int64]*hand) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, h := range gone {
		if c.held[id] != h {
			continue
		}
		if h.lost = true; h.cancel != nil {
			h.cancel(ErrClaimLost)
		}
	}
}
