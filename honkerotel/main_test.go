package honkerotel_test

import (
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerotel"
	"github.com/honker-go/honker/honkertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sdk is an SDK that keeps spans and metrics in memory.
type sdk struct {
	provider *sdktrace.TracerProvider
	spans    *tracetest.InMemoryExporter
	metrics  *metric.ManualReader
}

// instrumented returns a DB that uses the observer and headers of a new Telemetry.
func instrumented(t *testing.T, opts honkerotel.Options) (*honker.DB, *honkerotel.Telemetry, *sdk) {
	t.Helper()
	s := &sdk{spans: tracetest.NewInMemoryExporter(), metrics: metric.NewManualReader()}
	s.provider = sdktrace.NewTracerProvider(sdktrace.WithSyncer(s.spans))
	opts.TracerProvider, opts.MeterProvider = s.provider, metric.NewMeterProvider(metric.WithReader(s.metrics))
	tel := honkerotel.New(&opts)
	return honkertest.Open(t, &honker.Options{Observer: tel.Observer, Headers: tel.Headers}), tel, s
}

// take returns the spans that have ended since the last call, by name.
func (s *sdk) take() map[string]tracetest.SpanStub {
	spans := map[string]tracetest.SpanStub{}
	for _, span := range s.spans.GetSpans() {
		spans[span.Name] = span
	}
	s.spans.Reset()
	return spans
}

// attributes converts attributes to a map.
func attributes(all []attribute.KeyValue) map[string]any {
	by := map[string]any{}
	for _, kv := range all {
		by[string(kv.Key)] = kv.Value.AsInterface()
	}
	return by
}

// points returns the values of a metric by the given attributes. The value of a histogram is its
// number of observations.
func (s *sdk) points(t *testing.T, name string, by ...attribute.Key) map[string]float64 {
	t.Helper()
	var data metricdata.ResourceMetrics
	require.NoError(t, s.metrics.Collect(t.Context(), &data))
	values := map[string]float64{}
	add := func(set attribute.Set, v float64) {
		label := ""
		for _, key := range by {
			value, _ := set.Value(key)
			label += value.String() + " "
		}
		values[label] += v
	}
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name == name {
				eachPoint(m.Data, add)
			}
		}
	}
	return values
}

func eachPoint(data metricdata.Aggregation, add func(attribute.Set, float64)) {
	switch data := data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			add(p.Attributes, float64(p.Value))
		}
	case metricdata.Gauge[int64]:
		for _, p := range data.DataPoints {
			add(p.Attributes, float64(p.Value))
		}
	case metricdata.Gauge[float64]:
		for _, p := range data.DataPoints {
			add(p.Attributes, p.Value)
		}
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			add(p.Attributes, float64(p.Count))
		}
	}
}
