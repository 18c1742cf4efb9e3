package row

import (
	"encoding/json"
	"math"
	"strings"
	"time"
)

// Filter is a condition on event keys. An event without a key has the key "". A filter is stored as
// JSON with its consumer, so any process can count the consumer's unseen events.
type Filter struct {
	Op  FilterOp `json:"op"`
	Key string   `json:"key,omitempty"` // operand of KeyIs and KeyPrefix
	Of  []Filter `json:"of,omitempty"`  // operands of And and Or
}

// FilterOp is the kind of a Filter.
type FilterOp string

// The kinds of filters.
const (
	KeyIs     FilterOp = "is"
	KeyPrefix FilterOp = "prefix"
	And       FilterOp = "and" // without operands, matches everything
	Or        FilterOp = "or"  // without operands, matches nothing
)

// Passes reports whether f matches an event with key. It must agree with the condition that a store
// evaluates.
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

// Text returns the stored form of f, which is JSON. It returns "" if f is nil.
func (f *Filter) Text() string {
	if f == nil {
		return ""
	}
	b, _ := json.Marshal(f) // strings can't fail
	return string(b)
}

// Added records rows added to a log. It maps each topic or channel to the keys of its new rows.
type Added map[string]map[string]bool

// Add records a row with the given name and key.
func (a Added) Add(name, key string) {
	keys := a[name]
	if keys == nil {
		keys = make(map[string]bool, 1)
		a[name] = keys
	}
	keys[key] = true
}

// Event is an event of a stream.
type Event struct {
	Offset    int64
	Topic     string
	Key       string // also "" if the event has no key
	Payload   string
	CreatedAt time.Time
}

// Publication is a request to append events to a topic.
type Publication struct {
	Topic    string
	Keys     []string // empty for events without a key; a single key for all events, or a key for each
	Payloads []string // a JSON value for each event; at least one
}

// EventRead is a request for a page of a selection's events.
type EventRead struct {
	Selection
	After   int64 // the events have offsets above After
	Through int64 // and no higher than Through; Unbounded for no limit
	Limit   int   // maximum number of events
	Scanned int64 // the previous page's EventPage.Scanned; 0 for the first page
}

// EventPage is a page of events.
type EventPage struct {
	Events  []Event // in the order of their offsets
	Next    int64   // EventRead.After for the next page; all selected events up to Next have been read
	Scanned int64   // how far a read of a sparse selection may scan before the store sets a new bound
	End     bool    // no events after Next and up to EventRead.Through exist; always false for a sparse selection
}

// Position is where a reader of a selection begins. At most one field may be set. The zero Position
// is before the first event.
type Position struct {
	After int64     // after the event with this offset, whether or not it exists
	End   bool      // after the last event, even if that event was deleted
	Since time.Time // before the first event created in this second or later; the end if there is none
}

// Start is a Position resolved to an offset.
type Start struct {
	Offset int64 // the reader begins after this offset
	Gone   int64 // last offset that compaction has deleted from the topics of the selection; 0 for none
}

// Selection selects the events that a consumer or group reads.
type Selection struct {
	Topic  string  // a topic, or a prefix followed by *
	Filter *Filter // nil for all events
}

// Pattern reports whether the selection may cover several topics.
func (s Selection) Pattern() bool { return strings.HasSuffix(s.Topic, "*") }

// Sparse reports whether a read may have to skip events outside the selection.
func (s Selection) Sparse() bool { return s.Filter != nil || s.Pattern() }

// Gained reports whether the selection contains any of the added events.
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

// anyPasses reports whether the filter matches any of keys.
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

// Matches reports whether the selection covers topic. It ignores the filter.
func (s Selection) Matches(topic string) bool {
	if prefix, ok := strings.CutSuffix(s.Topic, "*"); ok {
		return strings.HasPrefix(topic, prefix)
	}
	return topic == s.Topic
}

// Ahead counts a selection's events above an offset.
type Ahead struct {
	Count             // More is set if the count stopped early
	FirstAt time.Time // creation time of the first event; zero if there is none
}

// TopicState describes a topic's stored events and retention.
type TopicState struct {
	Retention
	First, Head     int64     // lowest and highest offset; 0 if there are no events
	FirstAt, LastAt time.Time // creation times of the events at First and Head; zero if there are no events
	Gone            int64     // last offset that compaction has deleted from the topic; 0 for none
}

// OffsetIn is a position in a topic.
type OffsetIn struct {
	Topic  string
	Offset int64
}

// CountedDown is the result of a count of events that begins at a high offset and may stop early.
type CountedDown struct {
	N       int64
	Reached int64 // all events above this offset were counted
}

// Consumer is a named consumer of a stream and its saved offset.
type Consumer struct {
	Name      string
	Topic     string // topic or pattern
	Offset    int64
	CreatedAt time.Time // zero if another binding created it and Add was never called for it
	LastAck   time.Time // zero if it never acked, or acked by another binding
	Filter    *Filter   // nil for all events
	Mark      Mark      // taken by the first save of an offset, and ten minutes or more after the mark before
	PastMark  Mark      // the mark before

	Unreadable error // error from decoding the filter, or nil
}

// MarkEvery is the minimum time between two marks of a consumer.
const MarkEvery = 10 * time.Minute

// Mark is a position that a consumer had in the past. The zero Mark is unknown.
type Mark struct {
	At     time.Time
	Offset int64
	Behind time.Duration // age of the next event of the consumer's topic at that time; 0 if there was none
}

// Baseline returns the newest mark that is at least MarkEvery old at now. It returns false if there is none, or if the
// consumer was moved back since.
func (c Consumer) Baseline(now time.Time) (Mark, bool) {
	m := c.Mark
	if now.Sub(m.At) < MarkEvery {
		m = c.PastMark
	}
	return m, !m.At.IsZero() && m.Offset <= c.Offset
}

// Selection returns the consumer's selection of events.
func (c Consumer) Selection() Selection { return Selection{Topic: c.Topic, Filter: c.Filter} }

// NewConsumer is a request to create a consumer, or to change an existing consumer's filter.
type NewConsumer struct {
	Topic  string // topic or pattern
	Name   string
	Filter *Filter  // nil for all events
	From   Position // where a new consumer begins; the filter is ignored
}

// AddedConsumer is the result of a NewConsumer.
type AddedConsumer struct {
	Start      // where the consumer begins; Gone is 0 if it existed before
	Found bool // the consumer existed before
}

// Unbounded is an upper limit that no offset ever reaches.
const Unbounded = math.MaxInt64
