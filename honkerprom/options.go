package honkerprom

import (
	"log/slog"
	"strings"
	"sync"
)

// Options of [New] and [Observer]. The zero value of a field means its default.
type Options struct {
	// QueueLabel is the label of a queue, for names that grow with customers: "tenant-17" may become
	// "tenant". Queues with one label are added up; of times the longest is taken. It is called for
	// each event, by several goroutines, and must be quick. nil: the name.
	QueueLabel func(queue string) string
	// MaxQueues is how many labels of queues there are, the first that come; all others are "_other".
	// The same number holds for topics, consumers, groups and schedules. Default 100.
	MaxQueues int
	// Logger is told when the file cannot be read. nil: slog.Default().
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

// names are the labels of one kind of things. A label that there is once stays, so that a series
// does not begin and end with the order in which names come.
type names struct {
	fold func(string) string
	most int

	mu    sync.RWMutex
	known map[string]bool
}

func newNames(most int, fold func(string) string) *names {
	return &names{fold: fold, most: most, known: map[string]bool{}}
}

// label is that of name.
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

// pair is the labels of what has a name of its own on a topic.
func (n *names) pair(topic, name string) (topicLabel, label string) {
	const between = "\x00" // no name has it
	joined := n.label(topic + between + name)
	if joined == other {
		return other, other
	}
	topicLabel, label, _ = strings.Cut(joined, between)
	return topicLabel, label
}

// text is name as Prometheus wants it: other bindings may have written bytes that are no UTF-8.
func text(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }
