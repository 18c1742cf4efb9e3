package honkerprom

import (
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// buildInfo returns the metric with the version of honker in the running program, which is "" if it is unknown.
var buildInfo = sync.OnceValue(func() prometheus.Metric {
	const module = "github.com/honker-go/honker"
	version := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range append(info.Deps, &info.Main) {
			if m.Path == module {
				version = m.Version
			}
		}
	}
	return prometheus.MustNewConstMetric(build, prometheus.GaugeValue, 1, version, runtime.Version())
})
