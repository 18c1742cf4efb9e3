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
	Published float64          // events per second in the last ten minutes
	First     int64            // offset of the first event in the file; 0 if there is none
	Head      int64            // offset of the last event; 0 if there is none
	FirstAt   time.Time        // publication time of the first event in the file; zero if there is none
	LastAt    time.Time        // publication time of the last event
	Retention honker.Retention // see honker.Stream.SetRetention
}

// Topics returns the topics that have events or a retention, sorted by name, from a single snapshot. It
// needs a few index lookups per topic.
//
// Deleted events leave gaps in the offsets, so Topics has to count index entries. It counts up to
// 200,000 events in total, and at least 1,000 per topic. Events.More is set if there are more. Later calls on the same DB
// count only new events and continue the count; see [Consumers]. Topics
// never waits for the writer. It returns [honker.ErrInvalid] if db is nil.
func Topics(ctx context.Context, db *honker.DB) ([]TopicInfo, error) {
	var all []TopicInfo
	err := read(ctx, db, func(ctx context.Context, q engine.Querier, s *engine.Stores) error {
		b, err := newBacklogs(ctx, engine.Of(db), q)
		if err != nil {
			return err
		}
		if err := b.findRecent(ctx); err != nil {
			return err
		}
		total, recent := make([]requested, len(b.topics)), make([]requested, len(b.topics))
		for i, t := range b.topics {
			total[i], recent[i] = b.wantTopic(i, t.First-1), b.wantTopic(i, b.recent)
		}
		if err := b.count(ctx, countedEvents); err != nil {
			return err
		}
		all = make([]TopicInfo, len(b.topics))
		for i, row := range b.topics {
			all[i] = TopicInfo{
				Name:      row.Topic,
				Events:    countOf(b.of(total[i])),
				Published: b.rate(recent[i]),
				First:     row.First,
				Head:      row.Head,
				FirstAt:   row.FirstAt,
				LastAt:    row.LastAt,
				Retention: honker.Retention{MaxCount: row.MaxCount, MaxAge: row.MaxAge},
			}
		}
		return nil
	})
	if err != nil {
		return nil, engine.Wrap("list topics", "", err)
	}
	return all, nil
}
