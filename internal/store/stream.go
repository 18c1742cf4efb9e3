package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/honker-go/honker/internal/row"
)

// Streams are the statements on _honker_stream.
type Streams struct{}

// A topic is read by its index. A pattern is one walk over all events by primary key, which
// gives the order across topics; a range of the index by topic would have to be sorted.
const (
	byTopic  = ` FROM _honker_stream INDEXED BY _honker_stream_topic WHERE topic = `
	byOffset = ` FROM _honker_stream NOT INDEXED WHERE `
)

// from appends the FROM and WHERE clauses of the selection.
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
	sqlInsertEvents      = newInserts(eventTable, `topic, key, created_at, payload`, 3, 1) // one key for all
	sqlInsertKeyedEvents = newInserts(eventTable, `topic, created_at, key, payload`, 2, 2) // a key for each
)

// Insert appends one event and returns its offset. A nil key is NULL in the file.
func (Streams) Insert(ctx context.Context, q Querier, topic string, key any, payload string, now int64) (int64, error) {
	return sqlInsertEvents.one(ctx, q, topic, key, now, payload)
}

// InsertMany appends an event for each payload and returns the first and the last of
// their offsets, which are consecutive unless a trigger adds events of its own. keys is nil
// for events without a key, or has one element for all events, or one for each. A nil element
// is NULL in the file.
func (Streams) InsertMany(ctx context.Context, q Querier, topic string, keys []any, payloads []string, now int64) (first, last int64, err error) {
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
		err = fmt.Errorf("%d keys for %d events", len(keys), len(payloads))
	}
	return first, last, err
}

// pageBytes bounds what one read holds, whatever the number of events.
const pageBytes = 1 << 20

var errPageFull = errors.New("page is full")

// Read appends up to limit selected events above after to into, in order, but none above
// through. more tells that it stopped before it had seen all of them.
func (Streams) Read(ctx context.Context, q Querier, s row.Selection, after, through int64, limit int, into []row.Event) (events []row.Event, more bool, err error) {
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

// read is the query of Streams.Read. The topic is a column of it only where it may differ.
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

// scan reads a row of that query. A column costs about as much as the rest of the row.
func selectionScan(s row.Selection, rows *sql.Rows, e *row.Event) error {
	if e.Topic = s.Topic; s.Pattern() {
		return rows.Scan((*number)(&e.Offset), &e.Key, &e.Payload, (*number)(&e.CreatedAt), &e.Topic)
	}
	return rows.Scan((*number)(&e.Offset), &e.Key, &e.Payload, (*number)(&e.CreatedAt))
}

const sqlTopicEvents = `SELECT offset, key, payload, created_at` + byTopic + `?1 AND offset > ?2 ORDER BY offset LIMIT ?3 + 0`

// TopicEvents reads up to limit events of exactly that topic above after, in order; a
// negative limit is none. honker's SQL function reads so: a * at the end is no pattern.
func (Streams) TopicEvents(ctx context.Context, q Querier, topic string, after, limit int64) ([]row.KeyedEvent, error) {
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

// Horizon returns the last of the next n offsets above after that a read of a sparse
// selection passes, selected or not; after itself where there is none. A read up to it has
// a bounded cost, and the next one goes on from it although nothing may have been found.
// more tells that there may be others.
func (Streams) Horizon(ctx context.Context, q Querier, s row.Selection, after int64, n int) (last int64, more bool, err error) {
	query, args := sqlTopicHorizon, []any{s.Topic, after, n}
	if s.Pattern() {
		query, args = sqlHorizon, []any{after, n}
	}
	var highest sql.NullInt64
	var count int
	_, err = one(ctx, q, query, args, &highest, &count)
	return max(after, highest.Int64), count == n, err
}

// Head returns the last offset of the selected topics, whatever the filter; 0 for none. For
// a pattern it reads every later event of other topics.
func (Streams) Head(ctx context.Context, q Querier, s row.Selection) (int64, error) {
	return edge(ctx, q, row.Selection{Topic: s.Topic}, func(c *condition) {
		c.sql.WriteString(` ORDER BY offset DESC LIMIT 1`)
	})
}

// FirstSince returns the offset of the first selected event that is not older than the unix
// second since; 0 for none. It reads all older events: no index is by time.
func (Streams) FirstSince(ctx context.Context, q Querier, s row.Selection, since int64) (int64, error) {
	return edge(ctx, q, s, func(c *condition) {
		c.sql.WriteString(` AND created_at >= ` + c.bind(since) + ` ORDER BY offset LIMIT 1`)
	})
}

// edge returns the first offset of a selection with tail at the end of its query.
func edge(ctx context.Context, q Querier, s row.Selection, tail func(*condition)) (offset int64, err error) {
	var c condition
	c.sql.WriteString(`SELECT offset`)
	selectionFrom(s, &c)
	tail(&c)
	_, err = one(ctx, q, c.sql.String(), c.args, &offset)
	return offset, err
}

// Lag counts the selected events above after. It reads them all.
func (Streams) Lag(ctx context.Context, q Querier, s row.Selection, after int64) (n int64, err error) {
	var c condition
	c.sql.WriteString(`SELECT count(*)`)
	selectionFrom(s, &c)
	c.sql.WriteString(` AND offset > ` + c.bind(after))
	_, err = one(ctx, q, c.sql.String(), c.args, &n)
	return n, err
}

// By primary key.
const sqlEventTime = `SELECT created_at FROM _honker_stream WHERE offset = ?1`

// Ahead counts the selected events among the next most above after.
func (r Streams) Ahead(ctx context.Context, q Querier, s row.Selection, after int64, most int) (a row.Ahead, err error) {
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

// By primary key, the last row.
const sqlLastEvent = `SELECT coalesce(max(offset), 0) FROM _honker_stream`

// Last returns the newest offset of all topics, 0 for none.
func (Streams) Last(ctx context.Context, q Querier) (offset int64, err error) {
	_, err = one(ctx, q, sqlLastEvent, nil, &offset)
	return offset, err
}

var sqlLastOffset = sequenceOf("_honker_stream")

// Sequence returns the last offset that was given out, also where the event is deleted. It goes
// back only with the file, when a backup is restored over it.
func (Streams) Sequence(ctx context.Context, q Querier) (offset int64, err error) {
	_, err = one(ctx, q, sqlLastOffset, nil, (*number)(&offset))
	return offset, err
}

// By primary key, from after on.
var sqlTopicsSince = `SELECT coalesce((` + sqlLastOffset + `), 0), NULL, NULL UNION ALL SELECT * FROM
  (SELECT offset, topic, ` + eventKey + ` FROM _honker_stream WHERE offset > ?1 ORDER BY offset LIMIT ?2 + 0)`

// TopicsSince returns the topics and keys of up to limit events above after, how many there
// were, and the last offset among them.
func (Streams) TopicsSince(ctx context.Context, q Querier, after int64, limit int) (topics row.Added, n int, last int64, err error) {
	return addedSince(ctx, q, sqlTopicsSince, after, limit)
}

// Unbounded is a limit of offsets that none reaches.
const Unbounded = math.MaxInt64
