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

// queues reads the metrics that have a queue as a label. Its methods are not called concurrently.
type queues struct {
	names *names
	flows *names
	known map[string]string   // labels of the queues of the last look
	runs  []honker.QueueStats // queues of flows of the last look
}

func (qs *queues) look(ctx context.Context, db *honker.DB) ([]prometheus.Metric, error) {
	all, err := admin.Queues(ctx, db)
	if err != nil {
		return nil, err
	}
	qs.runs = nil
	names := make([]string, len(all))
	for i, q := range all {
		if names[i] = q.Queue; strings.HasPrefix(q.Queue, flow.QueuePrefix) {
			qs.runs = append(qs.runs, q)
		}
	}
	labels, err := qs.names.labels(names, func() ([]int64, error) { return weights(ctx, db, all) })
	if err != nil {
		return nil, err
	}
	qs.known = make(map[string]string, len(all))
	for i, name := range names {
		qs.known[name] = labels[i]
	}
	return queueMetrics(all, labels, admin.Now(db)), nil
}

// weights returns a number for each queue that tells how much it matters: its jobs that are dead, running or ready, and
// those that were added or claimed in the last hour.
func weights(ctx context.Context, db *honker.DB, all []honker.QueueStats) ([]int64, error) {
	traffic, err := admin.TrafficAll(ctx, db, admin.Now(db).Add(-time.Hour))
	if err != nil {
		return nil, err
	}
	each := make([]int64, len(all))
	for i, q := range all {
		each[i] = q.Dead.N + q.Running.N + q.Lapsed.N + q.Ready.N
		for _, m := range traffic[q.Queue] {
			each[i] += m.Enqueued + m.Claimed
		}
	}
	return each, nil
}

func queueMetrics(all []honker.QueueStats, labels []string, now time.Time) []prometheus.Metric {
	jobs, capped, beyond := summed(queueJobs, 2), largest(queueCapped, 1), summed(folded, 0)
	oldest, running := largest(queueOldest, 1), largest(queueRunning, 1)
	paused, places := largest(queuePaused, 1), summed(queuePlaces, 1)
	beyond.add(0)
	for i, q := range all {
		queue, more := labels[i], false
		for phase, n := range map[honker.Phase]honker.Count{
			honker.PhaseReady: q.Ready, honker.PhaseScheduled: q.Scheduled, honker.PhaseRunning: q.Running, honker.PhaseLapsed: q.Lapsed,
			honker.PhaseHeld: q.Held, honker.PhaseExpired: q.Expired, honker.PhaseDead: q.Dead,
		} {
			jobs.add(float64(n.N), queue, string(phase))
			more = more || n.More
		}
		capped.add(is(more), queue)
		oldest.add(since(q.OldestReady, now), queue)
		running.add(since(q.OldestStart, now), queue)
		paused.add(is(q.Pause != nil), queue)
		places.add(float64(q.Cancelled), queue)
		beyond.add(is(queue == other))
	}
	return metricsOf(jobs, capped, oldest, running, paused, places, beyond)
}

// workers reports 0 for queues without workers, so that alerts can ask for it.
func (qs *queues) workers(ctx context.Context, db *honker.DB) ([]prometheus.Metric, error) {
	all, err := admin.Workers(ctx, db)
	count := summed(queueWorkers, 1)
	for _, label := range qs.known {
		count.add(0, label)
	}
	for _, w := range all {
		count.add(is(w.Alive != admin.Gone), qs.labelOf(w.Queue))
	}
	return metricsOf(count), err
}

func (qs *queues) labelOf(queue string) string {
	if label, ok := qs.known[queue]; ok {
		return label
	}
	return qs.names.label(queue)
}

// problems reports all codes, so that alerts see a change from 0 to 1.
func (qs *queues) problems(ctx context.Context, db *honker.DB) ([]prometheus.Metric, error) {
	all, err := admin.Problems(ctx, db)
	found, died := summed(problems, 2), summed(queueDied, 1)
	for _, code := range admin.ProblemCodes() {
		found.add(0, string(code), string(code.Severity()))
	}
	for _, label := range qs.known {
		died.add(0, label)
	}
	for _, p := range all {
		found.add(1, string(p.Code), string(p.Severity))
		if p.Code == admin.ProblemDead {
			died.add(float64(p.N.N), qs.labelOf(p.Queue))
		}
	}
	return metricsOf(found, died), err
}
