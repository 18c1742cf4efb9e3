package honkerotel_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/flow"
	"github.com/honker-go/honker/honkerotel"
	"github.com/honker-go/honker/internal/testkit"
)

// A run that is suspended, calls another run and is undone is a single trace. Its steps are children of its attempts, and spans
// of the application are children of the steps.
func TestFlow_Trace(t *testing.T) {
	db, tel, sdk := instrumented(t, honkerotel.Options{})
	with := &honker.WorkOptions{Middleware: []honker.Middleware{tel.Middleware}}
	mail := sdk.provider.Tracer("application")
	ship := flow.New(db, "ship", func(ctx context.Context, n int) (int, error) {
		return flow.Step(ctx, "pack", func(context.Context) (int, error) { return n, nil })
	}, nil)
	order := flow.New(db, "order", func(ctx context.Context, n int) (int, error) {
		n, err := flow.Step(ctx, "charge", func(ctx context.Context) (int, error) {
			_, span := mail.Start(ctx, "mail")
			span.End()
			return n, nil
		})
		if err != nil {
			return 0, err
		}
		flow.Undo(ctx, "charge", func(context.Context) error { panic("no paper") })
		if _, err := flow.Wait[bool](ctx, "go", 0); err != nil {
			return 0, err
		}
		if n, err = flow.Call(ctx, "ship", ship, n); err != nil {
			return 0, err
		}
		return flow.StepTx(ctx, "book", func(context.Context, *sql.Tx) (int, error) { return 0, honker.Reject(testkit.ErrCause) })
	}, nil)

	ctx, request := sdk.provider.Tracer("application").Start(t.Context(), "request")
	_, err := order.Start(ctx, "17", 1)
	require.NoError(t, err)
	request.End()
	work := func() {
		t.Helper()
		for _, due := range []func(context.Context, *honker.WorkOptions) (int, error){order.WorkDue, ship.WorkDue} {
			_, err := due(t.Context(), with)
			require.NoError(t, err)
		}
	}
	work()
	require.NoError(t, flow.Signal(t.Context(), db, "order", "17", "go", true))
	work()
	work()

	count := map[string]int{}
	byID := map[trace.SpanID]tracetest.SpanStub{}
	last := map[string]tracetest.SpanStub{}
	for _, s := range sdk.spans.GetSpans() {
		count[s.Name]++
		byID[s.SpanContext.SpanID()], last[s.Name] = s, s
		require.Equal(t, request.SpanContext().TraceID(), s.SpanContext.TraceID(), s.Name)
	}
	require.Equal(t, map[string]int{
		"request": 1, "enqueue flow:order": 1, "process flow:order": 3, "step charge": 1, "mail": 1,
		"enqueue flow:ship": 1, "process flow:ship": 1, "step pack": 1, "step book": 1, "undo charge": 1,
	}, count)
	for child, parent := range map[string]string{
		"process flow:order": "enqueue flow:order", "step charge": "process flow:order", "mail": "step charge",
		"enqueue flow:ship": "process flow:order", "process flow:ship": "enqueue flow:ship", "step pack": "process flow:ship",
		"step book": "process flow:order", "undo charge": "process flow:order",
	} {
		require.Equal(t, parent, byID[last[child].Parent.SpanID()].Name, child)
	}
	require.Equal(t, map[string]any{
		"messaging.system": "honker", "messaging.message.id": "1", "honker.job.attempt": int64(1),
		"honker.flow.name": "order", "honker.flow.run": "17", "honker.flow.step": "charge",
	}, attributes(last["step charge"].Attributes))
	require.Equal(t, codes.Unset, last["step charge"].Status.Code)
	require.Equal(t, trace.SpanKindInternal, last["step charge"].SpanKind)
	require.Equal(t, codes.Error, last["step book"].Status.Code)
	require.Equal(t, "panic", attributes(last["undo charge"].Attributes)["error.type"])

	by := []attribute.Key{"honker.flow.name", "honker.flow.undo", "error.type"}
	steps := sdk.points(t, "honker.flow.step.duration", by...)
	require.EqualValues(t, 1, steps["order false  "])
	require.EqualValues(t, 1, steps["ship false  "])
	require.EqualValues(t, 1, steps["order true panic "])
	require.Len(t, steps, 4)
}
