// Package honkerprom exports honker metrics to Prometheus.
//
// There are two kinds of metrics. [New] returns a collector for the state of the database: how many jobs
// are waiting, for how long, and how far consumers are behind. All processes that have the database open
// report the same values. Register the collector in a single process, or take the maximum: max by
// (queue) (honker_queue_jobs). [Observer] counts events in the current process. Use it in every process
// and sum the values.
//
//	reg := prometheus.NewRegistry()
//	db, err := honker.Open(ctx, "app.db", &honker.Options{Observer: honkerprom.Observer(reg, nil)})
//	…
//	reg.MustRegister(honkerprom.New(db, nil))
//	http.Handle("/metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
//
// Label values are the names of queues, topics, consumers, groups and schedules, or come from small fixed
// sets. IDs, keys, workers and errors are never used as labels. The number of names is limited (see
// [Options]).
//
// If a process opens several databases, use prometheus.WrapRegistererWith to distinguish them by a
// label.
//
// The file dashboards/honker.json contains a Grafana dashboard, and alerts.yaml contains alerting
// rules.
package honkerprom
