package wake

import (
	"fmt"
	"strings"

	"github.com/honker-go/honker/internal/row"
)

// selection is what a waiter of TopicEvent waits for.
type selection row.Selection

// id tells selections apart. That of one topic, and that of one topic and one key, follow from
// an event; a NUL is part of no topic.
func (s selection) id() string {
	switch {
	case s.Filter == nil:
		return s.Topic
	case s.Filter.Op == row.KeyIs:
		return keyID(s.Topic, s.Filter.Key)
	}
	return fmt.Sprint(s.Topic, "\x00", s.Filter.Text()) // an object in JSON
}

func keyID(topic, key string) string { return topic + "\x00\x00" + key }

// sparse are the selections that cannot be found by an event's topic and key: patterns, and
// filters for more than one key. By id.
type sparse map[string]row.Selection

func (all sparse) add(id string, s selection) {
	if row.Selection(s).Pattern() || s.Filter != nil && s.Filter.Op != row.KeyIs {
		all[id] = row.Selection(s)
	}
}

// passesOver reports whether waiters of an id pass over events of their topics: all but those of one topic as a whole.
func (all sparse) passesOver(id string) bool {
	_, found := all[id]
	return found || strings.Contains(id, "\x00")
}

// concerned are the ids of the selections that contain one of events. A thousand subscribers
// of one topic with a key each cost no more than one of them.
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
