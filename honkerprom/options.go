package honkerprom

import "log/slog"

// Options configures [New] and [Observer]. The zero value of a field selects its default.
type Options struct {
	// QueueLabel returns the label for a queue. Set it if the number of queues grows with the number of customers,
	// for example to map "tenant-17" to "tenant". For queues with the same label, counts are added up and the longest
	// time is reported. QueueLabel is called for each event, so it must be fast, and it must be safe for concurrent
	// use. If nil, the label is the queue name.
	QueueLabel func(queue string) string
	// MaxQueues is the maximum number of queue labels. All further queues are labeled "_other". A label that has been
	// assigned is kept for the life of the process. An Observer assigns labels in order of first use. A Collector
	// prefers the queues with the most dead, running and ready jobs and the most traffic of the last hour, and reports
	// the number of the further queues in honker_queues_folded. The same limit applies to topics, consumers, groups,
	// schedules, flows, relay queues and types of actors, in order of name. The default is 100.
	MaxQueues int
	// Logger logs failed database reads. If nil, slog.Default() is used.
	Logger *slog.Logger
}

func (o *Options) withDefaults() Options {
	var out Options
	if o != nil {
		out = *o
	}
	if out.QueueLabel == nil {
		out.QueueLabel = func(queue string) string { return queue }
	}
	if out.MaxQueues <= 0 {
		out.MaxQueues = 100
	}
	if out.Logger == nil {
		out.Logger = slog.Default()
	}
	return out
}
