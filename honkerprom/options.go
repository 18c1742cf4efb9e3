package honkerprom

import (
	"log/slog"
	"strings"
	"sync"
)

// Options configures [New] and [Observer]. The zero value of a field means its default.
type Options struct {
	// QueueLabel returns the label of a queue. Use it if the number of queues grows with that of
	// customers, for example to map "tenant-17" to "tenant". Queues with the same label are added
	// up, and of times the longest is reported. QueueLabel is called for each event from several
	// goroutines and must be fast. If nil, the label is the name of the queue.
	QueueLabel func(queue string) string
	// MaxQueues is the maximum number of queue labels. Queues beyond it, in the order of their
	// first use, are labeled "_other". The limit also applies to each of topics, consumers, groups
	// and schedules. The default is 100.
	MaxQueues int
	// Logger logs failed reads of the database. If nil, slog.Default() is used.
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

// other is the label of all names beyond Options.MaxQueues.
const other = "_other"

// names assigns the labels of a kind of object. An assigned label is kept, so that series do not
// start and stop depending on the order of names.
type names struct {
	fold func(string) string
	most int

	mu    sync.RWMutex
	known map[string]bool
}

func newNames(most int, fold func(string) string) *names {
	return &names{fold: fold, most: most, known: map[string]bool{}}
}

// label returns the label of name, or other if the limit is reached.
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

// pair returns the labels of a topic and of a consumer or group on it.
func (n *names) pair(topic, name string) (topicLabel, label string) {
	const between = "\x00" // names cannot contain NUL
	joined := n.label(topic + between + name)
	if joined == other {
		return other, other
	}
	topicLabel, label, _ = strings.Cut(joined, between)
	return topicLabel, label
}

// text returns name as valid UTF-8, as Prometheus requires. Other bindings may write invalid names.
func text(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }
