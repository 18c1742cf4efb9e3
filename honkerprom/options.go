package honkerprom

import (
	"log/slog"
	"strings"
	"sync"
)

// Options configures [New] and [Observer]. The zero value of a field selects its default.
type Options struct {
	// QueueLabel returns the label for a queue. Set it if the number of queues grows with the number of customers,
	// for example to map "tenant-17" to "tenant". For queues with the same label, counts are added up and the longest
	// time is reported. QueueLabel is called for each event, so it must be fast, and it must be safe for concurrent
	// use. If nil, the label is the queue name.
	QueueLabel func(queue string) string
	// MaxQueues is the maximum number of queue labels. Labels are assigned in order of first use;
	// all further queues are labeled "_other". The same limit applies to topics, consumers, groups
	// and schedules. The default is 100.
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

// other is the label for all names beyond Options.MaxQueues.
const other = "_other"

// names assigns labels to objects of a single kind. Assigned labels never change; otherwise series
// would start and stop depending on the order of names.
type names struct {
	fold func(string) string
	most int

	mu    sync.RWMutex
	known map[string]bool
}

func newNames(most int, fold func(string) string) *names {
	return &names{fold: fold, most: most, known: map[string]bool{}}
}

// label returns the label for name, or other if the limit has been reached.
func (n *names) label(name string) string {
	if n.fold != nil {
		name = n.fold(name)
	}
	if n.has(name) {
		return text(name)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.known[name] && len(n.known) >= n.most {
		return other
	}
	n.known[name] = true
	return text(name)
}

func (n *names) has(name string) bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.known[name]
}

// pair returns the labels for a topic and for a consumer or group that reads it.
func (n *names) pair(topic, name string) (topicLabel, label string) {
	const between = "\x00" // names cannot contain NUL
	joined := n.label(topic + between + name)
	if joined == other {
		return other, other
	}
	topicLabel, label, _ = strings.Cut(joined, between)
	return topicLabel, label
}

// text returns name as valid UTF-8, as Prometheus requires. Other bindings may have written invalid
// names.
func text(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }
