// Package honkerprom exports metrics of honker to Prometheus.
//
// There are two kinds of metrics. [New] returns a collector for the state of the database: how many jobs
// wait, for how long, and how far consumers are behind. All processes that have the database open report
// the same values. Register the collector in a single process, or take the maximum: max by (queue)
// (honker_queue_jobs). [Observer] counts the events of this process. Use it in every process and sum the
// values.
//
//	reg := prometheus.NewRegistry()
//	db, err := honker.Open(ctx, "app.db", &honker.Options{Observer: honkerprom.Observer(reg, nil)})
//	…
//	reg.MustRegister(honkerprom.New(db, nil))
//	http.Handle("/metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
//
// Labels are the names of queues, topics, consumers, groups and schedules, or come from small fixed sets.
// Ids, keys, workers and errors are never labels. The number of names is limited (see [Options]).
//
// If a process opens several databases, add a label for each with prometheus.WrapRegistererWith.
//
// The file dashboards/honker.json is a dashboard for Grafana, and alerts.yaml has alerting rules.
package honkerprom
