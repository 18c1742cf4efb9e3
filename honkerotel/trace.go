package honkerotel

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/flow"
	"github.com/honker-go/honker/observe"
)

// system is the messaging.system attribute.
var system = semconv.MessagingSystemKey.String("honker")

// headers returns the headers for a job that is enqueued with ctx.
func (t *Telemetry) headers(ctx context.Context) map[string]string {
	if ctx == nil {
		return nil // the enqueue itself will return an error
	}
	carrier := propagation.MapCarrier{}
	t.opts.Propagator.Inject(ctx, carrier)
	return carrier
}

// begin starts a span for an enqueue or publish.
func (t *Telemetry) begin(ctx context.Context, op observe.Operation) (context.Context, func(observe.OperationEnd)) {
	began := time.Now()
	attrs := []attribute.KeyValue{system, semconv.MessagingOperationName(op.Verb), semconv.MessagingOperationTypeSend,
		semconv.MessagingDestinationName(op.Name)}
	if op.N != 1 {
		attrs = append(attrs, semconv.MessagingBatchMessageCount(op.N))
	}
	if op.Tx {
		attrs = append(attrs, attribute.Bool("honker.tx", true))
	}
	inner, span := t.tracer.Start(ctx, op.Verb+" "+op.Name, trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithTimestamp(began), trace.WithAttributes(attrs...))
	return inner, func(e observe.OperationEnd) {
		if e.Err == nil && op.N == 1 {
			span.SetAttributes(messageID(e.First))
		}
		failed := failure(span, honker.ErrorType(e.Err))
		span.End()
		t.ended(inner, op, time.Since(began), failed)
	}
}

// middleware records a span for each handler call.
func (t *Telemetry) middleware(next honker.WorkFunc) honker.WorkFunc {
	return func(ctx context.Context, job *honker.JobInfo) error {
		ctx, span := t.startProcess(ctx, job)
		return t.handle(ctx, span, job.Queue, func() error { return next(ctx, job) })
	}
}

// handle calls f, which handles a message, ends its span and records its time.
func (t *Telemetry) handle(ctx context.Context, span trace.Span, queue string, f func() error) error {
	began := time.Now()
	kind := "panic" // or runtime.Goexit; the panic is not recovered here, which preserves its stack trace
	defer func() {
		failed := failure(span, kind)
		span.End()
		t.processed(ctx, queue, time.Since(began), failed)
	}()
	err := f()
	kind = honker.ErrorType(err)
	return err
}

func (t *Telemetry) startProcess(ctx context.Context, job *honker.JobInfo) (context.Context, trace.Span) {
	extracted := t.opts.Propagator.Extract(ctx, propagation.MapCarrier(job.Headers))
	opts := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		system, semconv.MessagingOperationName("process"), semconv.MessagingOperationTypeProcess,
		semconv.MessagingDestinationName(job.Queue), messageID(job.ID), semconv.MessagingMessageBodySize(len(job.Payload)),
		attribute.Int("honker.job.attempt", job.Attempts), attribute.Int("honker.job.priority", job.Priority),
	)}
	if !t.opts.ParentFromJob && !isRun(job.Queue) {
		created := trace.SpanContextFromContext(extracted)
		if created.IsRemote() {
			opts = append(opts, trace.WithLinks(trace.Link{SpanContext: created}))
		}
		extracted = trace.ContextWithSpan(extracted, trace.SpanFromContext(ctx)) // keep the baggage without making the remote span the parent
	}
	return t.tracer.Start(extracted, "process "+job.Queue, opts...)
}

// isRun reports whether the jobs of a queue are runs of a flow. The attempts of a run belong together, so the span that
// started the run is their parent.
func isRun(queue string) bool { return strings.HasPrefix(queue, flow.QueuePrefix) }

// beginStep starts a span for a step of a flow. The span of the attempt is its parent.
func (t *Telemetry) beginStep(ctx context.Context, s observe.Step) (context.Context, func(observe.StepEnd)) {
	began, verb := time.Now(), "step"
	if s.Undo {
		verb = "undo"
	}
	inner, span := t.tracer.Start(ctx, verb+" "+s.Name, trace.WithTimestamp(began), trace.WithAttributes(
		system, messageID(s.Job), attribute.Int("honker.job.attempt", s.Attempt),
		flowName.String(s.Flow), attribute.String("honker.flow.run", s.Run), attribute.String("honker.flow.step", s.Name),
	))
	return inner, func(e observe.StepEnd) {
		kind := honker.ErrorType(e.Err)
		if errors.Is(e.Err, observe.ErrPanicked) {
			kind = "panic"
		}
		failed := failure(span, kind)
		span.End()
		attrs := append([]attribute.KeyValue{flowName.String(s.Flow), attribute.Bool("honker.flow.undo", s.Undo)}, failed...)
		t.step.Record(inner, time.Since(began).Seconds(), metric.WithAttributes(attrs...))
	}
}

// flowName is the attribute for the name of a flow.
const flowName = attribute.Key("honker.flow.name")

func messageID(id int64) attribute.KeyValue {
	return semconv.MessagingMessageID(strconv.FormatInt(id, 10))
}

// failure marks span as failed with an error type and returns it as an attribute. An empty kind
// means that there was no failure.
func failure(span trace.Span, kind string) []attribute.KeyValue {
	if kind == "" {
		return nil
	}
	failed := []attribute.KeyValue{semconv.ErrorTypeKey.String(kind)}
	span.SetStatus(codes.Error, "") // no description, because error messages may be confidential
	span.SetAttributes(failed...)
	return failed
}
