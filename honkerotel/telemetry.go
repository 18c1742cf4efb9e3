package honkerotel

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/honker-go/honker"
)

// scope names what spans and metrics come from.
const scope = "github.com/honker-go/honker/honkerotel"

// Options of one New. The zero value of a field means its default.
type Options struct {
	TracerProvider trace.TracerProvider // nil: otel.GetTracerProvider()
	MeterProvider  metric.MeterProvider // nil: otel.GetMeterProvider()
	// Propagator writes the context of a span into the headers of a job, and reads it. nil: propagation.TraceContext.
	// For baggage, which goes into the file then, take
	// propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}).
	Propagator propagation.TextMapPropagator
	// ParentFromJob makes the span of a handler a child of the one that has enqueued its job, in the same trace,
	// instead of linking to it. It is for jobs that run soon: a trace lasts until the last of its jobs has.
	ParentFromJob bool
	// Claims makes a span of each claim that got jobs, with links to the spans that have enqueued them. It is one for
	// each batch, so it is for finding out why a worker is late, and not for every day.
	Claims bool
	// Settles makes a span of the end of each claim: an ack, a retry and so on, in a worker after the span of its
	// handler, since many are settled by one commit. It is one more for each job.
	Settles bool
	// QueueLabel is the destination in metrics, for names that grow with customers: "tenant-17" may become
	// "tenant". Spans have the name. nil: the name.
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

// Telemetry is what New returns: a field for each place where honker takes one. They work together, and each
// alone. All are safe for concurrent use, and may serve several DBs.
type Telemetry struct {
	Observer   *honker.Observer                        // for honker.Options: spans of all but handlers, and metrics
	Headers    func(context.Context) map[string]string // for honker.Options: jobs carry the context of their trace
	Middleware honker.Middleware                       // for honker.WorkOptions: spans of handlers

	opts   Options
	tracer trace.Tracer
	meter  metric.Meter
	instruments
}

// New returns the parts of the instrumentation. nil opts means defaults. honker.Observers puts its Observer
// together with others.
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
	t.Observer = &honker.Observer{
		Begin: t.begin, Enqueued: t.enqueued, Published: t.published, Claimed: t.claimed, Started: t.started,
	}
	if o.Settles {
		t.Observer.Settled = t.settled
	}
	return t
}
