package admin

import (
	"context"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
)

// TopicInfo describes a topic. All topics share a single sequence of offsets, so the difference between
// First and Head is not the number of events.
type TopicInfo struct {
	Name      string
	Events    honker.Count     // counted up to a limit; see Topics
	First     int64            // offset of the first event in the file; 0 if there is none
	Head      int64            // offset of the last event; 0 if there is none
	LastAt    time.Time        // publication time of the last event
	Retention honker.Retention // see honker.Stream.SetRetention
}

// Topics returns the topics that have events or a retention, sorted by name, from a single snapshot. It
// needs a few index lookups per topic.
//
// Deleted events leave gaps in the offsets, so Topics has to count index entries. It counts up to
// 100,000 events in total, but at least 1,000 per topic. Events.More is set if there are more. Topics
// never waits for the writer. It returns [honker.ErrInvalid] if db is nil.
func Topics(ctx context.Context, db *honker.DB) ([]TopicInfo, error) {
	var all []TopicInfo
	err := read(ctx, db, func(ctx context.Context, q engine.Querier, s *engine.Stores) error {
		rows, err := s.Streams.Topics(ctx, q)
		all = make([]TopicInfo, len(rows))
		for i, row := range rows {
			all[i] = TopicInfo{
				Name:      row.Topic,
				Events:    honker.Count{N: row.Events, More: row.More},
				First:     row.First,
				Head:      row.Head,
				LastAt:    row.LastAt,
				Retention: honker.Retention{MaxCount: row.MaxCount, MaxAge: row.MaxAge},
			}
		}
		return err
	})
	if err != nil {
		return nil, engine.Wrap("list topics", "", err)
	}
	return all, nil
}
