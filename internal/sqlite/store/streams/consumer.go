package streams

import (
	"context"
	"database/sql"
	"strconv"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// Consumers contains the statements for _honker_stream_consumers and _honkerx_consumers.
type Consumers struct{}

// sqlGetOffset uses the primary key.
const sqlGetOffset = `SELECT offset FROM _honker_stream_consumers WHERE name = ?1 AND topic = ?2`

// Offset returns the consumer's offset, or false if it does not exist. It is used by honker's SQL function
// and by Add.
func (Consumers) Offset(ctx context.Context, q row.Querier, consumer, topic string) (offset int64, found bool, err error) {
	found, err = rows.One(ctx, q, sqlGetOffset, []any{consumer, topic}, (*rows.Number)(&offset))
	return offset, found, err
}

// As in honker, an offset never goes back, so that a late save by a slow process doesn't cause events to be repeated.
const sqlSaveOffset = `INSERT INTO _honker_stream_consumers (name, topic, offset) VALUES (?1, ?2, ?3)
ON CONFLICT (name, topic) DO UPDATE SET offset = excluded.offset WHERE excluded.offset > offset`

// sqlTouchConsumer takes a mark if the last mark is old enough. Only then it looks for the next event.
var sqlTouchConsumer = `INSERT INTO _honkerx_consumers (topic, name, created_ms, last_ack_ms) VALUES (?2, ?1, ?3, ?3)
ON CONFLICT (topic, name) DO UPDATE SET last_ack_ms = excluded.last_ack_ms,
  past_ms = iif(` + markDue + `, mark_ms, past_ms), past_offset = iif(` + markDue + `, mark_offset, past_offset),
  past_behind_ms = iif(` + markDue + `, mark_behind_ms, past_behind_ms),
  mark_ms = iif(` + markDue + `, ?3, mark_ms), mark_offset = iif(` + markDue + `, ?4, mark_offset),
  mark_behind_ms = iif(` + markDue + `, ifnull(max(0, ?3 - 1000 * (SELECT created_at` + ByTopic + `?2 AND offset > ?4 ORDER BY offset LIMIT 1)), 0),
    mark_behind_ms)`

var markDue = `ifnull(mark_ms, 0) <= ?3 - ` + strconv.FormatInt(row.MarkEvery.Milliseconds(), 10)

// SaveOffset advances the consumer to offset and creates it if needed. It returns false if the consumer is
// already at or beyond offset.
func (Consumers) SaveOffset(ctx context.Context, q row.Querier, consumer, topic string, offset int64, now time.Time) (bool, error) {
	n, err := rows.Affected(ctx, q, sqlSaveOffset, consumer, topic, offset)
	if err != nil || n == 0 {
		return false, err
	}
	_, err = q.ExecContext(ctx, sqlTouchConsumer, consumer, topic, now.UnixMilli(), offset)
	return true, err
}

// Advance moves the consumer from an offset to a later one and returns that and true. If the consumer is not at from,
// Advance changes nothing and returns its offset.
func (c Consumers) Advance(ctx context.Context, q row.Querier, consumer, topic string, from, to int64, now time.Time) (at int64, moved bool, err error) {
	if at, _, err = c.Offset(ctx, q, consumer, topic); err != nil || at != from {
		return at, false, err
	}
	moved, err = c.SaveOffset(ctx, q, consumer, topic, to, now)
	return to, moved, err
}

// sqlSetOffset uses the primary key.
const sqlSetOffset = `UPDATE _honker_stream_consumers SET offset = ?3 WHERE name = ?1 AND topic = ?2`

// Seek moves the consumer forward or back to a position and returns the position's offset. It returns
// false if the consumer does not exist.
func (Consumers) Seek(ctx context.Context, q row.Querier, consumer, topic string, to row.Position) (at row.Start, found bool, err error) {
	if at, err = (Streams{}).Start(ctx, q, row.Selection{Topic: topic}, to); err != nil {
		return at, false, err
	}
	n, err := rows.Affected(ctx, q, sqlSetOffset, consumer, topic, at.Offset)
	return at, n > 0, err
}

const (
	sqlAddConsumer = `INSERT INTO _honker_stream_consumers (name, topic, offset) VALUES (?1, ?2, ?3)
ON CONFLICT (name, topic) DO NOTHING`

	sqlDescribeConsumer = `INSERT INTO _honkerx_consumers (topic, name, created_ms, filter) VALUES (?2, ?1, ?3, ?4)
ON CONFLICT (topic, name) DO UPDATE SET filter = excluded.filter`
)

// Add creates a consumer if it does not exist, and sets its filter.
func (c Consumers) Add(ctx context.Context, q row.Querier, n row.NewConsumer, now time.Time) (a row.AddedConsumer, err error) {
	if a.Offset, a.Found, err = c.Offset(ctx, q, n.Name, n.Topic); err != nil {
		return a, err
	}
	if !a.Found {
		if a.Start, err = (Streams{}).Start(ctx, q, row.Selection{Topic: n.Topic}, n.From); err != nil {
			return a, err
		}
		if _, err := q.ExecContext(ctx, sqlAddConsumer, n.Name, n.Topic, a.Offset); err != nil {
			return a, err
		}
	}
	_, err = q.ExecContext(ctx, sqlDescribeConsumer, n.Name, n.Topic, now.UnixMilli(), filterText(n.Filter))
	return a, err
}

const (
	consumerColumns = `SELECT c.name, c.topic, c.offset, x.created_ms, x.last_ack_ms, coalesce(x.filter, ''),
  x.mark_ms, x.mark_offset, x.mark_behind_ms, x.past_ms, x.past_offset, x.past_behind_ms
FROM _honker_stream_consumers AS c LEFT JOIN _honkerx_consumers AS x ON x.topic = c.topic AND x.name = c.name
`
	sqlGetConsumer  = consumerColumns + `WHERE c.topic = ?1 AND c.name = ?2`
	sqlConsumers    = consumerColumns + `WHERE c.topic = ?1 ORDER BY c.name`
	sqlAllConsumers = consumerColumns + `ORDER BY c.topic, c.name`
)

// Get returns a consumer, or false if it does not exist.
func (Consumers) Get(ctx context.Context, q row.Querier, consumer, topic string) (c row.Consumer, found bool, err error) {
	all, err := consumers(ctx, q, sqlGetConsumer, topic, consumer)
	if err != nil || len(all) == 0 {
		return c, false, err
	}
	return all[0], true, nil
}

// List returns the consumers of a topic or pattern, sorted by name. If topic is empty, it returns all consumers,
// sorted by topic or pattern, then by name.
func (Consumers) List(ctx context.Context, q row.Querier, topic string) ([]row.Consumer, error) {
	if topic == "" {
		return consumers(ctx, q, sqlAllConsumers)
	}
	return consumers(ctx, q, sqlConsumers, topic)
}

func consumers(ctx context.Context, q row.Querier, query string, args ...any) ([]row.Consumer, error) {
	var out []row.Consumer
	err := rows.Each(ctx, q, query, func(r *sql.Rows) error {
		var c row.Consumer
		var text string
		var behind, behindPast int64
		err := r.Scan(&c.Name, &c.Topic, (*rows.Number)(&c.Offset), (*rows.Milli)(&c.CreatedAt), (*rows.Milli)(&c.LastAck), &text,
			(*rows.Milli)(&c.Mark.At), (*rows.Number)(&c.Mark.Offset), (*rows.Number)(&behind),
			(*rows.Milli)(&c.PastMark.At), (*rows.Number)(&c.PastMark.Offset), (*rows.Number)(&behindPast))
		c.Mark.Behind, c.PastMark.Behind = row.Milliseconds(behind), row.Milliseconds(behindPast)
		c.Filter, c.Unreadable = parseFilter(text)
		out = append(out, c)
		return err
	}, args...)
	return out, err
}

// These statements use the primary keys.
const (
	sqlDropConsumer = `DELETE FROM _honker_stream_consumers WHERE name = ?1 AND topic = ?2`
	sqlForget       = `DELETE FROM _honkerx_consumers WHERE name = ?1 AND topic = ?2`
)

// Drop removes a consumer. It returns false if the consumer does not exist.
func (Consumers) Drop(ctx context.Context, q row.Querier, consumer, topic string) (bool, error) {
	n, err := rows.Affected(ctx, q, sqlDropConsumer, consumer, topic)
	if err != nil {
		return false, err
	}
	_, err = q.ExecContext(ctx, sqlForget, consumer, topic)
	return n > 0, err
}
