package honkerotel_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerotel"
)

// With ParentFromJob, a job and its handler share a trace.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "honker")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	spans := tracetest.NewInMemoryExporter() // or an OTLP exporter
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))

	tel := honkerotel.New(&honkerotel.Options{TracerProvider: provider, ParentFromJob: true})
	db, err := honker.Open(ctx, filepath.Join(dir, "app.db"), &honker.Options{Observer: tel.Observer, Headers: tel.Headers})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	mails := honker.NewQueue[string](db, "mails", nil)
	if _, err := mails.Enqueue(ctx, "hello"); err != nil {
		log.Fatal(err)
	}
	_, err = mails.WorkDue(ctx, func(context.Context, *honker.Job[string]) error { return nil },
		&honker.WorkOptions{Middleware: []honker.Middleware{tel.Middleware}})
	if err != nil {
		log.Fatal(err)
	}
	ended := spans.GetSpans()
	for _, span := range ended {
		fmt.Println(span.SpanKind, span.Name)
	}
	fmt.Println("one trace:", ended[0].SpanContext.TraceID() == ended[1].SpanContext.TraceID())
	// Output:
	// producer enqueue mails
	// consumer process mails
	// one trace: true
}
