// Package honkerprom has metrics of honker for Prometheus.
//
// There are two kinds, which must not be mixed up. [New] makes a collector of what is in the file:
// how many jobs wait, since when, how far consumers are behind. Every process that has the file open
// says the same, so register it in one of them, or take the maximum: max by (queue) (honker_queue_jobs).
// [Observer] counts what this process does. Use it in each process, and take the sum.
//
//	reg := prometheus.NewRegistry()
//	db, err := honker.Open(ctx, "app.db", &honker.Options{Observer: honkerprom.Observer(reg, nil)})
//	…
//	reg.MustRegister(honkerprom.New(db, nil))
//	http.Handle("/metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
//
// Labels are names of queues, topics, consumers, groups and schedules, and closed sets. Ids, keys,
// workers and errors are no labels. The number of names is bounded, see [Options].
//
// For several files in one process give each a label: prometheus.WrapRegistererWith.
//
// dashboards/honker.json is a dashboard for Grafana, and alerts.yaml has rules for Prometheus.
package honkerprom
