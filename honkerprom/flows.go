package honkerprom

import (
	"context"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/flow"
)

// flowMetrics reports the runs of package flow. A run that is not over is a job of its flow's queue.
func (qs *queues) flowMetrics(ctx context.Context, db *honker.DB) ([]prometheus.Metric, error) {
	runs, oldest := summed(flowRuns, 2), largest(flowOldest, 1)
	for _, q := range qs.runs {
		name := qs.flows.label(strings.TrimPrefix(q.Queue, flow.QueuePrefix))
		for state, counts := range map[string][]honker.Count{
			"waiting": {q.Ready, q.Scheduled, q.Held, q.Lapsed, q.Expired}, "running": {q.Running}, "failed": {q.Dead},
		} {
			for _, n := range counts {
				runs.add(float64(n.N), name, state)
			}
		}
		started, known, err := oldestSuspended(ctx, db, q.Queue)
		if err != nil {
			return nil, err
		}
		if known {
			oldest.add(since(started, admin.Now(db)), name)
		}
	}
	return metricsOf(runs, oldest), nil
}

// oldestSuspended returns the time at which the oldest scheduled job of a queue was added, or zero if there is none. It is
// not known if many older jobs of other queues are in the way.
func oldestSuspended(ctx context.Context, db *honker.DB, queue string) (added time.Time, known bool, err error) {
	p, err := admin.ListJobs(ctx, db, admin.JobFilter{Queues: []string{queue}, Phases: []honker.Phase{honker.PhaseScheduled}},
		&admin.PageOptions{Order: admin.OldestFirst, Limit: 1, Budget: 50 * time.Millisecond})
	if err != nil {
		return added, false, err
	}
	if len(p.Jobs) > 0 {
		return p.Jobs[0].CreatedAt, true, nil
	}
	return added, !p.Early, nil
}
