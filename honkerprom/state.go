package honkerprom

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// descs holds the descriptions of all of the collector's metrics.
var descs []*prometheus.Desc

func desc(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc(name, help, labels, nil)
	descs = append(descs, d)
	return d
}

var (
	queueJobs    = desc("honker_queue_jobs", "Number of jobs by phase, counted up to a limit.", "queue", "phase")
	queueCapped  = desc("honker_queue_jobs_capped", "1 if the count of a phase has reached the limit.", "queue")
	queueOldest  = desc("honker_queue_oldest_ready_seconds", "Waiting time of the oldest ready job; 0 if there is none.", "queue")
	queuePlaces  = desc("honker_queue_cancelled_places", "Number of places in the limits of the queue that cancelled jobs hold until their handlers have returned.", "queue")
	queuePaused  = desc("honker_queue_paused", "1 if the queue is paused.", "queue")
	queueWorkers = desc("honker_queue_workers", "Workers of the queue in all processes, without those known to be gone.", "queue")

	streamHead   = desc("honker_stream_head", "Offset of the last event.", "topic")
	consumerLag  = desc("honker_consumer_lag_events", "Events that the consumer has not read, counted up to a limit.", "topic", "consumer")
	consumerLate = desc("honker_consumer_lag_seconds", "Age of the first event that the consumer has not read; 0 if there is none.", "topic", "consumer")
	groupLag     = desc("honker_group_lag_events", "Events that the group has not delivered, counted up to a limit.", "topic", "group")
	groupLate    = desc("honker_group_lag_seconds", "Age of the first event that the group has not delivered; 0 if there is none.", "topic", "group")
	groupDead    = desc("honker_group_dead_events", "Events of the group that have used up their attempts.", "topic", "group")
	scheduleNext = desc("honker_schedule_next_seconds", "Time until the schedule fires; negative if it is overdue. Paused schedules are omitted.", "schedule")
	leader       = desc("honker_leader", "1 if a process has the role of firing schedules or maintaining the database.", "role")
	problems     = desc("honker_problems", "Problems of the database by the codes of honker doctor; 0 if there are none.", "code")
	fileBytes    = desc("honker_file_bytes", "Size of the database file.")
	walBytes     = desc("honker_wal_bytes", "Size of the write-ahead log.")
)

// newParts returns the parts to read, most important first.
func newParts(o Options) []*part {
	queues, topics := newNames(o.MaxQueues, o.QueueLabel), newNames(o.MaxQueues, nil)
	consumers, groups, schedules := newNames(o.MaxQueues, nil), newNames(o.MaxQueues, nil), newNames(o.MaxQueues, nil)
	return []*part{
		{name: "queues", look: func(ctx context.Context, db *honker.DB) ([]prometheus.Metric, error) {
			all, err := admin.Queues(ctx, db)
			return queueMetrics(all, queues), err
		}},
		{name: "workers", look: func(ctx context.Context, db *honker.DB) ([]prometheus.Metric, error) {
			all, err := admin.Workers(ctx, db)
			return workerMetrics(all, queues), err
		}},
		{name: "schedules", look: func(ctx context.Context, db *honker.DB) ([]prometheus.Metric, error) {
			return scheduleMetrics(ctx, db, schedules)
		}},
		{name: "consumers", look: func(ctx context.Context, db *honker.DB) ([]prometheus.Metric, error) {
			return consumerMetrics(ctx, db, consumers)
		}},
		{name: "groups", look: func(ctx context.Context, db *honker.DB) ([]prometheus.Metric, error) {
			return groupMetrics(ctx, db, groups)
		}},
		{name: "streams", look: func(ctx context.Context, db *honker.DB) ([]prometheus.Metric, error) {
			return streamMetrics(ctx, db, topics)
		}},
		{name: "file", look: fileMetrics},
		{name: "problems", look: problemMetrics},
	}
}

// gauge is a metric that combines values with the same labels.
type gauge struct {
	desc   *prometheus.Desc
	merge  func(a, b float64) float64
	values map[[2]string]float64 // keyed by up to two labels
	labels int
}

// summed returns a gauge that adds values.
func summed(d *prometheus.Desc, labels int) *gauge {
	return &gauge{d, func(a, b float64) float64 { return a + b }, map[[2]string]float64{}, labels}
}

// largest returns a gauge that keeps the largest value, and smallest that keeps the smallest.
func largest(d *prometheus.Desc, labels int) *gauge {
	return &gauge{d, func(a, b float64) float64 { return max(a, b) }, map[[2]string]float64{}, labels}
}

func smallest(d *prometheus.Desc, labels int) *gauge {
	return &gauge{d, func(a, b float64) float64 { return min(a, b) }, map[[2]string]float64{}, labels}
}

func (g *gauge) add(v float64, labels ...string) {
	var at [2]string
	copy(at[:], labels)
	if old, known := g.values[at]; known {
		v = g.merge(old, v)
	}
	g.values[at] = v
}

func metricsOf(gauges ...*gauge) (all []prometheus.Metric) {
	for _, g := range gauges {
		for labels, v := range g.values {
			all = append(all, prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, v, labels[:g.labels]...))
		}
	}
	return all
}

// is converts a bool to 1 or 0.
func is(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// since returns the seconds since t, or 0 for the zero time.
func since(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return max(0, time.Since(t).Seconds())
}

func queueMetrics(all []honker.QueueStats, queues *names) []prometheus.Metric {
	jobs, capped := summed(queueJobs, 2), largest(queueCapped, 1)
	oldest, paused, places := largest(queueOldest, 1), largest(queuePaused, 1), summed(queuePlaces, 1)
	for _, q := range all {
		queue, more := queues.label(q.Queue), false
		for phase, n := range map[honker.Phase]honker.Count{
			honker.PhaseReady: q.Ready, honker.PhaseScheduled: q.Scheduled, honker.PhaseRunning: q.Running, honker.PhaseLapsed: q.Lapsed,
			honker.PhaseHeld: q.Held, honker.PhaseExpired: q.Expired, honker.PhaseDead: q.Dead,
		} {
			jobs.add(float64(n.N), queue, string(phase))
			more = more || n.More
		}
		capped.add(is(more), queue)
		oldest.add(since(q.OldestReady), queue)
		paused.add(is(q.Pause != nil), queue)
		places.add(float64(q.Cancelled), queue)
	}
	return metricsOf(jobs, capped, oldest, paused, places)
}

func workerMetrics(all []admin.WorkerInfo, queues *names) []prometheus.Metric {
	workers := summed(queueWorkers, 1)
	for _, w := range all {
		workers.add(is(w.Alive != admin.Gone), queues.label(w.Queue))
	}
	return metricsOf(workers)
}

func streamMetrics(ctx context.Context, db *honker.DB, topics *names) ([]prometheus.Metric, error) {
	all, err := admin.Topics(ctx, db)
	head := largest(streamHead, 1)
	for _, t := range all {
		head.add(float64(t.Head), topics.label(t.Name))
	}
	return metricsOf(head), err
}

func consumerMetrics(ctx context.Context, db *honker.DB, consumers *names) ([]prometheus.Metric, error) {
	all, err := admin.Consumers(ctx, db)
	lag, late := summed(consumerLag, 2), largest(consumerLate, 2)
	for _, c := range all {
		topic, name := consumers.pair(c.Topic, c.Name)
		lag.add(float64(c.Lag.N), topic, name)
		late.add(since(c.Behind), topic, name)
	}
	return metricsOf(lag, late), err
}

func groupMetrics(ctx context.Context, db *honker.DB, groups *names) ([]prometheus.Metric, error) {
	all, err := admin.Groups(ctx, db)
	lag, late, dead := summed(groupLag, 2), largest(groupLate, 2), summed(groupDead, 2)
	for _, g := range all {
		topic, name := groups.pair(g.Topic, g.Name)
		lag.add(float64(g.Lag.N), topic, name)
		late.add(since(g.Behind), topic, name)
		dead.add(float64(g.Dead), topic, name)
	}
	return metricsOf(lag, late, dead), err
}

func scheduleMetrics(ctx context.Context, db *honker.DB, schedules *names) ([]prometheus.Metric, error) {
	all, err := db.Scheduler().List(ctx)
	if err != nil {
		return nil, err
	}
	next := smallest(scheduleNext, 1)
	for _, s := range all {
		if s.Enabled {
			next.add(time.Until(s.NextFireAt).Seconds(), schedules.label(s.Name))
		}
	}
	leaders, err := admin.Leaders(ctx, db)
	if err != nil {
		return nil, err
	}
	leads := largest(leader, 1)
	leads.add(is(leaders.Scheduler != nil), "scheduler")
	leads.add(is(leaders.Maintenance != nil), "maintenance")
	return metricsOf(next, leads), nil
}

func fileMetrics(ctx context.Context, db *honker.DB) ([]prometheus.Metric, error) {
	f, err := admin.File(ctx, db)
	switch {
	case errors.Is(err, honker.ErrUnsupported): // the database is not a file
		return nil, nil
	case err != nil:
		return nil, err
	}
	size, wal := largest(fileBytes, 0), largest(walBytes, 0)
	size.add(float64(f.Size))
	wal.add(float64(f.WAL))
	return metricsOf(size, wal), nil
}

// problemCodes lists the codes that are reported as 0 if there is no such problem, so that alerts see a change from 0
// to 1.
var problemCodes = []admin.ProblemCode{
	admin.ProblemNoWorker, admin.ProblemWaitsForDead, admin.ProblemLapsed, admin.ProblemLate, admin.ProblemOverdue,
	admin.ProblemHeld, admin.ProblemDisk, admin.ProblemDead, admin.ProblemBehind, admin.ProblemPinned, admin.ProblemWAL,
	admin.ProblemBlocked, admin.ProblemSnapshot, admin.ProblemVacuum, admin.ProblemNotMaintained, admin.ProblemPaused, admin.ProblemClock,
}

func problemMetrics(ctx context.Context, db *honker.DB) ([]prometheus.Metric, error) {
	all, err := admin.Problems(ctx, db)
	found := summed(problems, 1)
	for _, code := range problemCodes {
		found.add(0, string(code))
	}
	for _, p := range all {
		found.add(1, string(p.Code))
	}
	return metricsOf(found), err
}
