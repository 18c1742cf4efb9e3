// Package streams contains the statements for events, consumers, and the retention of topics and queues.
package streams

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

// Streams contains the statements for the table event.
type Streams struct{ pgsql.Schema }

// Number moves committed events and messages of applications' transactions to their logs. It is the work pgsql.Number
// and must run in a transaction of its own. It waits for other transactions that number, which are short: when it
// returns, everything that was committed before the call has a number.
func Number(ctx context.Context, q row.Querier, s pgsql.Schema, now time.Time) error {
	_, err := q.ExecContext(ctx, s.SQL(sqlNumber), pgsql.Stamp(now))
	return err
}

const (
	sqlNumber = `SELECT honker.number($1)`

	sqlPublish = `SELECT first, last FROM honker.publish_($1, $2, $3, $4)`

	sqlPublishLater = `INSERT INTO honker.pending (xid, created_at, message, topic, key, payload)
SELECT pg_current_xact_id(), $4, false, $1, CASE cardinality($2::text[]) WHEN 1 THEN ($2::text[])[1] ELSE u.key END, u.payload
FROM unnest($3::text[], $2::text[]) WITH ORDINALITY u(payload, key, n) ORDER BY u.n`
)

// Publish implements engine.StreamStore. In an op it waits until the op's transaction is the only one that numbers. An
// application's transaction takes no lock, and its events are numbered after the commit.
func (s Streams) Publish(ctx context.Context, q row.Querier, p row.Publication, now time.Time) (first, last int64, err error) {
	if len(p.Keys) > 1 && len(p.Keys) != len(p.Payloads) {
		return 0, 0, fmt.Errorf("got %d keys for %d events", len(p.Keys), len(p.Payloads))
	}
	args := []any{p.Topic, pgsql.List(p.Keys), p.Payloads, pgsql.Stamp(now)}
	if _, ok := q.(pgsql.Session); !ok {
		_, err := q.ExecContext(ctx, s.SQL(sqlPublishLater), args...)
		return 0, 0, err
	}
	var from, to sql.NullInt64
	_, err = pgsql.One(ctx, q, s.SQL(sqlPublish), args, &from, &to)
	if err == nil && !from.Valid {
		err = row.ErrNotInserted
	}
	return from.Int64, to.Int64, err
}

const (
	// scanRows limits a single scan of a sparse selection to a few milliseconds.
	scanRows = 20_000

	// pageBytes limits the payloads of a page.
	pageBytes = 1 << 20
)

// Read implements engine.StreamStore.
func (s Streams) Read(ctx context.Context, q row.Querier, e row.EventRead, into []row.Event) (page row.EventPage, err error) {
	page = row.EventPage{Events: into, Next: e.After, Scanned: e.Scanned}
	through, sparse := e.Through, e.Sparse()
	if sparse {
		if page.Scanned <= e.After {
			if page.Scanned, _, err = s.horizon(ctx, q, e.Selection, e.After, scanRows); err != nil {
				return page, err
			}
		}
		through = min(through, page.Scanned)
	}
	if through <= e.After {
		return page, nil
	}
	events, more, err := s.readEvents(ctx, q, e, through, into)
	page.Events, page.End = events, !more && !sparse
	switch found := len(events) > len(into); {
	case found && (more || !sparse):
		page.Next = events[len(events)-1].Offset
	case sparse:
		page.Next = through // no other event up to through is selected
	}
	return page, err
}

// readEvents appends to into the page of e up to through. more means that it may have stopped before the last event.
func (s Streams) readEvents(ctx context.Context, q row.Querier, e row.EventRead, through int64, into []row.Event) (events []row.Event, more bool, err error) {
	events = into
	c, size := pageQuery(e, through), 0
	err = pgsql.Each(ctx, q, s.SQL(c.sql.String()), func(r *sql.Rows) error {
		one := row.Event{Topic: e.Topic}
		dest := []any{&one.Offset, &one.Key, &one.Payload, &one.CreatedAt}
		if e.Pattern() {
			dest = append(dest, &one.Topic)
		}
		err := r.Scan(dest...)
		one.CreatedAt = pgsql.Shown(one.CreatedAt)
		size += len(one.Payload)
		events = append(events, one)
		return err
	}, c.all()...)
	return events, len(events)-len(into) == e.Limit || size >= pageBytes, err
}

// pageQuery returns the query for readEvents. The server limits the size of the page, because a client that stops
// early must still receive all rows. The sum of the sizes reads no payload that is stored apart.
func pageQuery(e row.EventRead, through int64) *condition {
	c := new(condition)
	columns, topic := `"offset", `+eventKey+` AS key, payload, created_at`, ""
	if e.Pattern() {
		topic = `, topic`
	}
	c.write(`SELECT "offset", key, payload, created_at` + topic + ` FROM (SELECT *,
  sum(octet_length(payload)) OVER (ORDER BY "offset" ROWS UNBOUNDED PRECEDING) - octet_length(payload) AS before
  FROM (SELECT ` + columns + topic)
	order := c.within(e.Selection, e.After, through)
	c.write(` ORDER BY ` + order + ` LIMIT ` + c.bind(e.Limit) + `) found) measured WHERE before < ` + c.bind(pageBytes) + ` ORDER BY "offset"`)
	return c
}

// horizon returns the last of the next n offsets above after that a read of the selection must pass, selected or not,
// or after itself if there are none. A read of a sparse selection up to this offset has a limited cost, and the next
// read continues from there even if no event was found. more means that there may be more offsets.
func (s Streams) horizon(ctx context.Context, q row.Querier, sel row.Selection, after, n int64) (last int64, more bool, err error) {
	topic := row.Selection{Topic: sel.Topic}
	if sel.Pattern() {
		topic.Topic = "*"
	}
	var c condition
	c.write(`SELECT max("offset"), count(*) FROM (SELECT "offset"`)
	order := c.within(topic, after, row.Unbounded)
	c.write(` ORDER BY ` + order + ` LIMIT ` + c.bind(n) + `) next`)
	var highest sql.NullInt64
	var count int64
	_, err = pgsql.One(ctx, q, s.SQL(c.sql.String()), c.all(), &highest, &count)
	return max(after, highest.Int64), count == n, err
}

// Last implements engine.StreamStore.
func (s Streams) Last(ctx context.Context, q row.Querier, sel row.Selection) (offset int64, err error) {
	var c condition
	c.write(`SELECT "offset"`)
	order := c.within(row.Selection{Topic: sel.Topic}, 0, row.Unbounded)
	c.write(` ORDER BY ` + strings.ReplaceAll(order, ",", " DESC,") + ` DESC LIMIT 1`)
	_, err = pgsql.One(ctx, q, s.SQL(c.sql.String()), c.all(), &offset)
	return offset, err
}

// firstSince returns the offset of the first event of the topic or pattern that was created at or after since, or 0 if
// there is none. It reads all older events, because no index is ordered by time.
func (s Streams) firstSince(ctx context.Context, q row.Querier, topic string, since time.Time) (offset int64, err error) {
	var c condition
	c.write(`SELECT "offset"`)
	order := c.within(row.Selection{Topic: topic}, 0, row.Unbounded)
	c.write(` AND created_at >= ` + c.bind(pgsql.Stamp(since)) + ` ORDER BY ` + order + ` LIMIT 1`)
	_, err = pgsql.One(ctx, q, s.SQL(c.sql.String()), c.all(), &offset)
	return offset, err
}

// Start implements engine.StreamStore.
func (s Streams) Start(ctx context.Context, q row.Querier, sel row.Selection, at row.Position) (start row.Start, err error) {
	if start.Gone, err = s.deletedThrough(ctx, q, sel.Topic); err != nil {
		return start, err
	}
	start.Offset = at.After
	if !at.Since.IsZero() {
		first, err := s.firstSince(ctx, q, sel.Topic, second(at.Since))
		if err != nil {
			return start, err
		}
		start.Offset, at.End = first-1, first == 0
	}
	if at.End {
		last, err := s.Last(ctx, q, sel)
		start.Offset = max(last, start.Gone)
		return start, err
	}
	return start, nil
}

const (
	sqlDeleted        = `SELECT coalesce(max(through), 0) FROM honker.deleted WHERE log = 0 AND topic = $1`
	sqlPatternDeleted = `SELECT coalesce(max(through), 0) FROM honker.deleted WHERE log = 0 AND starts_with(topic, $1)`
)

// deletedThrough returns the last offset that Compact has deleted from the topic or pattern, or 0.
func (s Streams) deletedThrough(ctx context.Context, q row.Querier, topic string) (through int64, err error) {
	query := sqlDeleted
	prefix, pattern := strings.CutSuffix(topic, "*")
	if pattern {
		query, topic = sqlPatternDeleted, prefix
	}
	_, err = pgsql.One(ctx, q, s.SQL(query), []any{topic}, &through)
	return through, err
}

const sqlEventTime = `SELECT created_at FROM honker.event WHERE "offset" = $1`

// Ahead implements engine.StreamStore.
func (s Streams) Ahead(ctx context.Context, q row.Querier, sel row.Selection, after, most int64) (a row.Ahead, err error) {
	if most < row.Unbounded && !sel.Sparse() {
		return s.aheadOf(ctx, q, sel, after, most)
	}
	last, more := int64(row.Unbounded), false
	if most < row.Unbounded {
		last, more, err = s.horizon(ctx, q, sel, after, most+1)
	}
	if err != nil || last == after {
		return a, err
	}
	var c condition
	c.write(`SELECT count(*), coalesce(min("offset"), 0)`)
	c.within(sel, after, last)
	var first int64
	if _, err := pgsql.One(ctx, q, s.SQL(c.sql.String()), c.all(), &a.N, &first); err != nil {
		return a, err
	}
	a.N, a.More = min(a.N, most), more
	if a.N == 0 {
		return a, nil
	}
	var at sql.NullTime // the event may be deleted by now
	_, err = pgsql.One(ctx, q, s.SQL(sqlEventTime), []any{pgsql.Replan, first}, &at)
	a.FirstAt = pgsql.Instant(at)
	return a, err
}

// aheadOf is Ahead for all events of a topic. A single scan of an index counts them and finds the first.
func (s Streams) aheadOf(ctx context.Context, q row.Querier, sel row.Selection, after, most int64) (a row.Ahead, err error) {
	var c condition
	c.write(`SELECT n, e.created_at FROM (SELECT count(*) AS n, min("offset") AS first FROM (SELECT "offset"`)
	order := c.within(sel, after, row.Unbounded)
	c.write(` ORDER BY ` + order + ` LIMIT ` + c.bind(most+1) + `) next) found LEFT JOIN honker.event e ON e."offset" = first`)
	var at sql.NullTime
	_, err = pgsql.One(ctx, q, s.SQL(c.sql.String()), c.all(), &a.N, &at)
	a.N, a.More, a.FirstAt = min(a.N, most), a.N > most, pgsql.Instant(at)
	return a, err
}
