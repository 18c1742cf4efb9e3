package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/honker-go/honker/internal/row"
)

// Streams groups the statements on _honker_stream.
type Streams struct{}

// A topic is read by its index. A pattern is a walk over all events by primary key, which yields
// the order across topics. A range of the index by topic would need a sort.
const (
	byTopic  = ` FROM _honker_stream INDEXED BY _honker_stream_topic WHERE topic = `
	byOffset = ` FROM _honker_stream NOT INDEXED WHERE `
)

// selectionFrom appends the FROM and WHERE clauses of the selection.
func selectionFrom(s row.Selection, c *condition) {
	if prefix, ok := strings.CutSuffix(s.Topic, "*"); ok {
		c.sql.WriteString(byOffset)
		c.prefix("topic", prefix)
	} else {
		c.sql.WriteString(byTopic + c.bind(s.Topic))
	}
	if s.Filter != nil {
		c.sql.WriteString(" AND ")
		c.filter(*s.Filter)
	}
}

const eventTable = `_honker_stream`

var (
	sqlInsertEvents      = newInserts(eventTable, `topic, key, created_at, payload`, 3, 1) // a common key
	sqlInsertKeyedEvents = newInserts(eventTable, `topic, created_at, key, payload`, 2, 2) // a key per event
)

// Insert appends an event and returns its offset. A nil key is stored as NULL.
func (Streams) Insert(ctx context.Context, q row.Querier, topic string, key any, payload string, now int64) (int64, error) {
	return sqlInsertEvents.one(ctx, q, topic, key, now, payload)
}

// InsertMany appends an event per payload and returns the first and the last of their offsets,
// which are consecutive unless a trigger adds further events. keys is nil if the events have no
// key, has a single element for a common key, or has an element per event. A nil element is stored
// as NULL.
func (Streams) InsertMany(ctx context.Context, q row.Querier, topic string, keys []any, payloads []string, now int64) (first, last int64, err error) {
	wrote := func(from, to int64) {
		if first == 0 {
			first = from
		}
		last = to
	}
	switch len(keys) {
	case 0, 1:
		var key any
		if len(keys) == 1 {
			key = keys[0]
		}
		row := func(args []any, i int) []any { return append(args, payloads[i]) }
		err = sqlInsertEvents.run(ctx, q, []any{topic, key, now}, len(payloads), row, wrote)
	case len(payloads):
		row := func(args []any, i int) []any { return append(args, keys[i], payloads[i]) }
		err = sqlInsertKeyedEvents.run(ctx, q, []any{topic, now}, len(payloads), row, wrote)
	default:
		err = fmt.Errorf("got %d keys for %d events", len(keys), len(payloads))
	}
	return first, last, err
}

// Read appends to into up to limit selected events with offsets above after and at most through, in
// order. more reports that it may have stopped before the last of them.
func (Streams) Read(ctx context.Context, q row.Querier, s row.Selection, after, through int64, limit int, into []row.Event) (events []row.Event, more bool, err error) {
	events = into
	c := selectionRead(s, after, through, limit)
	size := 0
	err = each(ctx, q, c.sql.String(), func(rows *sql.Rows) error {
		events = append(events, row.Event{})
		e := &events[len(events)-1]
		if err := selectionScan(s, rows, e); err != nil {
			return err
		}
		if size += len(e.Payload); size >= pageBytes {
			return errPageFull
		}
		return nil
	}, c.args...)
	if errors.Is(err, errPageFull) {
		return events, true, nil
	}
	return events, len(events)-len(into) == limit, err
}

// selectionRead returns the query of Streams.Read. It selects the topic only if the topics of the
// events may differ.
func selectionRead(s row.Selection, after, through int64, limit int) *condition {
	c := new(condition)
	c.sql.WriteString(`SELECT offset, ` + eventKey + `, payload, created_at`)
	if s.Pattern() {
		c.sql.WriteString(`, topic`)
	}
	selectionFrom(s, c)
	c.sql.WriteString(` AND offset > ` + c.bind(after) + ` AND offset <= ` + c.bind(through) +
		` ORDER BY offset LIMIT ` + c.bind(limit) + ` + 0`)
	return c
}

// selectionScan scans a row of selectionRead. A column costs about as much as the rest of the row.
func selectionScan(s row.Selection, rows *sql.Rows, e *row.Event) error {
	if e.Topic = s.Topic; s.Pattern() {
		return rows.Scan((*number)(&e.Offset), &e.Key, &e.Payload, (*number)(&e.CreatedAt), &e.Topic)
	}
	return rows.Scan((*number)(&e.Offset), &e.Key, &e.Payload, (*number)(&e.CreatedAt))
}

const sqlTopicEvents = `SELECT offset, key, payload, created_at` + byTopic + `?1 AND offset > ?2 ORDER BY offset LIMIT ?3 + 0`

// TopicEvents returns up to limit events of exactly topic above after, in order. A negative limit
// means no limit. It serves honker's SQL function, for which a trailing * is not a pattern.
func (Streams) TopicEvents(ctx context.Context, q row.Querier, topic string, after, limit int64) ([]row.KeyedEvent, error) {
	var out []row.KeyedEvent
	err := each(ctx, q, sqlTopicEvents, func(rows *sql.Rows) error {
		e := row.KeyedEvent{Event: row.Event{Topic: topic}}
		err := rows.Scan((*number)(&e.Offset), &e.Key, &e.Payload, (*number)(&e.CreatedAt))
		out = append(out, e)
		return err
	}, topic, after, limit)
	return out, err
}

const (
	sqlTopicHorizon = `SELECT max(offset), count(*) FROM (SELECT offset` + byTopic + `?1 AND offset > ?2 ORDER BY offset LIMIT ?3 + 0)`
	sqlHorizon      = `SELECT max(offset), count(*) FROM (SELECT offset` + byOffset + `offset > ?1 ORDER BY offset LIMIT ?2 + 0)`
)

// Horizon returns the last of the next n offsets above after that a read of the selection must
// pass, selected or not, or after if there are none. A read of a sparse selection up to this offset
// has a bounded cost, and the next read continues there even if no event was found. more reports
// that there may be further offsets.
func (Streams) Horizon(ctx context.Context, q row.Querier, s row.Selection, after int64, n int) (last int64, more bool, err error) {
	query, args := sqlTopicHorizon, []any{s.Topic, after, n}
	if s.Pattern() {
		query, args = sqlHorizon, []any{after, n}
	}
	var highest sql.NullInt64
	var count int
	_, err = one(ctx, q, query, args, &highest, &count)
	return max(after, highest.Int64), count == n, err
}

// Head returns the last offset of the selected topics, ignoring the filter, or 0 if there is none.
// For a pattern it reads all later events of other topics.
func (Streams) Head(ctx context.Context, q row.Querier, s row.Selection) (int64, error) {
	return edge(ctx, q, row.Selection{Topic: s.Topic}, func(c *condition) {
		c.sql.WriteString(` ORDER BY offset DESC LIMIT 1`)
	})
}

// FirstSince returns the offset of the first selected event at or after the unix second since, or 0
// if there is none. It reads all older events, because no index is ordered by time.
func (Streams) FirstSince(ctx context.Context, q row.Querier, s row.Selection, since int64) (int64, error) {
	return edge(ctx, q, s, func(c *condition) {
		c.sql.WriteString(` AND created_at >= ` + c.bind(since) + ` ORDER BY offset LIMIT 1`)
	})
}

// edge returns the first offset of a selection, with tail appended to its query.
func edge(ctx context.Context, q row.Querier, s row.Selection, tail func(*condition)) (offset int64, err error) {
	var c condition
	c.sql.WriteString(`SELECT offset`)
	selectionFrom(s, &c)
	tail(&c)
	_, err = one(ctx, q, c.sql.String(), c.args, &offset)
	return offset, err
}

// Lag returns the number of selected events above after. It reads all of them.
func (Streams) Lag(ctx context.Context, q row.Querier, s row.Selection, after int64) (n int64, err error) {
	var c condition
	c.sql.WriteString(`SELECT count(*)`)
	selectionFrom(s, &c)
	c.sql.WriteString(` AND offset > ` + c.bind(after))
	_, err = one(ctx, q, c.sql.String(), c.args, &n)
	return n, err
}

// By primary key.
const sqlEventTime = `SELECT created_at FROM _honker_stream WHERE offset = ?1`

// Ahead counts the selected events among the next most events above after.
func (r Streams) Ahead(ctx context.Context, q row.Querier, s row.Selection, after int64, most int) (a row.Ahead, err error) {
	last, more, err := r.Horizon(ctx, q, s, after, most+1)
	if err != nil || last == after {
		return a, err
	}
	var c condition
	c.sql.WriteString(`SELECT count(*), min(offset)`)
	selectionFrom(s, &c)
	c.sql.WriteString(` AND offset > ` + c.bind(after) + ` AND offset <= ` + c.bind(last))
	var first int64
	if _, err := one(ctx, q, c.sql.String(), c.args, &a.N, (*number)(&first)); err != nil {
		return a, err
	}
	a.N, a.More = min(a.N, int64(most)), more
	if a.N > 0 {
		_, err = one(ctx, q, sqlEventTime, []any{first}, (*number)(&a.FirstAt))
	}
	return a, err
}

// By primary key, from the end.
const sqlLastEvent = `SELECT coalesce(max(offset), 0) FROM _honker_stream`

// Last returns the highest offset of all topics, or 0 if there are no events.
func (Streams) Last(ctx context.Context, q row.Querier) (offset int64, err error) {
	_, err = one(ctx, q, sqlLastEvent, nil, &offset)
	return offset, err
}

var sqlLastOffset = sequenceOf("_honker_stream")

// Sequence returns the highest offset ever assigned, even if its event was deleted. It decreases
// only when a backup is restored over the file.
func (Streams) Sequence(ctx context.Context, q row.Querier) (offset int64, err error) {
	_, err = one(ctx, q, sqlLastOffset, nil, (*number)(&offset))
	return offset, err
}

// By primary key, starting at after.
var sqlTopicsSince = `SELECT coalesce((` + sqlLastOffset + `), 0), NULL, NULL UNION ALL SELECT * FROM
  (SELECT offset, topic, ` + eventKey + ` FROM _honker_stream WHERE offset > ?1 ORDER BY offset LIMIT ?2 + 0)`

// TopicsSince returns the topics and keys of up to limit events with offsets above after, the
// number of these events, and the last offset among them.
func (Streams) TopicsSince(ctx context.Context, q row.Querier, after int64, limit int) (topics row.Added, n int, last int64, err error) {
	return addedSince(ctx, q, sqlTopicsSince, after, limit)
}
