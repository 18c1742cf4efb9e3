package streams

import (
	"context"
	"database/sql"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// countedEvents limits how many events are counted in all topics together. At least leastPerTopic events may be
// counted in each topic.
const (
	countedEvents = `100000`
	leastPerTopic = `1000`
)

// sqlTopicStates uses the index on (topic, offset). It takes a seek each to find the next topic, its first event and
// its last event. The count reads as many index entries as its limit allows.
var sqlTopicStates = `WITH RECURSIVE
  ` + rows.SkipScan("streamed", "topic", "_honker_stream INDEXED BY _honker_stream_topic WHERE 1") + `,
  topics(topic) AS (SELECT topic FROM streamed WHERE topic IS NOT NULL UNION SELECT topic FROM _honkerx_retention),
  most(n) AS (SELECT max(` + leastPerTopic + `, ` + countedEvents + ` / max(1, count(*))) FROM topics)
SELECT t.topic, m.n,
  (SELECT count(*) FROM (SELECT 1` + ByTopic + `t.topic LIMIT (SELECT n + 1 FROM most))),
  (SELECT min(offset)` + ByTopic + `t.topic), h.offset, h.created_at, r.max_count, r.max_age_ms
FROM most AS m CROSS JOIN topics AS t
LEFT JOIN _honkerx_retention AS r ON r.topic = t.topic
LEFT JOIN _honker_stream AS h ON h.offset = (SELECT max(offset)` + ByTopic + `t.topic)
ORDER BY t.topic`

// Topics returns the state of each topic that has events or a retention, sorted by name.
func (Streams) Topics(ctx context.Context, q row.Querier) (all []row.TopicState, err error) {
	err = rows.Each(ctx, q, sqlTopicStates, func(r *sql.Rows) error {
		var t row.TopicState
		var most, age int64
		err := r.Scan(&t.Topic, &most, &t.Events, (*rows.Number)(&t.First), (*rows.Number)(&t.Head), (*rows.Second)(&t.LastAt),
			(*rows.Number)(&t.MaxCount), (*rows.Number)(&age))
		t.MaxAge = row.Milliseconds(age)
		if t.Events > most {
			t.Events, t.More = most, true
		}
		all = append(all, t)
		return err
	})
	return all, err
}
