package honkerotel_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/dispatch"
	"github.com/honker-go/honker/honkerotel"
	"github.com/honker-go/honker/relay"
)

// during runs f until stop is called.
func during(t *testing.T, f func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	return func() {
		cancel()
		require.NoError(t, <-ended)
	}
}

// Each attempt at a message of a relay has a span, which is the parent of the handler's spans. Messages are counted.
func TestRelay(t *testing.T) {
	db, tel, sdk := instrumented(t, honkerotel.Options{})
	r := relay.New(db, &relay.Options{RetryBase: time.Millisecond, Observer: tel.RelayObserver()})
	hooks, handled := r.Queue("hooks", 1), make(chan int, 3)
	hooks.Handle(tel.RelayHandler(func(ctx context.Context, m *relay.Message) error {
		_, span := sdk.provider.Tracer("application").Start(ctx, "POST")
		span.End()
		handled <- m.Attempt
		if m.Attempt == 0 {
			return honker.ErrBusy
		}
		return nil
	}))
	_, err := hooks.Send(t.Context(), relay.Outgoing{Payload: []byte("12")})
	require.NoError(t, err)
	stop := during(t, r.Run)
	require.Equal(t, 0, <-handled)
	require.Equal(t, 1, <-handled)
	stop()

	var failed, done int
	for _, s := range sdk.spans.GetSpans() {
		attrs := attributes(s.Attributes)
		switch {
		case s.Name == "POST":
			require.True(t, s.Parent.IsValid())
		case attrs["error.type"] == "busy":
			failed++
		default:
			done++
			require.Equal(t, "process hooks", s.Name)
			require.Equal(t, trace.SpanKindConsumer, s.SpanKind)
			require.Equal(t, map[string]any{
				"messaging.system": "honker", "messaging.operation.name": "process", "messaging.operation.type": "process",
				"messaging.destination.name": "hooks", "messaging.destination.partition.id": "0", "messaging.message.id": "1",
				"messaging.message.body.size": int64(2), "honker.relay.attempt": int64(2),
			}, attrs)
		}
	}
	require.Equal(t, []int{1, 1}, []int{failed, done})
	by := []attribute.Key{semconv.MessagingOperationNameKey, semconv.MessagingDestinationNameKey}
	require.Equal(t, map[string]float64{"send hooks ": 1}, sdk.points(t, "messaging.client.sent.messages", by...))
	require.Equal(t, map[string]float64{"take hooks ": 2}, sdk.points(t, "messaging.client.consumed.messages", by...))
	require.Equal(t, map[string]float64{"process hooks ": 2}, sdk.points(t, "messaging.process.duration", by...))
	require.Equal(t, map[string]float64{" hooks ": 2}, sdk.points(t, "honker.relay.wait", by...))
	require.Nil(t, tel.RelayHandler(nil))
}

// The span of an actor's handler links to the span that has sent the job.
func TestDispatch(t *testing.T) {
	db, tel, sdk := instrumented(t, honkerotel.Options{})
	d := dispatch.New(db, nil)
	handled := make(chan struct{})
	actor := dispatch.NewActor(d, dispatch.Identity{Type: "osis", Instance: "1"}, func(ctx context.Context, task *dispatch.Task[int]) (any, error) {
		defer close(handled)
		if !trace.SpanFromContext(ctx).SpanContext().IsValid() {
			return nil, honker.Reject(errors.New("no span"))
		}
		return nil, nil
	}, &dispatch.ActorOptions{Middleware: []honker.Middleware{tel.Middleware}})
	ctx, request := sdk.provider.Tracer("application").Start(t.Context(), "request")
	_, err := d.Send(ctx, dispatch.Target{Type: "osis"}, 17)
	require.NoError(t, err)
	request.End()
	stop := during(t, actor.Run)
	<-handled
	stop()

	spans := sdk.take()
	var process, enqueue string
	for name := range spans {
		if attrs := attributes(spans[name].Attributes); attrs["messaging.operation.name"] == "process" {
			process = name
		} else if attrs["messaging.operation.name"] == "enqueue" {
			enqueue = name
		}
	}
	require.Equal(t, request.SpanContext().SpanID(), spans[enqueue].Parent.SpanID())
	require.Len(t, spans[process].Links, 1)
	require.Equal(t, spans[enqueue].SpanContext.SpanID(), spans[process].Links[0].SpanContext.SpanID())
}
