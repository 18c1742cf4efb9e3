package row

import (
	"encoding/json"
	"strings"
)

// Filter is a condition on the keys of events; no key counts as "". It is kept as JSON beside
// a consumer, so that any process can count what the consumer has still to see.
type Filter struct {
	Op  FilterOp `json:"op"`
	Key string   `json:"key,omitempty"` // KeyIs, KeyPrefix
	Of  []Filter `json:"of,omitempty"`  // And, Or
}

// FilterOp is the kind of a Filter.
type FilterOp string

// The kinds of filters.
const (
	KeyIs     FilterOp = "is"
	KeyPrefix FilterOp = "prefix"
	And       FilterOp = "and" // of none: everything
	Or        FilterOp = "or"  // of none: nothing
)

// Passes tells whether an event with key passes f, as the condition in SQL does.
func (f *Filter) Passes(key string) bool {
	switch f.Op {
	case KeyIs:
		return key == f.Key
	case KeyPrefix:
		return strings.HasPrefix(key, f.Key)
	case And:
		for i := range f.Of {
			if !f.Of[i].Passes(key) {
				return false
			}
		}
		return true
	case Or:
		for i := range f.Of {
			if f.Of[i].Passes(key) {
				return true
			}
		}
	}
	return false
}

// Text is f as it is kept in the file: JSON text, or nil for no filter.
func (f *Filter) Text() any {
	if f == nil {
		return nil
	}
	b, _ := json.Marshal(f) // strings cannot fail
	return string(b)
}

// Added is what a log has grown by: for each name the keys of its new rows.
type Added map[string]map[string]bool

// add notes a row.
func (a Added) Add(name, key string) {
	keys := a[name]
	if keys == nil {
		keys = make(map[string]bool, 1)
		a[name] = keys
	}
	keys[key] = true
}

// Event is a row of _honker_stream.
type Event struct {
	Offset    int64
	Topic     string
	Key       string // "" also for none
	Payload   []byte
	CreatedAt int64
}

// Selection says which events are read.
type Selection struct {
	Topic  string  // a topic, or a prefix followed by *
	Filter *Filter // nil: all
}

// Pattern tells whether the selection may cover several topics.
func (s Selection) Pattern() bool { return strings.HasSuffix(s.Topic, "*") }

// Sparse tells whether a read has to pass over rows that the selection does not contain.
func (s Selection) Sparse() bool { return s.Filter != nil || s.Pattern() }

// Gained tells whether the selection contains one of the events that were added.
func (s Selection) Gained(added Added) bool {
	if !s.Pattern() {
		return s.anyPasses(added[s.Topic])
	}
	for topic, keys := range added {
		if s.Matches(topic) && s.anyPasses(keys) {
			return true
		}
	}
	return false
}

func (s Selection) anyPasses(keys map[string]bool) bool {
	if s.Filter == nil {
		return len(keys) > 0
	}
	for key := range keys {
		if s.Filter.Passes(key) {
			return true
		}
	}
	return false
}

// Matches tells whether the selection contains topic, its filter aside.
func (s Selection) Matches(topic string) bool {
	if prefix, ok := strings.CutSuffix(s.Topic, "*"); ok {
		return strings.HasPrefix(topic, prefix)
	}
	return topic == s.Topic
}

// KeyedEvent is an event that may have no key.
type KeyedEvent struct {
	Event
	Key any
}

// Ahead is what a selection has above an offset, as far as it was counted.
type Ahead struct {
	Count         // More: there may be others
	FirstAt int64 // when the first was created; 0: there is none
}

// TopicState is what the file has of a topic.
type TopicState struct {
	Retention
	Events      int64 // as many as were counted
	More        bool  // there are others
	First, Head int64 // offsets; 0: there are no events
	LastAt      int64 // of the event at Head
}

// Consumer is a row of _honker_stream_consumers and of _honkerx_consumers beside it.
type Consumer struct {
	Name      string
	Topic     string // or a pattern
	Offset    int64
	CreatedMS int64 // 0: made by another binding
	LastAckMS int64 // 0: never, or by another binding
	Filter    *Filter

	Unreadable error // why the filter cannot be read
}

// Selection is what the consumer reads.
func (c Consumer) Selection() Selection { return Selection{Topic: c.Topic, Filter: c.Filter} }
