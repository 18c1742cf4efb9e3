package store

import (
	"context"
	"database/sql"

	"github.com/honker-go/honker/internal/row"
)

// Consumers provides the statements on _honker_stream_consumers and _honkerx_consumers.
type Consumers struct{}

// Uses the primary key.
const sqlGetOffset = `SELECT offset FROM _honker_stream_consumers WHERE name = ?1 AND topic = ?2`

// Offset returns the offset of the consumer, or false if it does not exist.
func (Consumers) Offset(ctx context.Context, q row.Querier, consumer, topic string) (offset int64, found bool, err error) {
	found, err = one(ctx, q, sqlGetOffset, []any{consumer, topic}, (*number)(&offset))
	return offset, found, err
}

// As in honker, an offset never goes back, so a late save of a slow process does not repeat events.
const sqlSaveOffset = `INSERT INTO _honker_stream_consumers (name, topic, offset) VALUES (?1, ?2, ?3)
ON CONFLICT (name, topic) DO UPDATE SET offset = excluded.offset WHERE excluded.offset > offset`

const sqlTouchConsumer = `INSERT INTO _honkerx_consumers (topic, name, created_ms, last_ack_ms) VALUES (?2, ?1, ?3, ?3)
ON CONFLICT (topic, name) DO UPDATE SET last_ack_ms = excluded.last_ack_ms`

// SaveOffset advances the consumer to offset and creates it if needed. It returns false if the consumer is
// already at or beyond offset.
func (Consumers) SaveOffset(ctx context.Context, q row.Querier, consumer, topic string, offset, nowMS int64) (bool, error) {
	n, err := affected(ctx, q, sqlSaveOffset, consumer, topic, offset)
	if err != nil || n == 0 {
		return false, err
	}
	_, err = q.ExecContext(ctx, sqlTouchConsumer, consumer, topic, nowMS)
	return true, err
}

// Uses the primary key.
const sqlSetOffset = `UPDATE _honker_stream_consumers SET offset = ?3 WHERE name = ?1 AND topic = ?2`

// SetOffset moves the consumer to offset, forward or back. It returns false if the consumer does not exist.
func (Consumers) SetOffset(ctx context.Context, q row.Querier, consumer, topic string, offset int64) (bool, error) {
	n, err := affected(ctx, q, sqlSetOffset, consumer, topic, offset)
	return n > 0, err
}

const (
	sqlAddConsumer = `INSERT INTO _honker_stream_consumers (name, topic, offset) VALUES (?1, ?2, ?3)
ON CONFLICT (name, topic) DO NOTHING`

	sqlDescribeConsumer = `INSERT INTO _honkerx_consumers (topic, name, created_ms, filter) VALUES (?2, ?1, ?3, ?4)
ON CONFLICT (topic, name) DO UPDATE SET filter = excluded.filter`

	sqlConsumerFilter = `SELECT coalesce(filter, '') FROM _honkerx_consumers WHERE topic = ?2 AND name = ?1`
)

// AsDescribed returns the offset of a consumer whose filter is f. It returns false if the consumer has
// another filter or does not exist. It lets a process that restarts unchanged avoid a write.
func (c Consumers) AsDescribed(ctx context.Context, q row.Querier, consumer, topic string, f *row.Filter) (offset int64, same bool, err error) {
	offset, found, err := c.Offset(ctx, q, consumer, topic)
	if err != nil || !found {
		return 0, false, err
	}
	var text string
	found, err = one(ctx, q, sqlConsumerFilter, []any{consumer, topic}, &text)
	want, _ := f.Text().(string)
	return offset, found && text == want, err
}

// Add creates a consumer at offset unless it exists, sets its filter, and returns its current offset.
func (c Consumers) Add(ctx context.Context, q row.Querier, consumer, topic string, offset int64, f *row.Filter, nowMS int64) (int64, error) {
	if _, err := q.ExecContext(ctx, sqlAddConsumer, consumer, topic, offset); err != nil {
		return 0, err
	}
	if _, err := q.ExecContext(ctx, sqlDescribeConsumer, consumer, topic, nowMS, f.Text()); err != nil {
		return 0, err
	}
	offset, _, err := c.Offset(ctx, q, consumer, topic)
	return offset, err
}

const (
	consumerColumns = `SELECT c.name, c.topic, c.offset, x.created_ms, x.last_ack_ms, coalesce(x.filter, '')
FROM _honker_stream_consumers AS c LEFT JOIN _honkerx_consumers AS x ON x.topic = c.topic AND x.name = c.name
`
	sqlConsumers    = consumerColumns + `WHERE c.topic = ?1 ORDER BY c.name`
	sqlAllConsumers = consumerColumns + `ORDER BY c.topic, c.name`
)

// List returns the consumers of a topic or pattern, by name.
func (Consumers) List(ctx context.Context, q row.Querier, topic string) ([]row.Consumer, error) {
	return consumers(ctx, q, sqlConsumers, topic)
}

// All returns all consumers, by topic or pattern and by name.
func (Consumers) All(ctx context.Context, q row.Querier) ([]row.Consumer, error) {
	return consumers(ctx, q, sqlAllConsumers)
}

func consumers(ctx context.Context, q row.Querier, query string, args ...any) ([]row.Consumer, error) {
	var out []row.Consumer
	err := each(ctx, q, query, func(rows *sql.Rows) error {
		var c row.Consumer
		var text string
		err := rows.Scan(&c.Name, &c.Topic, (*number)(&c.Offset), (*number)(&c.CreatedMS), (*number)(&c.LastAckMS), &text)
		c.Filter, c.Unreadable = parseFilter(text)
		out = append(out, c)
		return err
	}, args...)
	return out, err
}

// Uses the primary keys.
const (
	sqlDropConsumer = `DELETE FROM _honker_stream_consumers WHERE name = ?1 AND topic = ?2`
	sqlForget       = `DELETE FROM _honkerx_consumers WHERE name = ?1 AND topic = ?2`
)

// Drop removes a consumer. It returns false if the consumer does not exist.
func (Consumers) Drop(ctx context.Context, q row.Querier, consumer, topic string) (bool, error) {
	n, err := affected(ctx, q, sqlDropConsumer, consumer, topic)
	if err != nil {
		return false, err
	}
	_, err = q.ExecContext(ctx, sqlForget, consumer, topic)
	return n > 0, err
}
