package dispatch

import (
	"context"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/store"
)

// QueueStats is how much lies in a queue.
type QueueStats struct {
	Queue    string
	Target   Target    // that it belongs to
	Depth    int       // jobs that wait, those that are not due yet included
	InFlight int       // jobs that are claimed
	Oldest   time.Time // when the first of those that wait was sent, to the second; zero: none waits
}

// Stats counts what lies in each of the canonical queues that have jobs, ordered by queue. It is
// counted at the time of the call: an entry of an index for each job, a tenth of a second for a
// million. It never waits for the writer.
func (d *Dispatcher) Stats(ctx context.Context) (all []QueueStats, err error) {
	if d.err != nil {
		return nil, fail("stats", "", d.err)
	}
	err = d.engine.Read(ctx, func(ctx context.Context, q engine.Querier) error {
		all = nil
		queues, err := store.Jobs{}.Queues(ctx, q)
		if err != nil {
			return err
		}
		targets := make(map[string]Target)
		var canonical []string
		for _, queue := range queues {
			if key, err := d.keys.Parse(queue); err == nil && key.Kind == KindWork {
				targets[queue] = key.Target
				canonical = append(canonical, queue)
			}
		}
		loads, err := d.store.Loads(ctx, q, canonical)
		for _, l := range loads {
			all = append(all, QueueStats{Queue: l.Queue, Target: targets[l.Queue], Depth: int(l.Depth),
				InFlight: int(l.InFlight), Oldest: engine.Instant(l.Oldest)})
		}
		return err
	})
	return all, fail("stats", "", err)
}
