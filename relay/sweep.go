package relay

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// sweepLoop deletes finished messages that are still in the database and warns about messages that
// can never be delivered. It starts immediately and repeats every VacuumEvery.
func (r *run) sweepLoop(ctx context.Context) {
	engine.Every(ctx, 0, func() time.Duration {
		if err := r.sweep(ctx); err != nil && ctx.Err() == nil {
			r.relay.engine.Logger.Error("honker: relay: sweep failed", "error", err)
		}
		return r.relay.opts.VacuumEvery
	})
}

func (r *run) sweep(ctx context.Context) error {
	queues := slices.Collect(maps.Keys(r.handlers))
	var left row.RelayLeftovers
	err := r.relay.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		left, err = r.relay.store.Leftovers(ctx, q, queues)
		return err
	})
	if err != nil {
		return err
	}
	for _, p := range left.Strays {
		r.relay.engine.Logger.Warn("honker: relay: messages of a partition that does not exist are never delivered; they stay in the file",
			"queue", p.Queue, "partition", p.Partition)
	}
	for _, name := range left.Finished {
		if err := r.vacuum(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// vacuum deletes a queue's finished messages in small transactions.
func (r *run) vacuum(ctx context.Context, queue string) error {
	for p := r.relay.engine.NewPace(); ; {
		limit, deleted := p.Size, 0
		err := p.Write(ctx, func(ctx context.Context, q engine.Querier, _ time.Time) (err error) {
			deleted, err = r.relay.store.Vacuum(ctx, q, queue, limit)
			return err
		})
		if err != nil || deleted < limit {
			return err
		}
		if err := p.Rest(ctx); err != nil {
			return err
		}
	}
}
