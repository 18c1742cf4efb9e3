package honkerotel_test

import (
	"context"
	"database/sql"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerotel"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/observe"
)

// nested enqueues a job in an application span. The handler enqueues another job, and both are run.
func nested(t *testing.T, opts honkerotel.Options) (spans map[string]tracetest.SpanStub) {
	t.Helper()
	db, tel, sdk := instrumented(t, opts)
	orders, mails := honker.NewQueue[int](db, "orders", nil), honker.NewQueue[int](db, "mails", nil)
	with := &honker.WorkOptions{Middleware: []honker.Middleware{tel.Middleware}}

	ctx, request := sdk.provider.Tracer("application").Start(t.Context(), "request")
	_, err := orders.Enqueue(ctx, 17)
	require.NoError(t, err)
	request.End()
	_, err = orders.WorkDue(t.Context(), func(ctx context.Context, job *honker.Job[int]) error {
		return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := mails.EnqueueTx(ctx, tx, job.Args)
			return err
		})
	}, with)
	require.NoError(t, err)
	_, err = mails.WorkDue(t.Context(), testkit.Succeed[int], with)
	require.NoError(t, err)
	return sdk.take()
}

// With links, the trace of the request leads through the job to the jobs enqueued by its handler.
func TestTrace_Links(t *testing.T) {
	spans := nested(t, honkerotel.Options{})
	require.Len(t, spans, 5)
	request, enqueue, process := spans["request"], spans["enqueue orders"], spans["process orders"]
	inner, last := spans["enqueue mails"], spans["process mails"]
	require.Equal(t, request.SpanContext.SpanID(), enqueue.Parent.SpanID())
	require.Equal(t, request.SpanContext.TraceID(), enqueue.SpanContext.TraceID())
	for _, c := range []struct{ created, process tracetest.SpanStub }{{enqueue, process}, {inner, last}} {
		require.False(t, c.process.Parent.IsValid(), "a trace of its own")
		require.NotEqual(t, c.created.SpanContext.TraceID(), c.process.SpanContext.TraceID())
		require.Len(t, c.process.Links, 1)
		require.Equal(t, c.created.SpanContext.SpanID(), c.process.Links[0].SpanContext.SpanID())
		require.Equal(t, c.created.SpanContext.TraceID(), c.process.Links[0].SpanContext.TraceID())
	}
	require.Equal(t, process.SpanContext.SpanID(), inner.Parent.SpanID())

	require.Equal(t, trace.SpanKindProducer, enqueue.SpanKind)
	require.Equal(t, trace.SpanKindConsumer, process.SpanKind)
	require.Equal(t, "https://opentelemetry.io/schemas/1.43.0", process.InstrumentationScope.SchemaURL)
	require.Equal(t, map[string]any{
		"messaging.system": "honker", "messaging.operation.name": "enqueue", "messaging.operation.type": "send",
		"messaging.destination.name": "orders", "messaging.message.id": "1",
	}, attributes(enqueue.Attributes))
	require.Equal(t, map[string]any{
		"messaging.system": "honker", "messaging.operation.name": "enqueue", "messaging.operation.type": "send",
		"messaging.destination.name": "mails", "messaging.message.id": "2", "honker.tx": true,
	}, attributes(inner.Attributes))
	require.Equal(t, map[string]any{
		"messaging.system": "honker", "messaging.operation.name": "process", "messaging.operation.type": "process",
		"messaging.destination.name": "orders", "messaging.message.id": "1", "messaging.message.body.size": int64(2),
		"honker.job.attempt": int64(1), "honker.job.priority": int64(0),
	}, attributes(process.Attributes))
}

// With ParentFromJob, all spans are in the same trace.
func TestTrace_ParentFromJob(t *testing.T) {
	spans := nested(t, honkerotel.Options{ParentFromJob: true})
	parent := ""
	for _, name := range []string{"request", "enqueue orders", "process orders", "enqueue mails", "process mails"} {
		span, known := spans[name]
		require.True(t, known, name)
		require.Empty(t, span.Links)
		require.Equal(t, spans["request"].SpanContext.TraceID(), span.SpanContext.TraceID(), name)
		if parent != "" {
			require.Equal(t, parent, span.Parent.SpanID().String(), name)
		}
		parent = span.SpanContext.SpanID().String()
	}
}

// When jobs are linked, a span around Work is the parent of the handler's span.
func TestTrace_AmbientSpan(t *testing.T) {
	db, tel, sdk := instrumented(t, honkerotel.Options{})
	q := honker.NewQueue[int](db, "orders", nil)
	testkit.Enqueue(t, q, 1)
	ctx, cron := sdk.provider.Tracer("application").Start(t.Context(), "cron")
	_, err := q.WorkDue(ctx, testkit.Succeed[int], &honker.WorkOptions{Middleware: []honker.Middleware{tel.Middleware}})
	require.NoError(t, err)
	cron.End()
	spans := sdk.take()
	require.Equal(t, cron.SpanContext().SpanID(), spans["process orders"].Parent.SpanID())
	require.Len(t, spans["process orders"].Links, 1)
}

// The jobs of an EnqueueMany share a span, as do the events of a PublishMany.
func TestTrace_Many(t *testing.T) {
	db, tel, sdk := instrumented(t, honkerotel.Options{})
	ctx, q := t.Context(), honker.NewQueue[int](db, "orders", nil)
	_, err := q.EnqueueMany(ctx, []int{1, 2, 3})
	require.NoError(t, err)
	_, _, err = honker.NewStream[int](db, "audit", nil).PublishMany(ctx, []int{1, 2})
	require.NoError(t, err)
	spans := sdk.take()
	require.EqualValues(t, 3, attributes(spans["enqueue orders"].Attributes)["messaging.batch.message_count"])
	require.NotContains(t, attributes(spans["enqueue orders"].Attributes), "messaging.message.id")
	require.EqualValues(t, 2, attributes(spans["publish audit"].Attributes)["messaging.batch.message_count"])
	n, err := q.WorkDue(ctx, testkit.Succeed[int], &honker.WorkOptions{Middleware: []honker.Middleware{tel.Middleware}})
	require.NoError(t, err)
	require.Equal(t, 3, n)
	for _, span := range sdk.spans.GetSpans() {
		require.Equal(t, spans["enqueue orders"].SpanContext.SpanID(), span.Links[0].SpanContext.SpanID())
	}
}

// A failure is recorded by its type and never by its text. A postponed job has not failed.
func TestTrace_Failures(t *testing.T) {
	for want, fn := range map[string]func() error{
		"":           func() error { return nil },
		"claim_lost": func() error { return fmt.Errorf("secret: %w", honker.ErrClaimLost) },
		"timeout":    func() error { return honker.RetryAfter(time.Hour, context.DeadlineExceeded) },
		"panic":      func() error { panic("secret") },
	} {
		t.Run(want, func(t *testing.T) {
			db, tel, sdk := instrumented(t, honkerotel.Options{})
			q := honker.NewQueue[int](db, "orders", &honker.QueueOptions{Backoff: honker.Constant(time.Hour)})
			testkit.Enqueue(t, q, 1)
			_, err := q.WorkDue(t.Context(), func(context.Context, *honker.Job[int]) error { return fn() },
				&honker.WorkOptions{Middleware: []honker.Middleware{tel.Middleware}})
			require.NoError(t, err)
			span := sdk.take()["process orders"]
			require.NotContains(t, fmt.Sprintf("%+v", span), "secret")
			if want == "" {
				require.Equal(t, codes.Unset, span.Status.Code)
				require.NotContains(t, attributes(span.Attributes), "error.type")
				return
			}
			require.Equal(t, sdktrace.Status{Code: codes.Error}, span.Status)
			require.Equal(t, want, attributes(span.Attributes)["error.type"])
			require.EqualValues(t, 1, sdk.points(t, "messaging.process.duration", semconv.ErrorTypeKey)[want+" "])
		})
	}
	db, _, sdk := instrumented(t, honkerotel.Options{})
	_, err := honker.NewQueue[int](db, "orders", nil).Enqueue(t.Context(), 1, honker.MaxAttempts(0))
	require.ErrorIs(t, err, honker.ErrInvalid)
	require.Equal(t, "invalid", attributes(sdk.take()["enqueue orders"].Attributes)["error.type"])
}

// The span of a handler ends even if the handler calls runtime.Goexit.
func TestTrace_Goexit(t *testing.T) {
	db, tel, sdk := instrumented(t, honkerotel.Options{})
	q := honker.NewQueue[int](db, "orders", nil)
	testkit.Enqueue(t, q, 1)
	stop := testkit.Work(t, q, func(context.Context, *honker.Job[int]) error { runtime.Goexit(); return nil },
		&honker.WorkOptions{Middleware: []honker.Middleware{tel.Middleware}})
	testkit.Eventually(t, testkit.Timeout, "the span has ended", func() bool {
		for _, span := range sdk.spans.GetSpans() {
			if span.Name == "process orders" {
				return true
			}
		}
		return false
	})
	require.NoError(t, stop())
}

// Baggage is propagated only by a propagator that supports it.
func TestHeaders_Baggage(t *testing.T) {
	member, err := baggage.NewMember("tenant", "acme")
	require.NoError(t, err)
	bag, err := baggage.New(member)
	require.NoError(t, err)
	for _, c := range []struct {
		propagator propagation.TextMapPropagator
		headers    []string
		tenant     string
	}{
		{nil, []string{"traceparent"}, ""},
		{propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}), []string{"traceparent", "baggage"}, "acme"},
	} {
		db, tel, sdk := instrumented(t, honkerotel.Options{Propagator: c.propagator})
		q := honker.NewQueue[int](db, "orders", nil)
		_, err := q.Enqueue(baggage.ContextWithBaggage(t.Context(), bag), 1)
		require.NoError(t, err)
		var headers []string
		n, err := q.WorkDue(t.Context(), func(ctx context.Context, job *honker.Job[int]) error {
			for name := range job.Headers {
				headers = append(headers, name)
			}
			require.Equal(t, c.tenant, baggage.FromContext(ctx).Member("tenant").Value())
			return nil
		}, &honker.WorkOptions{Middleware: []honker.Middleware{tel.Middleware}})
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.ElementsMatch(t, c.headers, headers)
		require.Len(t, sdk.take()["process orders"].Links, 1)
	}
}

// Without an SDK, nothing is traced and jobs have no headers.
func TestNew_NoSDK(t *testing.T) {
	tel := honkerotel.New(nil)
	require.Empty(t, tel.Headers(t.Context()))
	var none context.Context
	require.Empty(t, tel.Headers(none))
	ctx, end := tel.Observer.Begin(t.Context(), observe.Operation{Verb: "enqueue", Name: "orders", N: 1})
	require.False(t, trace.SpanContextFromContext(ctx).IsValid())
	end(observe.OperationEnd{})
	require.NoError(t, tel.Middleware(func(context.Context, *honker.JobInfo) error { return nil })(t.Context(), &honker.JobInfo{}))
}
