package honkerotel_test

import (
	"context"
	"database/sql"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerotel"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// named returns the spans of this name that have ended since the last call of take, in order.
func (s *sdk) named(name string) tracetest.SpanStubs {
	return slices.DeleteFunc(s.spans.GetSpans(), func(span tracetest.SpanStub) bool { return span.Name != name })
}

// A claim that returns jobs has a span with a link to each enqueue. An empty claim has no span.
func TestClaims_Links(t *testing.T) {
	db, _, sdk := instrumented(t, honkerotel.Options{Claims: true})
	ctx, q := t.Context(), honker.NewQueue[int](db, "orders", nil)
	_, err := q.EnqueueMany(ctx, []int{1, 2})
	require.NoError(t, err)
	testkit.Enqueue(t, q, 3)
	testkit.Enqueue(t, honker.NewQueue[int](db, "mails", nil), 4)
	enqueued := sdk.named("enqueue orders")
	require.Len(t, enqueued, 2)
	began := time.Now()
	require.Len(t, testkit.Claim(t, q, 10), 3)
	require.Empty(t, testkit.Claim(t, q, 10))

	claims := sdk.named("claim orders")
	require.Len(t, claims, 1)
	claim := claims[0]
	require.Equal(t, trace.SpanKindClient, claim.SpanKind)
	require.False(t, claim.Parent.IsValid())
	require.True(t, claim.EndTime.After(claim.StartTime))
	require.False(t, claim.StartTime.Before(began), "it took no longer than the call")
	require.Equal(t, map[string]any{
		"messaging.system": "honker", "messaging.operation.name": "claim", "messaging.operation.type": "receive",
		"messaging.destination.name": "orders", "messaging.batch.message_count": int64(3),
	}, attributes(claim.Attributes))
	require.Len(t, claim.Links, 2)
	for i, link := range claim.Links {
		require.Equal(t, enqueued[i].SpanContext.TraceID(), link.SpanContext.TraceID())
		require.Equal(t, enqueued[i].SpanContext.SpanID(), link.SpanContext.SpanID())
	}
	require.Zero(t, claim.DroppedLinks)
}

// A claim has at most 128 links, regardless of the SDK's limit.
func TestClaims_Links_Bound(t *testing.T) {
	limits := sdktrace.NewSpanLimits()
	limits.LinkCountLimit = -1
	spans := tracetest.NewInMemoryExporter()
	tel := honkerotel.New(&honkerotel.Options{Claims: true,
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans), sdktrace.WithRawSpanLimits(limits))})
	db := honkertest.Open(t, &honker.Options{Observer: tel.Observer})
	q := honker.NewQueue[int](db, "orders", nil)
	require.NoError(t, db.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		for i := range 150 {
			span := strconv.FormatInt(int64(i)+1<<60, 16)
			_, err := q.EnqueueTx(ctx, tx, i, honker.Headers(map[string]string{"traceparent": "00-0123456789abcdef0123456789abcdef-" + span + "-01"}))
			require.NoError(t, err)
		}
		return nil
	}))
	spans.Reset()
	require.Len(t, testkit.Claim(t, q, 150), 150)
	require.Len(t, spans.GetSpans(), 1)
	require.Len(t, spans.GetSpans()[0].Links, 128)
}

// Jobs without a valid span context add no link.
func TestClaims_NoContext(t *testing.T) {
	db, _, sdk := instrumented(t, honkerotel.Options{Claims: true, Settles: true})
	q := honker.NewQueue[int](db, "orders", nil)
	testkit.StoreLive(t, db, 1, func(int64) testkit.StoredJob { return testkit.StoredJob{ID: 100, Queue: "orders"} })
	testkit.Enqueue(t, q, 2, honker.Headers(map[string]string{"traceparent": "none"}))
	for _, job := range testkit.Claim(t, q, 2) {
		require.NoError(t, job.Ack(t.Context()))
	}
	require.Len(t, sdk.named("claim orders"), 1)
	require.Empty(t, sdk.named("claim orders")[0].Links)
	require.Len(t, sdk.named("settle orders"), 2)
	require.Empty(t, sdk.named("settle orders")[1].Links)
}

// Each settled claim has a span with the operation as an attribute. A job that was found dead has
// none.
func TestSettles(t *testing.T) {
	testkit.FileOnly(t)
	for operation, settle := range map[string]func(context.Context, *honker.DB, *honker.Job[int]) error{
		"ack": func(ctx context.Context, _ *honker.DB, job *honker.Job[int]) error { return job.Ack(ctx) },
		"retry": func(ctx context.Context, _ *honker.DB, job *honker.Job[int]) error {
			return job.Retry(ctx, time.Hour, testkit.ErrCause)
		},
		"dead-letter": func(ctx context.Context, _ *honker.DB, job *honker.Job[int]) error {
			return job.Reject(ctx, testkit.ErrCause)
		},
		"snooze": func(ctx context.Context, _ *honker.DB, job *honker.Job[int]) error { return job.Snooze(ctx, time.Hour) },
		"settle": func(ctx context.Context, db *honker.DB, job *honker.Job[int]) error {
			honkertest.Lapse(t, db, job.ID)
			require.ErrorIs(t, job.Ack(ctx), honker.ErrClaimLost)
			return nil
		},
		"": func(ctx context.Context, db *honker.DB, job *honker.Job[int]) error {
			honkertest.Lapse(t, db, job.ID)
			testkit.Exec(t, db, `UPDATE _honker_live SET attempts = max_attempts`)
			_, err := honker.NewQueue[int](db, "orders", nil).Claim(ctx, "another", 1)
			return err
		},
	} {
		t.Run(operation, func(t *testing.T) {
			db, _, sdk := instrumented(t, honkerotel.Options{Settles: true})
			q := honker.NewQueue[int](db, "orders", nil)
			testkit.Enqueue(t, q, 1)
			enqueued := sdk.named("enqueue orders")[0]
			require.NoError(t, settle(t.Context(), db, testkit.ClaimOne(t, q)))
			spans := sdk.named("settle orders")
			require.Empty(t, sdk.named("claim orders"), "off by default")
			if operation == "" {
				require.Empty(t, spans)
				return
			}
			require.Len(t, spans, 1)
			span := spans[0]
			require.Equal(t, trace.SpanKindClient, span.SpanKind)
			require.False(t, span.EndTime.Before(span.StartTime))
			require.Len(t, span.Links, 1)
			require.Equal(t, enqueued.SpanContext.SpanID(), span.Links[0].SpanContext.SpanID())
			want := map[string]any{
				"messaging.system": "honker", "messaging.operation.name": operation, "messaging.operation.type": "settle",
				"messaging.destination.name": "orders", "messaging.message.id": "1", "honker.job.attempt": int64(1),
			}
			if operation == "settle" {
				want["error.type"] = "claim_lost"
				require.Equal(t, sdktrace.Status{Code: codes.Error}, span.Status)
			}
			require.Equal(t, want, attributes(span.Attributes))
		})
	}
}

// A worker records spans for claims and settles if the options ask for them. With ParentFromJob, the settles are in
// the job's trace.
func TestSettles_Work(t *testing.T) {
	for _, on := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			db, tel, sdk := instrumented(t, honkerotel.Options{ParentFromJob: true, Claims: on, Settles: on})
			q := honker.NewQueue[int](db, "orders", nil)
			testkit.Enqueue(t, q, 1)
			stop := testkit.Work(t, q, testkit.Succeed[int], &honker.WorkOptions{Middleware: []honker.Middleware{tel.Middleware}})
			synctest.Wait()
			testkit.Enqueue(t, q, 2) // handed to the idle worker
			synctest.Wait()
			require.NoError(t, stop())
			enqueued, settled, claims := sdk.named("enqueue orders"), sdk.named("settle orders"), sdk.named("claim orders")
			require.Len(t, sdk.named("process orders"), 2)
			if !on {
				require.Empty(t, append(settled, claims...))
				return
			}
			require.Len(t, settled, 2)
			require.Len(t, claims, 2)
			for i, span := range settled {
				require.Equal(t, "ack", attributes(span.Attributes)["messaging.operation.name"])
				require.Equal(t, enqueued[i].SpanContext.SpanID(), span.Parent.SpanID())
				require.Empty(t, span.Links)
				require.Equal(t, enqueued[i].SpanContext.SpanID(), claims[i].Links[0].SpanContext.SpanID())
			}
		})
	}
}
