package honkerotel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/observe"
)

// maxLinks limits the number of links in a span, because a claim may return a thousand jobs. 128 is
// also the default limit in the OpenTelemetry SDKs.
const maxLinks = 128

// traceClaim records a span for a claim. Observers are called after the claim and without a
// context, so the span has no parent.
func (t *Telemetry) traceClaim(c observe.Claimed) {
	ended := time.Now()
	_, span := t.tracer.Start(context.Background(), "claim "+c.Queue, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithTimestamp(ended.Add(-c.Took)), trace.WithLinks(t.links(c.Headers())...), trace.WithAttributes(
			system, semconv.MessagingOperationName("claim"), semconv.MessagingOperationTypeReceive,
			semconv.MessagingDestinationName(c.Queue), semconv.MessagingBatchMessageCount(c.Jobs),
		))
	span.End(trace.WithTimestamp(ended))
}

// links returns links to the spans that enqueued the jobs. It removes duplicates because all jobs
// of an EnqueueMany share a span.
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

// extract returns a context with the span context from a job's headers.
func (t *Telemetry) extract(headers map[string]string) context.Context {
	return t.opts.Propagator.Extract(context.Background(), propagation.MapCarrier(headers))
}

// settleNames maps outcomes to operation names. Any of these operations may find that the claim was lost, so that
// outcome has the generic name "settle".
var settleNames = map[honker.Outcome]string{
	honker.OutcomeAcked: "ack", honker.OutcomeRetried: "retry", honker.OutcomeDied: "dead-letter",
	honker.OutcomeSnoozed: "snooze", honker.OutcomeReleased: "release", honker.OutcomeLost: "settle",
}

// settled records a span for a settled claim. Cancelled jobs and jobs dead-lettered without a claim
// have no such span.
func (t *Telemetry) settled(s observe.Settled) {
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
