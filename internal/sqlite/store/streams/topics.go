package streams

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// sqlTopicStates uses the index on (topic, offset). It takes a seek each to find the next topic, its first event and
// its last event.
var sqlTopicStates = `WITH RECURSIVE
  ` + rows.SkipScan("streamed", "topic", "_honker_stream INDEXED BY _honker_stream_topic WHERE 1") + `,
  topics(topic) AS (SELECT topic FROM streamed WHERE topic IS NOT NULL UNION SELECT topic FROM _honkerx_retention)
SELECT t.topic, f.offset, f.created_at, h.offset, h.created_at, r.max_count, r.max_age_ms
FROM topics AS t
LEFT JOIN _honkerx_retention AS r ON r.topic = t.topic
LEFT JOIN _honker_stream AS f ON f.offset = (SELECT min(offset)` + ByTopic + `t.topic)
LEFT JOIN _honker_stream AS h ON h.offset = (SELECT max(offset)` + ByTopic + `t.topic)
ORDER BY t.topic`

// Topics returns the state of each topic that has events or a retention, sorted by name. It counts no events.
func (Streams) Topics(ctx context.Context, q row.Querier) (all []row.TopicState, err error) {
	gone, err := compactedTopics(ctx, q)
	if err != nil {
		return nil, err
	}
	err = rows.Each(ctx, q, sqlTopicStates, func(r *sql.Rows) error {
		var t row.TopicState
		var age int64
		err := r.Scan(&t.Topic, (*rows.Number)(&t.First), (*rows.Second)(&t.FirstAt), (*rows.Number)(&t.Head), (*rows.Second)(&t.LastAt),
			(*rows.Number)(&t.MaxCount), (*rows.Number)(&age))
		t.MaxAge, t.Gone = row.Milliseconds(age), gone[t.Topic]
		all = append(all, t)
		return err
	})
	return all, err
}

const sqlAllCompacted = `SELECT topic, through FROM _honkerx_compacted`

// compactedTopics returns the last offset that Compact has deleted from each topic.
func compactedTopics(ctx context.Context, q row.Querier) (map[string]int64, error) {
	var x int
	if found, err := rows.One(ctx, q, sqlHasCompacted, nil, &x); err != nil || !found {
		return nil, err
	}
	through := make(map[string]int64)
	err := rows.Each(ctx, q, sqlAllCompacted, func(r *sql.Rows) error {
		var topic string
		var offset int64
		err := r.Scan(&topic, (*rows.Number)(&offset))
		through[topic] = offset
		return err
	})
	return through, err
}

// sqlCountDown uses the index on (topic, offset), from the end.
const sqlCountDown = `SELECT count(*), min(offset) FROM (SELECT offset` + ByTopic + `?1 AND offset > ?2 AND offset <= ?3
ORDER BY offset DESC LIMIT ?4 + 0)`

// CountDown counts the events of a topic with offsets above after and at most through, from the highest down. It stops
// after most events.
func (Streams) CountDown(ctx context.Context, q row.Querier, topic string, after, through, most int64) (c row.CountedDown, err error) {
	var lowest int64
	_, err = rows.One(ctx, q, sqlCountDown, []any{topic, after, through, most}, &c.N, (*rows.Number)(&lowest))
	switch {
	case c.N < most:
		c.Reached = after
	case c.N == 0:
		c.Reached = through
	default:
		c.Reached = lowest - 1
	}
	return c, err
}

// sqlTimesAfter uses the index on (topic, offset), and the primary key.
const sqlTimesAfter = `SELECT (SELECT created_at FROM _honker_stream WHERE offset = (SELECT min(offset)` + ByTopic + `(k.value ->> 0) AND offset > (k.value ->> 1)))
FROM json_each(?1) AS k ORDER BY k.key`

// TimesAfter returns for each place the creation time of the topic's first event above its offset, or the zero time.
func (Streams) TimesAfter(ctx context.Context, q row.Querier, places []row.OffsetIn) ([]time.Time, error) {
	list := make([][2]any, len(places))
	for i, p := range places {
		list[i] = [2]any{p.Topic, p.Offset}
	}
	text, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	all := make([]time.Time, 0, len(places))
	err = rows.Each(ctx, q, sqlTimesAfter, func(r *sql.Rows) error {
		var at time.Time
		err := r.Scan((*rows.Second)(&at))
		all = append(all, at)
		return err
	}, string(text))
	return all, err
}

// sqlFollowing uses the primary key.
const sqlFollowing = `SELECT offset, created_at FROM _honker_stream NOT INDEXED WHERE offset > ?1 ORDER BY offset LIMIT 1`

// Following returns the offset and the creation time of the first event of any topic above after, or false if there is
// none.
func (Streams) Following(ctx context.Context, q row.Querier, after int64) (offset int64, at time.Time, found bool, err error) {
	found, err = rows.One(ctx, q, sqlFollowing, []any{after}, (*rows.Number)(&offset), (*rows.Second)(&at))
	return offset, at, found, err
}
