package honkerotel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/observe"
)

// instruments holds the instruments for this process's own activity.
type instruments struct {
	sent, consumed           metric.Int64Counter
	operation, process, wait metric.Float64Histogram
	step, relayWait          metric.Float64Histogram
}

// The bucket boundaries recommended by the semantic conventions. Waits can be longer than other
// durations, so they have additional buckets.
var (
	durations = []float64{.005, .01, .025, .05, .075, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10}
	waits     = append(durations[:len(durations):len(durations)], 30, 60, 300, 900, 3600)
)

// newInstruments creates the instruments. It reports errors to otel.Handle, as the SDK does. An instrument that
// couldn't be created records nothing, and the application continues to run.
func newInstruments(m metric.Meter) (i instruments) {
	counter := func(name, what string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithUnit("{message}"), metric.WithDescription(what))
		handle(err)
		return c
	}
	times := func(name, what string, bounds []float64) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(what), metric.WithExplicitBucketBoundaries(bounds...))
		handle(err)
		return h
	}
	return instruments{
		sent:      counter("messaging.client.sent.messages", "Jobs and events added."),
		consumed:  counter("messaging.client.consumed.messages", "Jobs claimed."),
		operation: times("messaging.client.operation.duration", "Duration of enqueues, publishes and claims.", durations),
		process:   times("messaging.process.duration", "Run time of handlers.", durations),
		wait:      times("honker.job.wait", "Time from a job being ready to the start of its handler.", waits),
		relayWait: times("honker.relay.wait", "Time from the sending of the first message of a batch to the start of the batch.", waits),
		step:      times("honker.flow.step.duration", "Run time of the steps and undos of flows, with the commit of a step.", durations),
	}
}

func handle(err error) {
	if err != nil {
		otel.Handle(err)
	}
}

// measured returns the attributes for a measurement.
func measured(operation, destination string, more ...attribute.KeyValue) metric.MeasurementOption {
	all := []attribute.KeyValue{system, semconv.MessagingOperationName(operation), semconv.MessagingDestinationName(destination)}
	return metric.WithAttributes(append(all, more...)...)
}

// ended records the duration of an enqueue or publish.
func (t *Telemetry) ended(ctx context.Context, op observe.Operation, took time.Duration, failed []attribute.KeyValue) {
	name := op.Name
	if op.Verb == "enqueue" {
		name = t.opts.QueueLabel(name)
	}
	t.operation.Record(ctx, took.Seconds(), measured(op.Verb, name, failed...), typeOf(semconv.MessagingOperationTypeSend))
}

// enqueued counts the jobs that were added. An enqueue that found an existing job with its unique
// key is not counted.
func (t *Telemetry) enqueued(e observe.Enqueued) {
	t.sent.Add(context.Background(), int64(len(e.IDs)), measured("enqueue", t.opts.QueueLabel(e.Queue)))
}

func (t *Telemetry) published(p observe.Published) {
	t.sent.Add(context.Background(), p.Last-p.First+1, measured("publish", p.Topic))
}

func typeOf(kind attribute.KeyValue) metric.MeasurementOption { return metric.WithAttributes(kind) }

func (t *Telemetry) claimed(c observe.Claimed) {
	if t.opts.Claims {
		t.traceClaim(c)
	}
	ctx, attrs := context.Background(), measured("claim", t.opts.QueueLabel(c.Queue))
	t.operation.Record(ctx, c.Took.Seconds(), attrs, typeOf(semconv.MessagingOperationTypeReceive))
	t.consumed.Add(ctx, int64(c.Jobs), attrs)
}

func (t *Telemetry) started(s observe.Started) {
	t.wait.Record(context.Background(), s.Wait.Seconds(),
		metric.WithAttributes(system, semconv.MessagingDestinationName(t.opts.QueueLabel(s.Queue))))
}

func (t *Telemetry) processed(ctx context.Context, queue string, took time.Duration, failed []attribute.KeyValue) {
	t.process.Record(ctx, took.Seconds(), measured("process", t.opts.QueueLabel(queue), failed...))
}

// Watch adds metrics for the state of db until stop is called: honker.queue.jobs by honker.phase,
// honker.queue.oldest_ready.age and honker.consumer.lag. Whenever the SDK collects metrics, the
// values are read from indexes; nothing is written. All processes that use the database report the
// same values, so call Watch in a single process or take the maximum.
func (t *Telemetry) Watch(db *honker.DB) (stop func() error, err error) {
	jobs, err := t.meter.Int64ObservableGauge("honker.queue.jobs", metric.WithUnit("{job}"), metric.WithDescription("Number of jobs by phase."))
	if err != nil {
		return nil, err
	}
	oldest, err := t.meter.Float64ObservableGauge("honker.queue.oldest_ready.age", metric.WithUnit("s"),
		metric.WithDescription("Waiting time of the oldest ready job; 0 if there is none."))
	if err != nil {
		return nil, err
	}
	lag, err := t.meter.Int64ObservableGauge("honker.consumer.lag", metric.WithUnit("{event}"),
		metric.WithDescription("Events that the consumer has not read, counted up to a limit."))
	if err != nil {
		return nil, err
	}
	registered, err := t.meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		if err := t.observeQueues(ctx, db, o, jobs, oldest); err != nil {
			return err
		}
		return observeConsumers(ctx, db, o, lag)
	}, jobs, oldest, lag)
	if err != nil {
		return nil, err
	}
	return registered.Unregister, nil
}

// depth accumulates the values of all queues with the same label.
type depth struct {
	jobs map[honker.Phase]int64
	age  time.Duration
}

func (t *Telemetry) observeQueues(ctx context.Context, db *honker.DB, o metric.Observer, jobs metric.Int64Observable, oldest metric.Float64Observable) error {
	all, err := admin.Queues(ctx, db)
	if err != nil {
		return err
	}
	depths, now := map[string]*depth{}, admin.Now(db)
	for _, q := range all {
		label := t.opts.QueueLabel(q.Queue)
		if depths[label] == nil {
			depths[label] = &depth{jobs: map[honker.Phase]int64{}}
		}
		depths[label].add(q, now)
	}
	for label, d := range depths {
		destination := semconv.MessagingDestinationName(label)
		for phase, n := range d.jobs {
			o.ObserveInt64(jobs, n, metric.WithAttributes(system, destination, attribute.String("honker.phase", string(phase))))
		}
		o.ObserveFloat64(oldest, d.age.Seconds(), metric.WithAttributes(system, destination))
	}
	return nil
}

// add adds a queue, as of now by the database's clock.
func (d *depth) add(q honker.QueueStats, now time.Time) {
	for phase, n := range map[honker.Phase]honker.Count{
		honker.PhaseReady: q.Ready, honker.PhaseScheduled: q.Scheduled, honker.PhaseRunning: q.Running, honker.PhaseLapsed: q.Lapsed,
		honker.PhaseHeld: q.Held, honker.PhaseExpired: q.Expired, honker.PhaseDead: q.Dead,
	} {
		d.jobs[phase] += n.N
	}
	if !q.OldestReady.IsZero() {
		d.age = max(d.age, now.Sub(q.OldestReady))
	}
}

func observeConsumers(ctx context.Context, db *honker.DB, o metric.Observer, lag metric.Int64Observable) error {
	all, err := admin.Consumers(ctx, db)
	if err != nil {
		return err
	}
	for _, c := range all {
		o.ObserveInt64(lag, c.Lag.N, metric.WithAttributes(system, semconv.MessagingDestinationName(c.Topic), semconv.MessagingConsumerGroupName(c.Name)))
	}
	return nil
}
