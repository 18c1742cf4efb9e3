package admin

import (
	"context"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/store"
)

// TopicInfo is what the file has of a topic of events. Offsets are those of all topics together, so
// First and Head say nothing about how many events lie between them.
type TopicInfo struct {
	Name      string
	Events    honker.Count     // counted up to a bound, see Topics
	First     int64            // offset of the first event that is kept; 0: there is none
	Head      int64            // offset of the last event; 0: there is none
	LastAt    time.Time        // when that was published
	Retention honker.Retention // see honker.Stream.SetRetention
}

// topicStore are the statements about topics.
type topicStore interface {
	Topics(ctx context.Context, q engine.Querier) ([]row.TopicState, error)
}

var topics topicStore = store.Streams{}

// Topics returns the topics that have events or a retention, by name, all of one moment. It finds
// them by a few seeks each. Events are counted, since deleted ones leave gaps, by an entry of an index
// each: 100,000 of all topics together, and 1,000 of each at least; Events.More says that
// there are others. It never waits for the writer. nil as the DB is [honker.ErrInvalid].
func Topics(ctx context.Context, db *honker.DB) ([]TopicInfo, error) {
	var all []TopicInfo
	err := read(ctx, db, func(ctx context.Context, q engine.Querier) error {
		rows, err := topics.Topics(ctx, q)
		all = make([]TopicInfo, len(rows))
		for i, row := range rows {
			all[i] = TopicInfo{
				Name:      row.Topic,
				Events:    honker.Count{N: row.Events, More: row.More},
				First:     row.First,
				Head:      row.Head,
				LastAt:    engine.Instant(row.LastAt),
				Retention: honker.Retention{MaxCount: row.MaxCount, MaxAge: engine.Milliseconds(row.MaxAgeMS)},
			}
		}
		return err
	})
	if err != nil {
		return nil, engine.Wrap("list topics", "", err)
	}
	return all, nil
}
