package streams

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// Retentions contains the statements for _honkerx_retention, and those that find and delete events
// beyond the retention.
type Retentions struct{}

const (
	sqlSetRetention = `INSERT INTO _honkerx_retention (topic, max_count, max_age_ms) VALUES (?1, ?2, ?3)
ON CONFLICT (topic) DO UPDATE SET max_count = excluded.max_count, max_age_ms = excluded.max_age_ms`

	sqlDropRetention = `DELETE FROM _honkerx_retention WHERE topic = ?1`
)

// Set sets a topic's retention. A retention without limits keeps all events, so Set deletes the row.
func (Retentions) Set(ctx context.Context, q row.Querier, r row.Retention) error {
	if r.MaxCount == 0 && r.MaxAge == 0 {
		_, err := q.ExecContext(ctx, sqlDropRetention, r.Topic)
		return err
	}
	_, err := q.ExecContext(ctx, sqlSetRetention, r.Topic, r.MaxCount, rows.AgeMS(r.MaxAge))
	return err
}

const (
	retention       = `SELECT topic, max_count, max_age_ms FROM _honkerx_retention `
	sqlGetRetention = retention + `WHERE topic = ?1`
	sqlRetained     = retention + `ORDER BY topic`
)

// List returns a topic's retention, or nothing if none was set. If topic is empty, it returns every
// topic's retention, sorted by topic.
func (Retentions) List(ctx context.Context, q row.Querier, topic string) ([]row.Retention, error) {
	if topic == "" {
		return retentions(ctx, q, sqlRetained)
	}
	return retentions(ctx, q, sqlGetRetention, topic)
}

func retentions(ctx context.Context, q row.Querier, query string, args ...any) (all []row.Retention, err error) {
	err = rows.Each(ctx, q, query, func(rs *sql.Rows) error {
		var r row.Retention
		var age int64
		err := rs.Scan(&r.Topic, (*rows.Number)(&r.MaxCount), (*rows.Number)(&age))
		r.MaxAge = row.Milliseconds(age)
		all = append(all, r)
		return err
	}, args...)
	return all, err
}

// sqlRank uses the index on (topic, offset), from the end.
const sqlRank = `SELECT offset` + ByTopic + `?1 ORDER BY offset DESC LIMIT 1 OFFSET ?2`

const sqlBefore = `SELECT offset` + ByTopic + `?1 AND offset < ?2 ORDER BY offset DESC LIMIT 1`

// Cutoff returns the last offset that is beyond topic's retention, or 0. The maximum age is rounded up to seconds
// because event times are truncated to seconds. Cutoff reads as many rows as the retention's count limit keeps, plus
// all rows that are too old.
func (rs Retentions) Cutoff(ctx context.Context, q row.Querier, topic string, now time.Time) (cutoff int64, err error) {
	all, err := rs.List(ctx, q, topic)
	if err != nil || len(all) == 0 {
		return 0, err
	}
	r := all[0]
	if r.MaxCount > 0 {
		if _, err := rows.One(ctx, q, sqlRank, []any{topic, r.MaxCount}, &cutoff); err != nil {
			return 0, err
		}
	}
	if r.MaxAge == 0 {
		return cutoff, nil
	}
	young, err := firstSince(ctx, q, row.Selection{Topic: topic}, now.Unix()-engine.Seconds(r.MaxAge))
	if err != nil {
		return 0, err
	}
	if young == 0 {
		young = row.Unbounded // all events are too old
	}
	var old int64
	_, err = rows.One(ctx, q, sqlBefore, []any{topic, young}, &old)
	return max(cutoff, old), err
}

const sqlConsumerPins = `SELECT 'consumer', name, topic, offset FROM _honker_stream_consumers
WHERE topic = ?1 OR substr(topic, -1) = '*'`

// honker's Node binding stores topic and name in the wrong order. If a row's topic has no events, the row may be such
// a case.
const sqlSwappedPins = `SELECT 'consumer', topic, name, offset FROM _honker_stream_consumers AS c
WHERE name = ?1 AND topic <> ?1 AND substr(topic, -1) <> '*'
  AND NOT EXISTS (SELECT 1 FROM _honker_stream AS s WHERE s.topic = c.topic)`

const sqlGroupPins = `SELECT 'group', g.name, g.topic, min(g.cursor, ` + LowestOpen + `)
FROM _honkerx_groups AS g WHERE topic = ?1 OR substr(topic, -1) = '*'`

// Pin returns the consumer or group that has read the least of topic, or false if there is none.
// Events above its offset must not be deleted.
func (Retentions) Pin(ctx context.Context, q row.Querier, topic string) (lowest row.Pin, found bool, err error) {
	for _, query := range []string{sqlConsumerPins, sqlSwappedPins, sqlGroupPins} {
		err := rows.Each(ctx, q, query, func(r *sql.Rows) error {
			var p row.Pin
			if err := r.Scan(&p.Kind, &p.Name, &p.Topic, (*rows.Number)(&p.Offset)); err != nil {
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

// A dead delivery's event is kept, because an operator may inspect or revive it. RETURNING yields the
// offsets in no particular order.
const sqlCompact = `DELETE FROM _honker_stream WHERE offset IN (SELECT offset` + ByTopic + `?1 AND offset > ?2 AND offset <= ?3
  AND NOT EXISTS (SELECT 1 FROM _honkerx_group_claims AS c INDEXED BY _honkerx_group_claims_dead
    WHERE c.offset = _honker_stream.offset AND c.state = 2)
  ORDER BY offset LIMIT ?4 + 0) RETURNING offset`

// Compact deletes up to c.Limit of c.Topic's events above c.After that are beyond the retention, that all consumers
// and groups have seen, and that aren't dead events of any group.
func (rs Retentions) Compact(ctx context.Context, q row.Querier, c row.Compaction) (done row.Compacted, err error) {
	done.Cutoff = c.Policy
	pin, pinned, err := rs.Pin(ctx, q, c.Topic)
	if err != nil {
		return done, err
	}
	if pinned && pin.Offset < c.Policy {
		done.Cutoff, done.Pinned, done.Pin = pin.Offset, true, pin
	}
	err = rows.Each(ctx, q, sqlCompact, func(r *sql.Rows) error {
		var offset int64
		err := r.Scan(&offset)
		done.Deleted, done.Last = done.Deleted+1, max(done.Last, offset)
		return err
	}, c.Topic, c.After, done.Cutoff, c.Limit)
	if err != nil || done.Deleted == 0 {
		return done, err
	}
	return done, noteCompacted(ctx, q, c.Topic, done.Last)
}

// The table is created the first time that events are deleted from any topic. Topics share a sequence of offsets, so
// a topic's oldest event doesn't tell whether the topic had older events.
const (
	makeCompacted = `CREATE TABLE IF NOT EXISTS _honkerx_compacted (
  topic TEXT PRIMARY KEY,
  through INTEGER NOT NULL -- the last offset that was deleted
) WITHOUT ROWID`

	sqlHasCompacted = `SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = '_honkerx_compacted'`

	// sqlNoteCompacted uses the primary key.
	sqlNoteCompacted = `INSERT INTO _honkerx_compacted (topic, through) VALUES (?1, ?2)
ON CONFLICT (topic) DO UPDATE SET through = excluded.through WHERE excluded.through > through`
)

// noteCompacted records through as topic's last deleted offset.
func noteCompacted(ctx context.Context, q row.Querier, topic string, through int64) error {
	if _, err := q.ExecContext(ctx, makeCompacted); err != nil {
		return err
	}
	_, err := q.ExecContext(ctx, sqlNoteCompacted, topic, through)
	return err
}

// compacted returns the last offset that Compact has deleted from s's topics, ignoring the filter, or
// 0.
func compacted(ctx context.Context, q row.Querier, s row.Selection) (through int64, err error) {
	var x int
	if found, err := rows.One(ctx, q, sqlHasCompacted, nil, &x); err != nil || !found {
		return 0, err
	}
	c := selectionCompacted(s)
	_, err = rows.One(ctx, q, c.sql.String(), c.args, (*rows.Number)(&through))
	return through, err
}

// selectionCompacted returns the query for compacted.
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
