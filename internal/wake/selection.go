package wake

import (
	"fmt"
	"strings"

	"github.com/honker-go/honker/internal/row"
)

// selection is the set of events that a waiter of TopicEvent waits for.
type selection row.Selection

// id returns a string that identifies the selection. The IDs for a single topic, and for a topic with a single key,
// can be derived from an event. Topics don't contain NUL.
func (s selection) id() string {
	switch {
	case s.Filter == nil:
		return s.Topic
	case s.Filter.Op == row.KeyIs:
		return keyID(s.Topic, s.Filter.Key)
	}
	return fmt.Sprint(s.Topic, "\x00", s.Filter.Text()) // the text is a JSON object
}

// keyID returns the ID of the selection of a single key in topic.
func keyID(topic, key string) string { return topic + "\x00\x00" + key }

// sparse holds, by ID, the selections that can't be found from an event's topic and key: patterns, and filters for
// more than a single key.
type sparse map[string]row.Selection

// add adds s unless it can be found from an event's topic and key.
func (all sparse) add(id string, s selection) {
	if row.Selection(s).Pattern() || s.Filter != nil && s.Filter.Op != row.KeyIs {
		all[id] = row.Selection(s)
	}
}

// passesOver reports whether the waiters for id skip some of their topics' events. All do except waiters for a whole
// topic.
func (all sparse) passesOver(id string) bool {
	_, found := all[id]
	return found || strings.Contains(id, "\x00")
}

// concerned returns the IDs of the selections that contain any of events. For a topic with a thousand subscribers,
// each interested in a different key, it costs no more than for a single subscriber.
func (all sparse) concerned(events row.Added) (ids []string) {
	for topic, keys := range events {
		ids = append(ids, topic)
		for key := range keys {
			ids = append(ids, keyID(topic, key))
		}
	}
	for id, s := range all {
		if s.Gained(events) {
			ids = append(ids, id)
		}
	}
	return ids
}
