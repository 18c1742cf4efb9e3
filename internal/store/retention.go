package store

import (
	"context"
	"database/sql"
	"strings"

	"github.com/honker-go/honker/internal/row"
)

// Retentions groups the statements on _honkerx_retention and those that find and delete events
// beyond the retention.
type Retentions struct{}

const (
	sqlSetRetention = `INSERT INTO _honkerx_retention (topic, max_count, max_age_ms) VALUES (?1, ?2, ?3)
ON CONFLICT (topic) DO UPDATE SET max_count = excluded.max_count, max_age_ms = excluded.max_age_ms`

	sqlDropRetention = `DELETE FROM _honkerx_retention WHERE topic = ?1`
)

// Set sets the retention of a topic. A retention without bounds keeps all events and deletes the
// row.
func (Retentions) Set(ctx context.Context, q row.Querier, r row.Retention) error {
	if r.MaxCount == 0 && r.MaxAgeMS == 0 {
		_, err := q.ExecContext(ctx, sqlDropRetention, r.Topic)
		return err
	}
	_, err := q.ExecContext(ctx, sqlSetRetention, r.Topic, r.MaxCount, r.MaxAgeMS)
	return err
}

const (
	sqlGetRetention = `SELECT max_count, max_age_ms FROM _honkerx_retention WHERE topic = ?1`
	sqlRetained     = `SELECT topic FROM _honkerx_retention ORDER BY topic`
)

// Get returns the retention of topic. It has no bounds if none was set.
func (Retentions) Get(ctx context.Context, q row.Querier, topic string) (row.Retention, error) {
	r := row.Retention{Topic: topic}
	_, err := one(ctx, q, sqlGetRetention, []any{topic}, (*number)(&r.MaxCount), (*number)(&r.MaxAgeMS))
	return r, err
}

// Topics lists the topics that have a retention.
func (Retentions) Topics(ctx context.Context, q row.Querier) ([]string, error) {
	return texts(ctx, q, sqlRetained)
}

// By the index on (topic, offset), from the end.
const sqlRank = `SELECT offset` + byTopic + `?1 ORDER BY offset DESC LIMIT 1 OFFSET ?2`

const sqlBefore = `SELECT offset` + byTopic + `?1 AND offset < ?2 ORDER BY offset DESC LIMIT 1`

// Cutoff returns the last offset that r no longer keeps at the unix second now, or 0. The maximum
// age is rounded up to seconds because the time of an event is truncated to seconds. Cutoff reads
// as many rows as are kept by count, and all rows that are too old.
func (Retentions) Cutoff(ctx context.Context, q row.Querier, r row.Retention, now int64) (cutoff int64, err error) {
	if r.MaxCount > 0 {
		if _, err := one(ctx, q, sqlRank, []any{r.Topic, r.MaxCount}, &cutoff); err != nil {
			return 0, err
		}
	}
	if r.MaxAgeMS == 0 {
		return cutoff, nil
	}
	s := row.Selection{Topic: r.Topic}
	young, err := Streams{}.FirstSince(ctx, q, s, now-(r.MaxAgeMS+999)/1000)
	if err != nil {
		return 0, err
	}
	if young == 0 {
		young = row.Unbounded // all events are too old
	}
	var old int64
	_, err = one(ctx, q, sqlBefore, []any{r.Topic, young}, &old)
	return max(cutoff, old), err
}

const sqlConsumerPins = `SELECT 'consumer', name, topic, offset FROM _honker_stream_consumers
WHERE topic = ?1 OR substr(topic, -1) = '*'`

// honker's binding for Node stores topic and name in the wrong order. A row whose topic has no
// events may be such a row.
const sqlSwappedPins = `SELECT 'consumer', topic, name, offset FROM _honker_stream_consumers AS c
WHERE name = ?1 AND topic <> ?1 AND substr(topic, -1) <> '*'
  AND NOT EXISTS (SELECT 1 FROM _honker_stream AS s WHERE s.topic = c.topic)`

const sqlGroupPins = `SELECT 'group', g.name, g.topic, min(g.cursor, ` + lowestOpen + `)
FROM _honkerx_groups AS g WHERE topic = ?1 OR substr(topic, -1) = '*'`

// LowestPin returns the consumer or group that has read the least of topic; false if there is none.
// Events above its offset must not be deleted.
func (Retentions) LowestPin(ctx context.Context, q row.Querier, topic string) (lowest row.Pin, found bool, err error) {
	for _, query := range []string{sqlConsumerPins, sqlSwappedPins, sqlGroupPins} {
		err := each(ctx, q, query, func(rows *sql.Rows) error {
			var p row.Pin
			if err := rows.Scan(&p.Kind, &p.Name, &p.Topic, (*number)(&p.Offset)); err != nil {
				return err
			}
			if (row.Selection{Topic: p.Topic}).Matches(topic) && (!found || p.Offset < lowest.Offset) {
				lowest, found = p, true
			}
			return nil
		}, topic)
		if err != nil {
			return row.Pin{}, false, err
		}
	}
	return lowest, found, nil
}

// The event of a dead delivery is kept, because an operator may inspect or revive it. RETURNING
// yields the offsets in no particular order.
const sqlCompact = `DELETE FROM _honker_stream WHERE offset IN (SELECT offset` + byTopic + `?1 AND offset > ?2 AND offset <= ?3
  AND NOT EXISTS (SELECT 1 FROM _honkerx_group_claims AS c INDEXED BY _honkerx_group_claims_dead
    WHERE c.offset = _honker_stream.offset AND c.state = 2)
  ORDER BY offset LIMIT ?4 + 0) RETURNING offset`

// Compact deletes up to limit events of topic with offsets above after and at most cutoff. It
// returns how many it deleted and the highest of their offsets, at which the next call should
// continue.
func (Retentions) Compact(ctx context.Context, q row.Querier, topic string, after, cutoff int64, limit int) (n int, last int64, err error) {
	err = each(ctx, q, sqlCompact, func(rows *sql.Rows) error {
		var offset int64
		err := rows.Scan(&offset)
		n, last = n+1, max(last, offset)
		return err
	}, topic, after, cutoff, limit)
	if err != nil || n == 0 {
		return n, last, err
	}
	return n, last, noteCompacted(ctx, q, topic, last)
}

// The table is created when the first topic loses events. Topics share a sequence of offsets, so
// the oldest event of a topic does not tell whether the topic had older events.
const (
	makeCompacted = `CREATE TABLE IF NOT EXISTS _honkerx_compacted (
  topic TEXT PRIMARY KEY,
  through INTEGER NOT NULL -- the last offset that was deleted
) WITHOUT ROWID`

	sqlHasCompacted = `SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = '_honkerx_compacted'`

	// By primary key.
	sqlNoteCompacted = `INSERT INTO _honkerx_compacted (topic, through) VALUES (?1, ?2)
ON CONFLICT (topic) DO UPDATE SET through = excluded.through WHERE excluded.through > through`
)

// noteCompacted records through as the last deleted offset of topic.
func noteCompacted(ctx context.Context, q row.Querier, topic string, through int64) error {
	if _, err := q.ExecContext(ctx, makeCompacted); err != nil {
		return err
	}
	_, err := q.ExecContext(ctx, sqlNoteCompacted, topic, through)
	return err
}

// Compacted returns the last offset that Compact has deleted from the topics of s, ignoring the
// filter, or 0.
func (Retentions) Compacted(ctx context.Context, q row.Querier, s row.Selection) (through int64, err error) {
	var x int
	if found, err := one(ctx, q, sqlHasCompacted, nil, &x); err != nil || !found {
		return 0, err
	}
	c := selectionCompacted(s)
	_, err = one(ctx, q, c.sql.String(), c.args, (*number)(&through))
	return through, err
}

// selectionCompacted returns the query of Retentions.Compacted.
func selectionCompacted(s row.Selection) *condition {
	c := new(condition)
	c.sql.WriteString(`SELECT coalesce(max(through), 0) FROM _honkerx_compacted WHERE `)
	if prefix, ok := strings.CutSuffix(s.Topic, "*"); ok {
		c.prefix("topic", prefix)
	} else {
		c.sql.WriteString("topic = " + c.bind(s.Topic))
	}
	return c
}
