package honkerotel

import (
	"context"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/honker-go/honker"
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
		began := time.Now()
		ctx, span := t.startProcess(ctx, job)
		kind := "panic" // or runtime.Goexit; the panic is not recovered here, which preserves its stack trace
		defer func() {
			failed := failure(span, kind)
			span.End()
			t.processed(ctx, job.Queue, time.Since(began), failed)
		}()
		err := next(ctx, job)
		kind = honker.ErrorType(err)
		return err
	}
}

func (t *Telemetry) startProcess(ctx context.Context, job *honker.JobInfo) (context.Context, trace.Span) {
	extracted := t.opts.Propagator.Extract(ctx, propagation.MapCarrier(job.Headers))
	opts := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		system, semconv.MessagingOperationName("process"), semconv.MessagingOperationTypeProcess,
		semconv.MessagingDestinationName(job.Queue), messageID(job.ID), semconv.MessagingMessageBodySize(len(job.Payload)),
		attribute.Int("honker.job.attempt", job.Attempts), attribute.Int("honker.job.priority", job.Priority),
	)}
	if !t.opts.ParentFromJob {
		created := trace.SpanContextFromContext(extracted)
		if created.IsRemote() {
			opts = append(opts, trace.WithLinks(trace.Link{SpanContext: created}))
		}
		extracted = trace.ContextWithSpan(extracted, trace.SpanFromContext(ctx)) // keep the baggage without making the remote span the parent
	}
	return t.tracer.Start(extracted, "process "+job.Queue, opts...)
}

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
