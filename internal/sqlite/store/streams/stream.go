// Package streams contains the statements for events, consumers, groups and the retention of topics.
package streams

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// Streams contains the statements for _honker_stream.
type Streams struct{}

// A topic is read by its index. A pattern is a walk over all events by primary key, which yields the
// order across topics. A range of the topic index would need a sort.
const (
	ByTopic  = ` FROM _honker_stream INDEXED BY _honker_stream_topic WHERE topic = `
	byOffset = ` FROM _honker_stream NOT INDEXED WHERE `
)

// selectionFrom appends the selection's FROM and WHERE clauses.
func selectionFrom(s row.Selection, c *condition) {
	if prefix, ok := strings.CutSuffix(s.Topic, "*"); ok {
		c.sql.WriteString(byOffset)
		c.prefix("topic", prefix)
	} else {
		c.sql.WriteString(ByTopic + c.bind(s.Topic))
	}
	if s.Filter != nil {
		c.sql.WriteString(" AND ")
		c.filter(*s.Filter)
	}
}

const eventTable = `_honker_stream`

var (
	sqlInsertEvents      = rows.NewInserts(eventTable, `topic, key, created_at, payload`, 3, 1) // a common key
	sqlInsertKeyedEvents = rows.NewInserts(eventTable, `topic, created_at, key, payload`, 2, 2) // a key for each event
)

// Publish appends p's events and returns the first and last offsets, which are consecutive unless a
// trigger adds more events.
func (r Streams) Publish(ctx context.Context, q row.Querier, p row.Publication, now time.Time) (first, last int64, err error) {
	if len(p.Payloads) == 1 && len(p.Keys) < 2 {
		first, err = r.Insert(ctx, q, p.Topic, commonKey(p), p.Payloads[0], now)
		return first, first, err
	}
	wrote := func(from, to int64) {
		if first == 0 {
			first = from
		}
		last = to
	}
	switch len(p.Keys) {
	case 0, 1:
		row := func(args []any, i int) []any { return append(args, p.Payloads[i]) }
		err = sqlInsertEvents.Run(ctx, q, []any{p.Topic, commonKey(p), now.Unix()}, len(p.Payloads), row, wrote)
	case len(p.Payloads):
		row := func(args []any, i int) []any { return append(args, p.Keys[i], p.Payloads[i]) }
		err = sqlInsertKeyedEvents.Run(ctx, q, []any{p.Topic, now.Unix()}, len(p.Payloads), row, wrote)
	default:
		err = fmt.Errorf("got %d keys for %d events", len(p.Keys), len(p.Payloads))
	}
	return first, last, err
}

// commonKey returns the stored key of all of p's events: NULL if they have none.
func commonKey(p row.Publication) any {
	if len(p.Keys) == 0 {
		return nil
	}
	return p.Keys[0]
}

// Insert appends an event and returns its offset. A nil key is stored as NULL. It is used by Publish
// and by honker's SQL function, which stores a key of any type.
func (Streams) Insert(ctx context.Context, q row.Querier, topic string, key any, payload string, now time.Time) (int64, error) {
	return sqlInsertEvents.One(ctx, q, topic, key, now.Unix(), payload)
}

// scanRows limits a single scan of a sparse selection to a few milliseconds.
const scanRows = 20_000

// Read appends the next page of events to into. A read of a sparse selection scans a limited number of rows, so a
// page may be empty even if more events follow. There are no more events if the page's Next is not above After.
func (r Streams) Read(ctx context.Context, q row.Querier, e row.EventRead, into []row.Event) (page row.EventPage, err error) {
	page = row.EventPage{Events: into, Next: e.After, Scanned: e.Scanned}
	through, sparse := e.Through, e.Sparse()
	if sparse {
		if page.Scanned <= e.After {
			if page.Scanned, _, err = horizon(ctx, q, e.Selection, e.After, scanRows); err != nil {
				return page, err
			}
		}
		through = min(through, page.Scanned)
	}
	if through <= e.After {
		return page, nil
	}
	events, more, err := readEvents(ctx, q, e.Selection, e.After, through, e.Limit, into)
	page.Events, page.End = events, !more && !sparse
	switch found := len(events) > len(into); {
	case found && (more || !sparse):
		page.Next = events[len(events)-1].Offset
	case sparse:
		page.Next = through // no other event up to through is selected
	}
	return page, err
}

// readEvents appends to into up to limit selected events with offsets above after and at most through, in order. more
// means that it may have stopped before the last of them.
func readEvents(ctx context.Context, q row.Querier, s row.Selection, after, through int64, limit int, into []row.Event) (events []row.Event, more bool, err error) {
	events = into
	c := selectionRead(s, after, through, limit)
	size := 0
	err = rows.Each(ctx, q, c.sql.String(), func(r *sql.Rows) error {
		events = append(events, row.Event{})
		e := &events[len(events)-1]
		if err := selectionScan(s, r, e); err != nil {
			return err
		}
		if size += len(e.Payload); size >= rows.PageBytes {
			return rows.ErrPageFull
		}
		return nil
	}, c.args...)
	if errors.Is(err, rows.ErrPageFull) {
		return events, true, nil
	}
	return events, len(events)-len(into) == limit, err
}

// selectionRead returns the query for readEvents. It selects the topic only if the events' topics may
// differ.
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

// selectionScan scans a row of selectionRead. Scanning a column costs about as much as everything else about a row.
func selectionScan(s row.Selection, r *sql.Rows, e *row.Event) error {
	if e.Topic = s.Topic; s.Pattern() {
		return r.Scan((*rows.Number)(&e.Offset), &e.Key, &e.Payload, (*rows.Second)(&e.CreatedAt), &e.Topic)
	}
	return r.Scan((*rows.Number)(&e.Offset), &e.Key, &e.Payload, (*rows.Second)(&e.CreatedAt))
}

const sqlTopicEvents = `SELECT offset, key, payload, created_at` + ByTopic + `?1 AND offset > ?2 ORDER BY offset LIMIT ?3 + 0`

// TopicEvent is a stored event of a topic, with the values that honker's SQL function returns.
type TopicEvent struct {
	Offset    int64
	Topic     string
	Key       any // nil if there is no key
	Payload   []byte
	CreatedAt int64 // unix seconds
}

// TopicEvents returns up to limit events of exactly topic above after, in order. A negative limit
// means no limit. It is used by honker's SQL function, for which a trailing * is not a pattern.
func (Streams) TopicEvents(ctx context.Context, q row.Querier, topic string, after, limit int64) ([]TopicEvent, error) {
	var out []TopicEvent
	err := rows.Each(ctx, q, sqlTopicEvents, func(r *sql.Rows) error {
		e := TopicEvent{Topic: topic}
		err := r.Scan((*rows.Number)(&e.Offset), &e.Key, &e.Payload, (*rows.Number)(&e.CreatedAt))
		out = append(out, e)
		return err
	}, topic, after, limit)
	return out, err
}

const (
	sqlTopicHorizon = `SELECT max(offset), count(*) FROM (SELECT offset` + ByTopic + `?1 AND offset > ?2 ORDER BY offset LIMIT ?3 + 0)`
	sqlHorizon      = `SELECT max(offset), count(*) FROM (SELECT offset` + byOffset + `offset > ?1 ORDER BY offset LIMIT ?2 + 0)`
)

// horizon returns the last of the next n offsets above after that a read of the selection must pass, selected or not,
// or after itself if there are none. A read of a sparse selection up to this offset has a limited cost, and the next
// read continues from there even if no event was found. more means that there may be more offsets.
func horizon(ctx context.Context, q row.Querier, s row.Selection, after int64, n int64) (last int64, more bool, err error) {
	query, args := sqlTopicHorizon, []any{s.Topic, after, n}
	if s.Pattern() {
		query, args = sqlHorizon, []any{after, n}
	}
	var highest sql.NullInt64
	var count int64
	_, err = rows.One(ctx, q, query, args, &highest, &count)
	return max(after, highest.Int64), count == n, err
}

// Last returns the offset of the last event in the selected topics, ignoring the filter, or 0 if there
// is none. For a pattern it reads all later events of other topics.
func (Streams) Last(ctx context.Context, q row.Querier, s row.Selection) (int64, error) {
	return edge(ctx, q, row.Selection{Topic: s.Topic}, func(c *condition) {
		c.sql.WriteString(` ORDER BY offset DESC LIMIT 1`)
	})
}

// firstSince returns the offset of the first selected event at or after the Unix second since, or 0 if
// there is none. It reads all older events, because no index is ordered by time.
func firstSince(ctx context.Context, q row.Querier, s row.Selection, since int64) (int64, error) {
	return edge(ctx, q, s, func(c *condition) {
		c.sql.WriteString(` AND created_at >= ` + c.bind(since) + ` ORDER BY offset LIMIT 1`)
	})
}

// Start returns the offset at which a reader of s's topics begins, ignoring the filter, and the last
// offset that compaction has deleted from those topics. For Position.Since it reads all older events.
func (r Streams) Start(ctx context.Context, q row.Querier, s row.Selection, at row.Position) (start row.Start, err error) {
	s.Filter = nil
	if start.Gone, err = compacted(ctx, q, s); err != nil {
		return start, err
	}
	start.Offset = at.After
	if !at.Since.IsZero() {
		first, err := firstSince(ctx, q, s, at.Since.Unix())
		if err != nil {
			return start, err
		}
		start.Offset, at.End = first-1, first == 0
	}
	if at.End {
		last, err := r.Last(ctx, q, s)
		start.Offset = max(last, start.Gone)
		return start, err
	}
	return start, nil
}

// edge returns the first offset of a selection, with tail appended to its query.
func edge(ctx context.Context, q row.Querier, s row.Selection, tail func(*condition)) (offset int64, err error) {
	var c condition
	c.sql.WriteString(`SELECT offset`)
	selectionFrom(s, &c)
	tail(&c)
	_, err = rows.One(ctx, q, c.sql.String(), c.args, &offset)
	return offset, err
}

// sqlEventTime uses the primary key.
const sqlEventTime = `SELECT created_at FROM _honker_stream WHERE offset = ?1`

// Ahead counts the selected events above after. It examines up to most events of the topic, or of all topics for a
// pattern. If most is Unbounded, it examines all events.
func (Streams) Ahead(ctx context.Context, q row.Querier, s row.Selection, after, most int64) (a row.Ahead, err error) {
	last, more := int64(row.Unbounded), false
	if most < row.Unbounded {
		last, more, err = horizon(ctx, q, s, after, most+1)
	}
	if err != nil || last == after {
		return a, err
	}
	var c condition
	c.sql.WriteString(`SELECT count(*), min(offset)`)
	selectionFrom(s, &c)
	c.sql.WriteString(` AND offset > ` + c.bind(after) + ` AND offset <= ` + c.bind(last))
	var first int64
	if _, err := rows.One(ctx, q, c.sql.String(), c.args, &a.N, (*rows.Number)(&first)); err != nil {
		return a, err
	}
	a.N, a.More = min(a.N, most), more
	if a.N > 0 {
		_, err = rows.One(ctx, q, sqlEventTime, []any{first}, (*rows.Second)(&a.FirstAt))
	}
	return a, err
}

// sqlLastEvent uses the primary key, from the end.
const sqlLastEvent = `SELECT coalesce(max(offset), 0) FROM _honker_stream`

// lastEvent returns the highest offset in any topic, or 0 if there are no events.
func lastEvent(ctx context.Context, q row.Querier) (offset int64, err error) {
	_, err = rows.One(ctx, q, sqlLastEvent, nil, &offset)
	return offset, err
}

var (
	sqlLastOffset = rows.SequenceOf("_honker_stream")
	sqlEventHead  = rows.HeadOf(sqlLastOffset, sqlLastEvent)
)

// Head returns an offset such that all events up to it are visible or deleted, and all events that
// become visible later have larger offsets. Deleting events does not lower it.
func (Streams) Head(ctx context.Context, q row.Querier) (offset int64, err error) {
	_, err = rows.One(ctx, q, sqlEventHead, nil, (*rows.Number)(&offset))
	return offset, err
}

// sqlTopicsSince uses the primary key, starting at after.
var sqlTopicsSince = `SELECT coalesce((` + sqlLastOffset + `), 0), NULL, NULL UNION ALL SELECT * FROM
  (SELECT offset, topic, ` + eventKey + ` FROM _honker_stream WHERE offset > ?1 ORDER BY offset LIMIT ?2 + 0)`

// TopicsSince returns the topics and keys of up to limit events with offsets above after, the
// number of these events, and the last offset among them.
func (Streams) TopicsSince(ctx context.Context, q row.Querier, after int64, limit int) (topics row.Added, n int, last int64, err error) {
	return rows.AddedSince(ctx, q, sqlTopicsSince, after, limit)
}
