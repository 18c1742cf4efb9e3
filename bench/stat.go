package main

import (
	"math"
	"slices"
	"time"
)

// median returns the median of v, which must not be empty. For an even number of values it is the
// lower of the middle values.
func median(v []float64) float64 { return quantile(v, 0.5) }

func quantile(v []float64, q float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[max(0, int(math.Ceil(q*float64(len(s))))-1)]
}

// newCell summarizes the rounds of a contestant relative to those of the ceiling.
func newCell(rounds, ceiling []float64) Cell {
	c := Cell{Rounds: rounds, Median: median(rounds), Min: slices.Min(rounds), Max: slices.Max(rounds)}
	var ratios []float64
	for i := range min(len(rounds), len(ceiling)) {
		if ceiling[i] > 0 {
			ratios = append(ratios, rounds[i]/ceiling[i])
		}
	}
	if len(ratios) > 0 {
		c.Ratio = median(ratios)
	}
	return c
}

// latencies are durations in milliseconds.
type latencies []float64

func (l *latencies) add(d time.Duration) { *l = append(*l, float64(d.Nanoseconds())/1e6) }

func (l latencies) values() []float64 {
	return []float64{quantile(l, 0.5), quantile(l, 0.99), slices.Max(l), float64(len(l))}
}

var latencyMetrics = []Metric{{"p50", "ms", false}, {"p99", "ms", false}, {"max", "ms", false}, {"samples", "", true}}
