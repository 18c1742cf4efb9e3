package store

import (
	"context"
	"database/sql"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// countedEvents bounds the events counted in all topics together. Each topic may count at least
// leastPerTopic events.
const (
	countedEvents = `100000`
	leastPerTopic = `1000`
)

// By the index on (topic, offset). A seek each finds the next topic, its first event and its last
// event. The count reads as many index entries as its limit allows.
var sqlTopicStates = `WITH RECURSIVE
  ` + skipScan("streamed", "topic", "_honker_stream INDEXED BY _honker_stream_topic WHERE 1") + `,
  topics(topic) AS (SELECT topic FROM streamed WHERE topic IS NOT NULL UNION SELECT topic FROM _honkerx_retention),
  most(n) AS (SELECT max(` + leastPerTopic + `, ` + countedEvents + ` / max(1, count(*))) FROM topics)
SELECT t.topic, m.n,
  (SELECT count(*) FROM (SELECT 1` + byTopic + `t.topic LIMIT (SELECT n + 1 FROM most))),
  (SELECT min(offset)` + byTopic + `t.topic), h.offset, h.created_at, r.max_count, r.max_age_ms
FROM most AS m CROSS JOIN topics AS t
LEFT JOIN _honkerx_retention AS r ON r.topic = t.topic
LEFT JOIN _honker_stream AS h ON h.offset = (SELECT max(offset)` + byTopic + `t.topic)
ORDER BY t.topic`

// Topics returns the state of each topic that has events or a retention, sorted by name.
func (Streams) Topics(ctx context.Context, q row.Querier) (all []row.TopicState, err error) {
	err = each(ctx, q, sqlTopicStates, func(rows *sql.Rows) error {
		var t row.TopicState
		var most, age int64
		err := rows.Scan(&t.Topic, &most, &t.Events, (*number)(&t.First), (*number)(&t.Head), (*second)(&t.LastAt),
			(*number)(&t.MaxCount), (*number)(&age))
		t.MaxAge = engine.Milliseconds(age)
		if t.Events > most {
			t.Events, t.More = most, true
		}
		all = append(all, t)
		return err
	})
	return all, err
}
