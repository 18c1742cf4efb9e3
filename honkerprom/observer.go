package honkerprom

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/observe"
)

// Observer returns an observer for [honker.Options] that counts events in this process. It
// registers its metrics with reg. Observers for several databases may share a registry and then add
// to the same metrics. Like MustRegister, Observer panics if reg already has different metrics with
// the same names. A nil opts selects the defaults. Use [observe.Observers] to combine the result
// with other observers.
func Observer(reg prometheus.Registerer, opts *Options) *observe.Observer {
	o := opts.withDefaults()
	e := newEvents(reg, o)
	return &observe.Observer{
		BeginStep:    e.stepBegan,
		Enqueued:     e.jobsEnqueued,
		Deduplicated: e.jobsFound,
		Started:      e.jobStarted,
		Returned:     e.jobReturned,
		Settled:      e.jobSettled,
		Working:      e.workChanged,
		Published: func(p observe.Published) {
			e.published.WithLabelValues(e.topics.label(p.Topic)).Add(float64(p.Last - p.First + 1))
		},
		Fired: func(f honker.Fire) { e.fired.WithLabelValues(e.schedules.label(f.Name)).Inc() },
		Woke:  func(w observe.Woke) { e.woke.WithLabelValues(w.Cause).Add(float64(w.Waiters)) },
		Tx:    e.txEnded,
	}
}

// events holds the metrics of a process.
type events struct {
	queues, topics, groups, schedules, flows *names

	enqueued, existing, replaced, settled, lost *prometheus.CounterVec
	groupDied, published, fired, woke           *prometheus.CounterVec
	stepsFailed                                 *prometheus.CounterVec

	wait, run, step   *prometheus.HistogramVec
	slots, busy       *prometheus.GaugeVec
	commits           prometheus.Counter
	commit, writeWait prometheus.Histogram
}

var (
	jobBuckets   = []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600}
	writeBuckets = []float64{.0001, .0005, .001, .005, .01, .05, .1, .5, 1, 5}
)

func newEvents(reg prometheus.Registerer, o Options) *events {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels))
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return register(reg, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"queue"}))
	}
	times := func(name, help, label string) *prometheus.HistogramVec {
		return register(reg, prometheus.NewHistogramVec(histogram(name, help, jobBuckets), []string{label}))
	}
	write := func(name, help string) prometheus.Histogram {
		return register(reg, prometheus.NewHistogram(histogram(name, help, writeBuckets)))
	}
	return &events{
		queues:    newNames(o.MaxQueues, o.QueueLabel),
		topics:    newNames(o.MaxQueues, nil),
		groups:    newNames(o.MaxQueues, nil),
		schedules: newNames(o.MaxQueues, nil),
		flows:     newNames(o.MaxQueues, nil),

		enqueued:    counter("honker_jobs_enqueued_total", "Jobs added by this process.", "queue"),
		existing:    counter("honker_jobs_existing_total", "Enqueues that found a job with their unique key and left it unchanged.", "queue"),
		replaced:    counter("honker_jobs_replaced_total", "Enqueues that found a job with their unique key and replaced it.", "queue"),
		settled:     counter("honker_jobs_settled_total", "Settled claims, and jobs found dead.", "queue", "outcome"),
		lost:        counter("honker_claims_lost_total", "Claims that were lost before they were settled.", "queue"),
		groupDied:   counter("honker_group_events_died_total", "Events of groups that used up their attempts.", "topic", "group"),
		published:   counter("honker_events_published_total", "Events published by this process.", "topic"),
		fired:       counter("honker_schedule_fires_total", "Fires of schedules by this process.", "schedule"),
		woke:        counter("honker_wake_total", "Waiting goroutines woken.", "cause"),
		stepsFailed: counter("honker_flow_steps_failed_total", "Steps and undos of a flow that returned an error, panicked or were not committed.", "flow"),

		wait:  times("honker_job_wait_seconds", "Time from a job being ready to the start of its handler.", "queue"),
		run:   times("honker_job_run_seconds", "Run time of handlers.", "queue"),
		step:  times("honker_flow_step_seconds", "Run time of the steps and undos of a flow, with the commit of a step.", "flow"),
		slots: gauge("honker_work_slots", "Number of handlers that this process can run concurrently."),
		busy:  gauge("honker_work_slots_busy", "Number of running handlers."),

		commits: register(reg, prometheus.NewCounter(prometheus.CounterOpts{Name: "honker_commits_total",
			Help: "Commits of this process, which several verbs may share."})),
		commit:    write("honker_commit_seconds", "Time for which committed transactions of this process held the write lock."),
		writeWait: write("honker_write_wait_seconds", "Time for which transactions of this process waited for the write lock."),
	}
}

// histogram returns options for a histogram with both classic and native buckets.
func histogram(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour}
}

// register registers c with reg. If reg already has an equivalent collector, register returns the existing
// collector instead.
func register[C prometheus.Collector](reg prometheus.Registerer, c C) C {
	err := reg.Register(c)
	var same prometheus.AlreadyRegisteredError
	if errors.As(err, &same) {
		if known, ok := same.ExistingCollector.(C); ok {
			return known
		}
	}
	if err != nil {
		panic(err)
	}
	return c
}

func (e *events) jobsEnqueued(q observe.Enqueued) {
	e.enqueued.WithLabelValues(e.queues.label(q.Queue)).Add(float64(len(q.IDs)))
}

func (e *events) jobsFound(d observe.Deduplicated) {
	queue := e.queues.label(d.Queue)
	e.existing.WithLabelValues(queue).Add(float64(d.Existing))
	e.replaced.WithLabelValues(queue).Add(float64(d.Replaced))
}

func (e *events) jobStarted(s observe.Started) {
	queue := e.queues.label(s.Queue)
	e.wait.WithLabelValues(queue).Observe(s.Wait.Seconds())
	e.busy.WithLabelValues(queue).Inc()
}

func (e *events) jobReturned(r observe.Returned) {
	queue := e.queues.label(r.Queue)
	e.run.WithLabelValues(queue).Observe(r.Ran.Seconds())
	e.busy.WithLabelValues(queue).Dec()
}

func (e *events) jobSettled(s observe.Settled) {
	if s.Group != "" { // groups report only dead events
		topic, group := e.groups.pair(s.Topic, s.Group)
		e.groupDied.WithLabelValues(topic, group).Inc()
		return
	}
	queue := e.queues.label(s.Queue)
	e.settled.WithLabelValues(queue, string(s.Outcome)).Inc()
	if s.Outcome == honker.OutcomeLost {
		e.lost.WithLabelValues(queue).Inc()
	}
}

var outcomes = []honker.Outcome{honker.OutcomeAcked, honker.OutcomeRetried, honker.OutcomeDied, honker.OutcomeSnoozed,
	honker.OutcomeReleased, honker.OutcomeLost, honker.OutcomeCancelled}

// workChanged also initializes the queues' counters to zero. Otherwise, increase() would miss the first event in each
// series.
func (e *events) workChanged(w observe.Working) {
	slots := float64(w.Slots)
	if w.Ended {
		slots = -slots
	}
	for _, name := range w.Queues {
		queue := e.queues.label(name)
		e.slots.WithLabelValues(queue).Add(slots)
		e.busy.WithLabelValues(queue)
		e.lost.WithLabelValues(queue)
		for _, outcome := range outcomes {
			e.settled.WithLabelValues(queue, string(outcome))
		}
	}
}

// stepBegan also initializes the counter of failures to zero.
func (e *events) stepBegan(ctx context.Context, s observe.Step) (context.Context, func(observe.StepEnd)) {
	began, flow := time.Now(), e.flows.label(s.Flow)
	failed := e.stepsFailed.WithLabelValues(flow)
	return ctx, func(end observe.StepEnd) {
		e.step.WithLabelValues(flow).Observe(time.Since(began).Seconds())
		if end.Err != nil {
			failed.Inc()
		}
	}
}

func (e *events) txEnded(t observe.TxEnded) {
	e.writeWait.Observe(t.Wait.Seconds())
	if t.Committed {
		e.commits.Inc()
		e.commit.Observe(t.Ran.Seconds())
	}
}
