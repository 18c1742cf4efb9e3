package streams

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

// eventHead is the head of the events. A subquery for each index needs no sort.
const eventHead = `greatest((SELECT max("offset") FROM honker.event), (SELECT max(through) FROM honker.deleted WHERE log = 0), 0)`

const (
	sqlEventHead = `SELECT ` + eventHead

	sqlTopicsSince = `SELECT ` + eventHead + `, NULL, NULL UNION ALL SELECT * FROM
  (SELECT "offset", topic, ` + eventKey + ` FROM honker.event WHERE "offset" > $1 ORDER BY "offset" LIMIT $2) added`
)

// Head implements engine.StreamStore.
func (s Streams) Head(ctx context.Context, q row.Querier) (offset int64, err error) {
	_, err = pgsql.One(ctx, q, s.SQL(sqlEventHead), nil, &offset)
	return offset, err
}

// TopicsSince implements the Since of wake.Log for events.
func (s Streams) TopicsSince(ctx context.Context, q row.Querier, after int64, limit int) (topics row.Added, n int, last int64, err error) {
	return pgsql.AddedSince(ctx, q, s.SQL(sqlTopicsSince), after, limit)
}

// countedEvents limits how many events are counted in all topics together. At least leastPerTopic events may be counted
// in each topic.
const (
	countedEvents = `100000`
	leastPerTopic = `1000`
)

// sqlTopicStates takes a seek each to find the next topic, its first event and its last event. The count reads as many
// index entries as its limit allows.
const sqlTopicStates = `WITH RECURSIVE streamed(topic) AS (
  (SELECT topic FROM honker.event ORDER BY topic LIMIT 1)
  UNION ALL
  SELECT (SELECT e.topic FROM honker.event e WHERE e.topic > s.topic ORDER BY e.topic LIMIT 1) FROM streamed s WHERE s.topic IS NOT NULL
),
topics AS (SELECT topic FROM streamed WHERE topic IS NOT NULL UNION SELECT topic FROM honker.retention),
most AS (SELECT greatest(` + leastPerTopic + `, ` + countedEvents + ` / greatest(1, count(*))) AS n FROM topics)
SELECT t.topic, m.n, c.n, coalesce(f."offset", 0), coalesce(h."offset", 0), h.created_at, coalesce(r.max_count, 0),
  coalesce(extract(epoch FROM r.max_age)::bigint, 0)
FROM topics t CROSS JOIN most m
CROSS JOIN LATERAL (SELECT count(*) AS n FROM (SELECT FROM honker.event e WHERE e.topic = t.topic LIMIT m.n + 1) counted) c
LEFT JOIN LATERAL (SELECT e."offset" FROM honker.event e WHERE e.topic = t.topic ORDER BY e.topic, e."offset" LIMIT 1) f ON true
LEFT JOIN LATERAL (SELECT e."offset", e.created_at FROM honker.event e WHERE e.topic = t.topic
  ORDER BY e.topic DESC, e."offset" DESC LIMIT 1) h ON true
LEFT JOIN honker.retention r ON r.topic = t.topic
ORDER BY t.topic`

// Topics implements engine.StreamStore.
func (s Streams) Topics(ctx context.Context, q row.Querier) (all []row.TopicState, err error) {
	err = pgsql.Each(ctx, q, s.SQL(sqlTopicStates), func(r *sql.Rows) error {
		var t row.TopicState
		var most, age int64
		var at sql.NullTime
		err := r.Scan(&t.Topic, &most, &t.Events, &t.First, &t.Head, &at, &t.MaxCount, &age)
		t.LastAt, t.MaxAge = pgsql.Instant(at), row.Span(age)
		if t.Events > most {
			t.Events, t.More = most, true
		}
		all = append(all, t)
		return err
	})
	return all, err
}

// second returns the beginning of t's second.
func second(t time.Time) time.Time { return time.Unix(t.Unix(), 0) }
