package store

import (
	"context"
	"database/sql"
	"strings"

	"github.com/honker-go/honker/internal/row"
)

// Retentions are the statements on _honkerx_retention, and those that find and delete the
// events that are not kept.
type Retentions struct{}

const (
	sqlSetRetention = `INSERT INTO _honkerx_retention (topic, max_count, max_age_ms) VALUES (?1, ?2, ?3)
ON CONFLICT (topic) DO UPDATE SET max_count = excluded.max_count, max_age_ms = excluded.max_age_ms`

	sqlDropRetention = `DELETE FROM _honkerx_retention WHERE topic = ?1`
)

// Set sets how much of a topic is kept. Without a bound all is kept, and no row is.
func (Retentions) Set(ctx context.Context, q Querier, r row.Retention) error {
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

// Get returns how much of a topic is kept; without bounds where nothing was set.
func (Retentions) Get(ctx context.Context, q Querier, topic string) (row.Retention, error) {
	r := row.Retention{Topic: topic}
	_, err := one(ctx, q, sqlGetRetention, []any{topic}, (*number)(&r.MaxCount), (*number)(&r.MaxAgeMS))
	return r, err
}

// Topics lists the topics that have a bound.
func (Retentions) Topics(ctx context.Context, q Querier) ([]string, error) {
	return texts(ctx, q, sqlRetained)
}

// By the index on (topic, offset), from the end.
const sqlRank = `SELECT offset` + byTopic + `?1 ORDER BY offset DESC LIMIT 1 OFFSET ?2`

const sqlBefore = `SELECT offset` + byTopic + `?1 AND offset < ?2 ORDER BY offset DESC LIMIT 1`

// Cutoff returns the last offset that r gives up at the unix second now. The age is rounded
// up to seconds, since an event is never younger than its second says. It reads as many
// rows as are kept by count, and those that are too old.
func (Retentions) Cutoff(ctx context.Context, q Querier, r row.Retention, now int64) (cutoff int64, err error) {
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
		young = Unbounded // all events are too old
	}
	var old int64
	_, err = one(ctx, q, sqlBefore, []any{r.Topic, young}, &old)
	return max(cutoff, old), err
}

const sqlConsumerPins = `SELECT 'consumer', name, topic, offset FROM _honker_stream_consumers
WHERE topic = ?1 OR substr(topic, -1) = '*'`

// honker's binding for Node stores the two names the wrong way round. A row with a topic
// that has no event may be one of those.
const sqlSwappedPins = `SELECT 'consumer', topic, name, offset FROM _honker_stream_consumers AS c
WHERE name = ?1 AND topic <> ?1 AND substr(topic, -1) <> '*'
  AND NOT EXISTS (SELECT 1 FROM _honker_stream AS s WHERE s.topic = c.topic)`

const sqlGroupPins = `SELECT 'group', g.name, g.topic, min(g.cursor, ` + lowestOpen + `)
FROM _honkerx_groups AS g WHERE topic = ?1 OR substr(topic, -1) = '*'`

// LowestPin returns the consumer or group that has seen least of topic; false when there is
// none. Events above its offset must not be deleted.
func (Retentions) LowestPin(ctx context.Context, q Querier, topic string) (lowest row.Pin, found bool, err error) {
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

// The event of a dead delivery is kept: an operator may look at it or revive it. RETURNING
// gives the offsets in no particular order.
const sqlCompact = `DELETE FROM _honker_stream WHERE offset IN (SELECT offset` + byTopic + `?1 AND offset > ?2 AND offset <= ?3
  AND NOT EXISTS (SELECT 1 FROM _honkerx_group_claims AS c INDEXED BY _honkerx_group_claims_dead
    WHERE c.offset = _honker_stream.offset AND c.state = 2)
  ORDER BY offset LIMIT ?4 + 0) RETURNING offset`

// Compact deletes up to limit events of topic above after and up to cutoff. It returns how
// many it has deleted, and the highest of their offsets, from which the next call goes on.
func (Retentions) Compact(ctx context.Context, q Querier, topic string, after, cutoff int64, limit int) (n int, last int64, err error) {
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

// The table of topics that have lost events is made with the first of them. Topics share their offsets, so the
// oldest event of a topic does not tell whether there were others before it.
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

// noteCompacted notes the last offset of topic that was deleted.
func noteCompacted(ctx context.Context, q Querier, topic string, through int64) error {
	if _, err := q.ExecContext(ctx, makeCompacted); err != nil {
		return err
	}
	_, err := q.ExecContext(ctx, sqlNoteCompacted, topic, through)
	return err
}

// Compacted returns the last offset of the selected topics that Compact has deleted, whatever the filter;
// 0 for none.
func (Retentions) Compacted(ctx context.Context, q Querier, s row.Selection) (through int64, err error) {
	var x int
	if found, err := one(ctx, q, sqlHasCompacted, nil, &x); err != nil || !found {
		return 0, err
	}
	c := selectionCompacted(s)
	_, err = one(ctx, q, c.sql.String(), c.args, (*number)(&through))
	return through, err
}

// compacted is the query of Retentions.Compacted.
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
