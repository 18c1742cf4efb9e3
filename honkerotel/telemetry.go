package honkerotel

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/observe"
)

// scope is the instrumentation scope of all spans and metrics.
const scope = "github.com/honker-go/honker/honkerotel"

// Options configures New. The zero value of a field means its default.
type Options struct {
	TracerProvider trace.TracerProvider // nil: otel.GetTracerProvider()
	MeterProvider  metric.MeterProvider // nil: otel.GetMeterProvider()
	// Propagator writes the span context to the headers of a job and reads it back. If nil,
	// propagation.TraceContext is used. For baggage, which is then stored in the database, use
	// propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}).
	Propagator propagation.TextMapPropagator
	// ParentFromJob makes the span of a handler a child of the span that enqueued its job instead
	// of linking to it. Use it for jobs that run soon, since the trace lasts until its last job is
	// done.
	ParentFromJob bool
	// Claims records a span for each claim that returns jobs, with links to the spans that enqueued
	// them. It is meant for finding out why a worker is late rather than for permanent use.
	Claims bool
	// Settles records a span for each ack, retry and so on. A worker settles many jobs in a commit,
	// so this span follows the span of the handler. It adds a span for each job.
	Settles bool
	// QueueLabel returns the destination of a queue in metrics. Use it if the number of queues
	// grows with that of customers, for example to map "tenant-17" to "tenant". Spans always have
	// the name of the queue. If nil, metrics have it as well.
	QueueLabel func(queue string) string
}

func (o *Options) withDefaults() Options {
	var out Options
	if o != nil {
		out = *o
	}
	if out.TracerProvider == nil {
		out.TracerProvider = otel.GetTracerProvider()
	}
	if out.MeterProvider == nil {
		out.MeterProvider = otel.GetMeterProvider()
	}
	if out.Propagator == nil {
		out.Propagator = propagation.TraceContext{}
	}
	if out.QueueLabel == nil {
		out.QueueLabel = func(queue string) string { return queue }
	}
	return out
}

// Telemetry is the instrumentation. Its fields can be used together or separately. They are safe
// for concurrent use and may serve several DBs.
type Telemetry struct {
	Observer   *observe.Observer                       // for honker.Options; spans of everything but handlers, and metrics
	Headers    func(context.Context) map[string]string // for honker.Options; adds the span context to jobs
	Middleware honker.Middleware                       // for honker.WorkOptions; spans of handlers

	opts   Options
	tracer trace.Tracer
	meter  metric.Meter
	instruments
}

// New returns a new instrumentation. nil opts means defaults. Use [observe.Observers] to combine its
// Observer with others.
func New(opts *Options) *Telemetry {
	o := opts.withDefaults()
	t := &Telemetry{
		opts:   o,
		tracer: o.TracerProvider.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL)),
		meter:  o.MeterProvider.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL)),
	}
	t.instruments = newInstruments(t.meter)
	t.Headers = t.headers
	t.Middleware = t.middleware
	t.Observer = &observe.Observer{
		Begin: t.begin, Enqueued: t.enqueued, Published: t.published, Claimed: t.claimed, Started: t.started,
	}
	if o.Settles {
		t.Observer.Settled = t.settled
	}
	return t
}
