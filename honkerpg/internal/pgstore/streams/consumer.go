package streams

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

// Consumers contains the statements for the table consumer.
type Consumers struct{ pgsql.Schema }

// HoldCompaction keeps Compact from deleting events until the end of q's transaction. A new reader and a reader that goes
// back must call it before they look where they begin: a compaction that did not see them could delete their events.
// It waits for a compaction that is under way.
func HoldCompaction(ctx context.Context, q row.Querier, s pgsql.Schema) error {
	_, err := q.ExecContext(ctx, s.SQL(sqlHoldCompaction))
	return err
}

const sqlHoldCompaction = `SELECT pg_advisory_xact_lock_shared(1751085688, 'honker.retention'::regclass::oid::int)`

const (
	sqlSetFilter = `UPDATE honker.consumer SET filter = $3 WHERE topic = $1 AND name = $2 RETURNING "offset"`

	sqlAddConsumer = `INSERT INTO honker.consumer (topic, name, "offset", created_at, filter) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (topic, name) DO NOTHING`
)

// addTries bounds the attempts to add a consumer that others add and drop at the same time.
const addTries = 10

// Add implements engine.ConsumerStore.
func (s Consumers) Add(ctx context.Context, q row.Querier, n row.NewConsumer, now time.Time) (a row.AddedConsumer, err error) {
	if err := HoldCompaction(ctx, q, s.Schema); err != nil {
		return a, err
	}
	filter := sql.NullString{String: n.Filter.Text(), Valid: n.Filter != nil}
	for range addTries {
		var offset int64
		found, err := pgsql.One(ctx, q, s.SQL(sqlSetFilter), []any{n.Topic, n.Name, filter}, &offset)
		if err != nil || found {
			return row.AddedConsumer{Start: row.Start{Offset: offset}, Found: found}, err
		}
		if a.Start, err = (Streams(s)).Start(ctx, q, row.Selection{Topic: n.Topic}, n.From); err != nil {
			return a, err
		}
		added, err := pgsql.Affected(ctx, q, s.SQL(sqlAddConsumer), n.Topic, n.Name, a.Offset, pgsql.Stamp(now), filter)
		if err != nil || added > 0 {
			return a, err
		}
	}
	return a, row.ErrNotInserted
}

const sqlDropConsumer = `DELETE FROM honker.consumer WHERE topic = $1 AND name = $2`

// Drop implements engine.ConsumerStore.
func (s Consumers) Drop(ctx context.Context, q row.Querier, consumer, topic string) (bool, error) {
	n, err := pgsql.Affected(ctx, q, s.SQL(sqlDropConsumer), topic, consumer)
	return n > 0, err
}

const (
	consumerColumns = `SELECT name, topic, "offset", created_at, last_ack_at, coalesce(filter, ''),
  mark_at, coalesce(mark_offset, 0), coalesce(mark_behind, 0), past_at, coalesce(past_offset, 0), coalesce(past_behind, 0) FROM honker.consumer `
	sqlGetConsumer  = consumerColumns + `WHERE topic = $1 AND name = $2`
	sqlConsumers    = consumerColumns + `WHERE topic = $1 ORDER BY name`
	sqlAllConsumers = consumerColumns + `ORDER BY topic, name`
)

// Get implements engine.ConsumerStore.
func (s Consumers) Get(ctx context.Context, q row.Querier, consumer, topic string) (c row.Consumer, found bool, err error) {
	all, err := s.list(ctx, q, sqlGetConsumer, topic, consumer)
	if err != nil || len(all) == 0 {
		return c, false, err
	}
	return all[0], true, nil
}

// List implements engine.ConsumerStore.
func (s Consumers) List(ctx context.Context, q row.Querier, topic string) ([]row.Consumer, error) {
	if topic == "" {
		return s.list(ctx, q, sqlAllConsumers)
	}
	return s.list(ctx, q, sqlConsumers, topic)
}

func (s Consumers) list(ctx context.Context, q row.Querier, query string, args ...any) (all []row.Consumer, err error) {
	err = pgsql.Each(ctx, q, s.SQL(query), func(r *sql.Rows) error {
		var c row.Consumer
		var text string
		var created, acked, marked, past sql.NullTime
		var behind, pastBehind int64
		err := r.Scan(&c.Name, &c.Topic, &c.Offset, &created, &acked, &text, &marked, &c.Mark.Offset, &behind, &past, &c.PastMark.Offset, &pastBehind)
		c.Mark.At, c.Mark.Behind = pgsql.Instant(marked), row.Milliseconds(behind)
		c.PastMark.At, c.PastMark.Behind = pgsql.Instant(past), row.Milliseconds(pastBehind)
		c.CreatedAt, c.LastAck = pgsql.Instant(created), pgsql.Instant(acked)
		c.Filter, c.Unreadable = ParseFilter(text)
		all = append(all, c)
		return err
	}, args...)
	return all, err
}

// setsMark takes a mark of consumer c at time $AT, of its new offset $TO, if the last mark is old enough. Only then it looks
// for the next event.
const setsMark = `past_at = CASE WHEN $DUE THEN c.mark_at ELSE c.past_at END, past_offset = CASE WHEN $DUE THEN c.mark_offset ELSE c.past_offset END,
  past_behind = CASE WHEN $DUE THEN c.mark_behind ELSE c.past_behind END,
  mark_at = CASE WHEN $DUE THEN $AT ELSE c.mark_at END, mark_offset = CASE WHEN $DUE THEN $TO ELSE c.mark_offset END,
  mark_behind = CASE WHEN $DUE THEN coalesce(greatest(0, (SELECT extract(epoch FROM $AT - e.created_at) * 1000 FROM honker.event e
    WHERE (e.topic, e."offset") > (c.topic, $TO) AND (e.topic, e."offset") <= (c.topic, 9223372036854775807) ORDER BY e.topic, e."offset" LIMIT 1))::bigint, 0) ELSE c.mark_behind END`

// marking returns setsMark with expressions for the time and the offset.
func marking(at, to string) string {
	due := `coalesce(c.mark_at, '-infinity') <= ` + at + ` - interval '` + strconv.Itoa(int(row.MarkEvery/time.Second)) + ` seconds'`
	return strings.NewReplacer("$DUE", due, "$AT", at, "$TO", to).Replace(setsMark)
}

// An offset never goes back, so that a late save by a slow process doesn't cause events to be repeated.
var sqlSaveOffset = `INSERT INTO honker.consumer AS c (topic, name, "offset", created_at, last_ack_at) VALUES ($1, $2, $3, $4, $4)
ON CONFLICT (topic, name) DO UPDATE SET "offset" = excluded."offset", last_ack_at = excluded.last_ack_at,
  ` + marking(`excluded.last_ack_at`, `excluded."offset"`) + `
WHERE excluded."offset" > c."offset"`

// SaveOffset implements engine.ConsumerStore.
func (s Consumers) SaveOffset(ctx context.Context, q row.Querier, consumer, topic string, offset int64, now time.Time) (bool, error) {
	n, err := pgsql.Affected(ctx, q, s.SQL(sqlSaveOffset), topic, consumer, offset, pgsql.Stamp(now))
	return n > 0, err
}

var (
	sqlAdvance = `UPDATE honker.consumer c SET "offset" = $4, last_ack_at = $5, ` + marking(`$5::timestamptz`, `$4::bigint`) + ` WHERE topic = $1 AND name = $2 AND "offset" = $3`

	sqlAdvanceFirst = `INSERT INTO honker.consumer AS c (topic, name, "offset", created_at, last_ack_at) VALUES ($1, $2, $4, $5, $5)
ON CONFLICT (topic, name) DO UPDATE SET "offset" = excluded."offset", last_ack_at = excluded.last_ack_at,
  ` + marking(`excluded.last_ack_at`, `excluded."offset"`) + ` WHERE c."offset" = $3`
)

const sqlGetOffset = `SELECT "offset" FROM honker.consumer WHERE topic = $1 AND name = $2`

// Advance implements engine.ConsumerStore. A statement that reads the offset and a statement that writes it would let two
// transactions advance the consumer from the same offset.
func (s Consumers) Advance(ctx context.Context, q row.Querier, consumer, topic string, from, to int64, now time.Time) (at int64, moved bool, err error) {
	query := sqlAdvance
	if from == 0 {
		query = sqlAdvanceFirst
	}
	n, err := pgsql.Affected(ctx, q, s.SQL(query), topic, consumer, from, to, pgsql.Stamp(now))
	if err != nil || n > 0 {
		return to, n > 0, err
	}
	_, err = pgsql.One(ctx, q, s.SQL(sqlGetOffset), []any{topic, consumer}, &at)
	return at, false, err
}

const sqlSetOffset = `UPDATE honker.consumer SET "offset" = $3 WHERE topic = $1 AND name = $2`

// Seek implements engine.ConsumerStore.
func (s Consumers) Seek(ctx context.Context, q row.Querier, consumer, topic string, to row.Position) (at row.Start, found bool, err error) {
	if err := HoldCompaction(ctx, q, s.Schema); err != nil {
		return at, false, err
	}
	if at, err = (Streams(s)).Start(ctx, q, row.Selection{Topic: topic}, to); err != nil {
		return at, false, err
	}
	n, err := pgsql.Affected(ctx, q, s.SQL(sqlSetOffset), topic, consumer, at.Offset)
	return at, n > 0, err
}
