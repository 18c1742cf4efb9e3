package honkerotel

import (
	"context"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/honker-go/honker/relay"
)

// RelayHandler returns h, a handler for [relay.Queue.Handle], with a CONSUMER span for each message.
// Spans that h starts from its ctx, such as those of an HTTP client, are children of this span. The
// span has no parent and no link, because messages carry no headers. A nil h is returned as it is.
func (t *Telemetry) RelayHandler(h func(context.Context, *relay.Message) error) func(context.Context, *relay.Message) error {
	if h == nil {
		return nil
	}
	return func(ctx context.Context, m *relay.Message) error {
		ctx, span := t.tracer.Start(ctx, "process "+m.Queue, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
			system, semconv.MessagingOperationName("process"), semconv.MessagingOperationTypeProcess,
			semconv.MessagingDestinationName(m.Queue), semconv.MessagingDestinationPartitionID(strconv.Itoa(m.Partition)),
			messageID(m.ID), semconv.MessagingMessageBodySize(len(m.Payload)), attribute.Int("honker.relay.attempt", m.Attempt+1),
		))
		return t.handle(ctx, span, m.Queue, func() error { return h(ctx, m) })
	}
}

// RelayObserver returns an observer for [relay.Options] that records the metrics of a relay: sent and
// taken messages, and the wait of the first message of each batch.
func (t *Telemetry) RelayObserver() *relay.Observer {
	ctx := context.Background()
	return &relay.Observer{
		Sent: func(s relay.Sent) {
			t.sent.Add(ctx, int64(len(s.IDs)), measured("send", t.opts.QueueLabel(s.Queue)))
		},
		Taken: func(b relay.Taken) {
			label := t.opts.QueueLabel(b.Queue)
			t.consumed.Add(ctx, int64(b.Messages), measured("take", label))
			t.relayWait.Record(ctx, b.Wait.Seconds(), metric.WithAttributes(system, semconv.MessagingDestinationName(label)))
		},
	}
}
