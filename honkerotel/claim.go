package honkerotel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/honker-go/honker"
)

// maxLinks bounds the links of a span: a claim may have a thousand jobs, and an SDK drops links beyond as many unless it
// is told otherwise.
const maxLinks = 128

// traceClaim is the span of a claim. The observer is told of it afterwards and without a ctx, so it has no parent.
func (t *Telemetry) traceClaim(c honker.Claimed) {
	ended := time.Now()
	_, span := t.tracer.Start(context.Background(), "claim "+c.Queue, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithTimestamp(ended.Add(-c.Took)), trace.WithLinks(t.links(c.Headers())...), trace.WithAttributes(
			system, semconv.MessagingOperationName("claim"), semconv.MessagingOperationTypeReceive,
			semconv.MessagingDestinationName(c.Queue), semconv.MessagingBatchMessageCount(c.Jobs),
		))
	span.End(trace.WithTimestamp(ended))
}

// links are to the spans that have enqueued jobs, each once: an EnqueueMany has one for all of its jobs.
func (t *Telemetry) links(jobs []map[string]string) (links []trace.Link) {
	type span struct {
		trace trace.TraceID
		id    trace.SpanID
	}
	known := make(map[span]bool)
	for _, headers := range jobs {
		created := trace.SpanContextFromContext(t.extract(headers))
		s := span{created.TraceID(), created.SpanID()}
		if !created.IsValid() || known[s] {
			continue
		}
		if known[s] = true; len(links) == maxLinks {
			break
		}
		links = append(links, trace.Link{SpanContext: created})
	}
	return links
}

// extract returns a ctx with the context that the headers of a job carry.
func (t *Telemetry) extract(headers map[string]string) context.Context {
	return t.opts.Propagator.Extract(context.Background(), propagation.MapCarrier(headers))
}

// settleNames are the operations that end claims, by what they have become. A lost claim has had one of them.
var settleNames = map[honker.Outcome]string{
	honker.OutcomeAcked: "ack", honker.OutcomeRetried: "retry", honker.OutcomeDied: "dead-letter",
	honker.OutcomeSnoozed: "snooze", honker.OutcomeReleased: "release", honker.OutcomeLost: "settle",
}

// settled is the span of the end of a claim. A job that was found dead, and one that was cancelled, has none: there a
// claim has not been settled.
func (t *Telemetry) settled(s honker.Settled) {
	lost := s.Outcome == honker.OutcomeLost
	if s.At.IsZero() && !lost {
		return
	}
	ended := time.Now()
	began := s.At
	if lost {
		began = ended
	}
	opts := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(began), trace.WithAttributes(
		system, semconv.MessagingOperationName(settleNames[s.Outcome]), semconv.MessagingOperationTypeSettle,
		semconv.MessagingDestinationName(s.Queue), messageID(s.ID), attribute.Int("honker.job.attempt", s.Attempt),
	)}
	ctx := context.Background()
	if t.opts.ParentFromJob {
		ctx = t.extract(s.Headers())
	} else {
		opts = append(opts, trace.WithLinks(t.links([]map[string]string{s.Headers()})...))
	}
	_, span := t.tracer.Start(ctx, "settle "+s.Queue, opts...)
	if lost {
		failure(span, honker.ErrorType(honker.ErrClaimLost))
	}
	span.End(trace.WithTimestamp(ended))
}
