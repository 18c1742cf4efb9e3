package honkerprom

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// gauge is a metric that combines values with the same labels.
type gauge struct {
	desc   *prometheus.Desc
	merge  func(a, b float64) float64
	values map[[2]string]float64 // keyed by up to two labels
	labels int
}

// summed returns a gauge that adds values.
func summed(d *prometheus.Desc, labels int) *gauge {
	return &gauge{d, func(a, b float64) float64 { return a + b }, map[[2]string]float64{}, labels}
}

// largest returns a gauge that keeps the largest value, and smallest that keeps the smallest.
func largest(d *prometheus.Desc, labels int) *gauge {
	return &gauge{d, func(a, b float64) float64 { return max(a, b) }, map[[2]string]float64{}, labels}
}

func smallest(d *prometheus.Desc, labels int) *gauge {
	return &gauge{d, func(a, b float64) float64 { return min(a, b) }, map[[2]string]float64{}, labels}
}

func (g *gauge) add(v float64, labels ...string) {
	var at [2]string
	copy(at[:], labels)
	if old, known := g.values[at]; known {
		v = g.merge(old, v)
	}
	g.values[at] = v
}

func metricsOf(gauges ...*gauge) (all []prometheus.Metric) {
	for _, g := range gauges {
		for labels, v := range g.values {
			all = append(all, prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, v, labels[:g.labels]...))
		}
	}
	return all
}

// is converts a bool to 1 or 0.
func is(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// since returns the seconds from t until now, which is a time of the database's clock, or 0 for the zero time.
func since(t, now time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return max(0, now.Sub(t).Seconds())
}
