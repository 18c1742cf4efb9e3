package store

import (
	"context"
	"database/sql"

	"github.com/honker-go/honker/internal/row"
)

// Consumers are the statements on _honker_stream_consumers and _honkerx_consumers.
type Consumers struct{}

// By primary key.
const sqlGetOffset = `SELECT offset FROM _honker_stream_consumers WHERE name = ?1 AND topic = ?2`

// Offset returns how far the consumer has come; false when there is none.
func (Consumers) Offset(ctx context.Context, q Querier, consumer, topic string) (offset int64, found bool, err error) {
	found, err = one(ctx, q, sqlGetOffset, []any{consumer, topic}, (*number)(&offset))
	return offset, found, err
}

// honker's save: an offset never goes back, so that a late save of a slow process does not
// repeat events.
const sqlSaveOffset = `INSERT INTO _honker_stream_consumers (name, topic, offset) VALUES (?1, ?2, ?3)
ON CONFLICT (name, topic) DO UPDATE SET offset = excluded.offset WHERE excluded.offset > offset`

const sqlTouchConsumer = `INSERT INTO _honkerx_consumers (topic, name, created_ms, last_ack_ms) VALUES (?2, ?1, ?3, ?3)
ON CONFLICT (topic, name) DO UPDATE SET last_ack_ms = excluded.last_ack_ms`

// SaveOffset moves the consumer on to offset, or makes it; false when it is there already,
// or further.
func (Consumers) SaveOffset(ctx context.Context, q Querier, consumer, topic string, offset, nowMS int64) (bool, error) {
	n, err := affected(ctx, q, sqlSaveOffset, consumer, topic, offset)
	if err != nil || n == 0 {
		return false, err
	}
	_, err = q.ExecContext(ctx, sqlTouchConsumer, consumer, topic, nowMS)
	return true, err
}

// By primary key.
const sqlSetOffset = `UPDATE _honker_stream_consumers SET offset = ?3 WHERE name = ?1 AND topic = ?2`

// SetOffset moves the consumer to offset, also back; false when there is none.
func (Consumers) SetOffset(ctx context.Context, q Querier, consumer, topic string, offset int64) (bool, error) {
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

// AsDescribed returns the offset of a consumer that has that filter already; false when it
// has another or does not exist. So a start that changes nothing needs no write.
func (c Consumers) AsDescribed(ctx context.Context, q Querier, consumer, topic string, f *row.Filter) (offset int64, same bool, err error) {
	offset, found, err := c.Offset(ctx, q, consumer, topic)
	if err != nil || !found {
		return 0, false, err
	}
	var text string
	found, err = one(ctx, q, sqlConsumerFilter, []any{consumer, topic}, &text)
	want, _ := f.Text().(string)
	return offset, found && text == want, err
}

// Add makes a consumer that stands at offset, unless there is one, sets its filter, and
// returns where it stands.
func (c Consumers) Add(ctx context.Context, q Querier, consumer, topic string, offset int64, f *row.Filter, nowMS int64) (int64, error) {
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

// List returns the consumers of one topic, or of one pattern, by name.
func (Consumers) List(ctx context.Context, q Querier, topic string) ([]row.Consumer, error) {
	return consumers(ctx, q, sqlConsumers, topic)
}

// All returns the consumers of all topics and patterns, by topic and name.
func (Consumers) All(ctx context.Context, q Querier) ([]row.Consumer, error) {
	return consumers(ctx, q, sqlAllConsumers)
}

func consumers(ctx context.Context, q Querier, query string, args ...any) ([]row.Consumer, error) {
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

// By primary keys.
const (
	sqlDropConsumer = `DELETE FROM _honker_stream_consumers WHERE name = ?1 AND topic = ?2`
	sqlForget       = `DELETE FROM _honkerx_consumers WHERE name = ?1 AND topic = ?2`
)

// Drop removes a consumer; false when there is none.
func (Consumers) Drop(ctx context.Context, q Querier, consumer, topic string) (bool, error) {
	n, err := affected(ctx, q, sqlDropConsumer, consumer, topic)
	if err != nil {
		return false, err
	}
	_, err = q.ExecContext(ctx, sqlForget, consumer, topic)
	return n > 0, err
}
