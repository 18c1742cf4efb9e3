package relay

import (
	"context"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/store"
)

// sweepLoop deletes finished messages that are still in the file, and warns of messages that no
// processor will take: at once, and then each VacuumEvery.
func (r *run) sweepLoop(ctx context.Context) {
	engine.Every(ctx, 0, func() time.Duration {
		if err := r.sweep(ctx); err != nil && ctx.Err() == nil {
			r.relay.engine.Logger.Error("honker: relay: sweep failed", "error", err)
		}
		return r.relay.opts.VacuumEvery
	})
}

func (r *run) sweep(ctx context.Context) error {
	if err := r.warnOfStrays(ctx); err != nil {
		return err
	}
	for name := range r.handlers {
		if err := r.vacuum(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// warnOfStrays tells of messages in partitions that do not exist.
func (r *run) warnOfStrays(ctx context.Context) error {
	var strays []store.RelayPartition
	err := r.relay.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		strays, err = r.relay.store.Strays(ctx, q)
		return err
	})
	for _, p := range strays {
		r.relay.engine.Logger.Warn("honker: relay: there are messages in a partition that does not exist; they stay in the file",
			"queue", p.Queue, "partition", p.Partition)
	}
	return err
}

// Chunks of a vacuum: how many messages the first one deletes and the largest one, and how long a
// chunk should hold the writer.
const (
	vacuumFirst = 100
	vacuumMost  = 10_000
	vacuumHold  = 10 * time.Millisecond
)

// vacuum deletes the finished messages of a queue in chunks, and leaves the writer free for as
// long as each has taken. Without any it only reads.
func (r *run) vacuum(ctx context.Context, queue string) error {
	var some bool
	err := r.relay.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		some, err = r.relay.store.Finished(ctx, q, queue)
		return err
	})
	if err != nil {
		return err
	}
	for limit, deleted := vacuumFirst, 0; some; {
		began := time.Now()
		err := r.relay.engine.Write(ctx, "", engine.SingleOp(func(ctx context.Context, q engine.Querier, _ time.Time) (err error) {
			deleted, err = r.relay.store.Vacuum(ctx, q, queue, limit)
			return err
		}))
		if err != nil {
			return err
		}
		took := time.Since(began)
		some = deleted == limit
		if took < vacuumHold/2 {
			limit = min(2*limit, vacuumMost)
		} else if took > vacuumHold {
			limit = max(limit/2, vacuumFirst/10)
		}
		if some {
			if err := engine.Sleep(ctx, took); err != nil {
				return err
			}
		}
	}
	return nil
}
