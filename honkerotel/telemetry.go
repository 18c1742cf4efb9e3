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

// Options configures New. The zero value of a field selects its default.
type Options struct {
	TracerProvider trace.TracerProvider // if nil, otel.GetTracerProvider() is used
	MeterProvider  metric.MeterProvider // if nil, otel.GetMeterProvider() is used
	// Propagator writes the span context to a job's headers and reads it back. If nil,
	// propagation.TraceContext is used. To also propagate baggage, which is then stored in the
	// database, use propagation.NewCompositeTextMapPropagator(propagation.TraceContext{},
	// propagation.Baggage{}).
	Propagator propagation.TextMapPropagator
	// ParentFromJob makes a handler's span a child of the span that enqueued the job, instead of linking to it. Set
	// it for jobs that run soon after they are enqueued, because the trace lasts until its last job is done. It is always
	// so for the runs of package flow.
	ParentFromJob bool
	// Claims records a span for each claim that returns jobs, with links to the spans that enqueued them. It is meant
	// for investigating why a worker is slow to start jobs rather than for permanent use.
	Claims bool
	// Settles records a span for each ack, retry and so on, so every job has an additional span. A
	// worker settles many jobs in a single commit, so this span begins after the handler's span has
	// ended.
	Settles bool
	// QueueLabel returns the destination name to use for a queue in metrics. Set it if the number
	// of queues grows with the number of customers, for example to map "tenant-17" to "tenant". If
	// nil, the queue name is used. Spans always have the queue name.
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

// Telemetry instruments a DB and its workers. Its fields can be used together or separately. They
// are safe for concurrent use and can be shared by several DBs.
type Telemetry struct {
	Observer   *observe.Observer                       // for honker.Options; records metrics and all spans except handler spans
	Headers    func(context.Context) map[string]string // for honker.Options; adds the span context to jobs
	Middleware honker.Middleware                       // for honker.WorkOptions; records handler spans

	opts   Options
	tracer trace.Tracer
	meter  metric.Meter
	instruments
}

// New returns a new Telemetry. A nil opts selects the defaults. Use [observe.Observers] to combine
// its Observer with others.
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
		Begin: t.begin, BeginStep: t.beginStep, Enqueued: t.enqueued, Published: t.published, Claimed: t.claimed, Started: t.started,
	}
	if o.Settles {
		t.Observer.Settled = t.settled
	}
	return t
}
