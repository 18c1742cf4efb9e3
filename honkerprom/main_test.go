package honkerprom_test

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// registered returns a registry with the given collectors.
func registered(cs ...prometheus.Collector) *prometheus.Registry {
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(cs...)
	return reg
}

// scrape returns the values by name and labels, such as
// `honker_queue_jobs{phase="ready",queue="mails"}`. The value of a histogram is its number of
// observations.
func scrape(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			values[f.GetName()+labelsOf(m)] = valueOf(m)
		}
	}
	return values
}

func valueOf(m *dto.Metric) float64 {
	switch {
	case m.Histogram != nil:
		return float64(m.Histogram.GetSampleCount())
	case m.Counter != nil:
		return m.Counter.GetValue()
	default:
		return m.Gauge.GetValue()
	}
}

func labelsOf(m *dto.Metric) string {
	var labels []string
	for _, l := range m.GetLabel() {
		labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
	}
	if labels == nil {
		return ""
	}
	slices.Sort(labels)
	return "{" + strings.Join(labels, ",") + "}"
}

// only returns the values whose names begin with prefix.
func only(values map[string]float64, prefix string) map[string]float64 {
	some := map[string]float64{}
	for name, v := range values {
		if strings.HasPrefix(name, prefix) {
			some[name] = v
		}
	}
	return some
}
