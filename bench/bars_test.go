package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// resultsOf returns the results of a case, with the values of raw and honker in each round.
func resultsOf(m Metric, raw, own []float64) *Results {
	cell := func(rounds []float64, ratio float64) []Cell { return []Cell{{Rounds: rounds, Ratio: ratio}} }
	return &Results{Tables: []Table{{Suite: "wake", Case: "same process", Metrics: []Metric{m}, Rows: []Row{
		{Contestant: ceilingName, Cells: cell(raw, 1)}, {Contestant: honkerName, Cells: cell(own, own[0]/raw[0])},
	}}}}
}

func TestBars(t *testing.T) {
	latency, rate := Metric{Name: "p50", Unit: "ms"}, Metric{Name: "rate", Unit: "jobs/s", More: true}
	for name, c := range map[string]struct {
		metric Metric
		own    []float64 // beside 1 of raw in each round, and 0.5 in the earlier run
		worse  bool
	}{
		"the same latency":                 {latency, []float64{0.5, 0.5}, false},
		"a latency within the bar":         {latency, []float64{3.9, 3.9}, false},
		"a latency beyond it":              {latency, []float64{4.1, 400}, true},
		"a latency beyond it in one round": {latency, []float64{400, 0.5}, false},
		"a rate within the bar":            {rate, []float64{0.3, 0.3}, false},
		"a rate beyond it":                 {rate, []float64{0.2, 0.1}, true},
		"a rate beyond it in one round":    {rate, []float64{0.2, 0.5}, false},
		"a high percentile":                {Metric{Name: "p99", Unit: "ms"}, []float64{40, 40}, false},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "results.json")
			require.NoError(t, resultsOf(c.metric, []float64{1, 1}, []float64{0.5, 0.5}).write(path))
			err := checkBars(resultsOf(c.metric, []float64{1, 1}, c.own), path)
			if !c.worse {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, errWorse)
			require.ErrorContains(t, err, "wake, same process")
		})
	}
	require.Error(t, checkBars(&Results{}, filepath.Join(t.TempDir(), "results.json")), "a missing file")
}
