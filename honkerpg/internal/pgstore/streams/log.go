package streams

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

// eventHead is the head of the events. A subquery for each index needs no sort.
const eventHead = `greatest((SELECT max("offset") FROM honker.event), (SELECT max(through) FROM honker.deleted WHERE log = 0), 0)`

const (
	sqlEventHead = `SELECT ` + eventHead

	sqlTopicsSince = `SELECT ` + eventHead + `, NULL, NULL UNION ALL SELECT * FROM
  (SELECT "offset", topic, ` + eventKey + ` FROM honker.event WHERE "offset" > $1 ORDER BY "offset" LIMIT $2) added`
)

// Head implements engine.StreamStore.
func (s Streams) Head(ctx context.Context, q row.Querier) (offset int64, err error) {
	_, err = pgsql.One(ctx, q, s.SQL(sqlEventHead), nil, &offset)
	return offset, err
}

// TopicsSince implements the Since of wake.Log for events.
func (s Streams) TopicsSince(ctx context.Context, q row.Querier, after int64, limit int) (topics row.Added, n int, last int64, err error) {
	return pgsql.AddedSince(ctx, q, s.SQL(sqlTopicsSince), after, limit)
}

const sqlTopicStates = `SELECT topic, first, first_at, head, last_at, gone, max_count, max_age FROM honker.topic_states()`

// Topics implements engine.StreamStore.
func (s Streams) Topics(ctx context.Context, q row.Querier) (all []row.TopicState, err error) {
	err = pgsql.Each(ctx, q, s.SQL(sqlTopicStates), func(r *sql.Rows) error {
		var t row.TopicState
		var age int64
		var first, last sql.NullTime
		err := r.Scan(&t.Topic, &t.First, &first, &t.Head, &last, &t.Gone, &t.MaxCount, &age)
		t.FirstAt, t.LastAt, t.MaxAge = pgsql.Instant(first), pgsql.Instant(last), row.Span(age)
		all = append(all, t)
		return err
	})
	return all, err
}

// sqlCountDown walks event_topic from the end of the range. Comparisons of rows would read the whole topic, since the
// server begins a walk between two of them at the first column. If it takes the primary key, it reads no more than the range.
const sqlCountDown = `SELECT count(*), coalesce(min("offset"), 0) FROM (SELECT "offset" FROM honker.event
  WHERE topic = $1 AND "offset" > $2 AND "offset" <= $3 ORDER BY "offset" DESC LIMIT $4) e`

// CountDown implements engine.StreamStore.
func (s Streams) CountDown(ctx context.Context, q row.Querier, topic string, after, through, most int64) (c row.CountedDown, err error) {
	var lowest int64
	_, err = pgsql.One(ctx, q, s.SQL(sqlCountDown), []any{pgsql.Replan, topic, after, through, most}, &c.N, &lowest)
	switch {
	case c.N < most:
		c.Reached = after
	case c.N == 0:
		c.Reached = through
	default:
		c.Reached = lowest - 1
	}
	return c, err
}

const sqlTimesAfter = `SELECT (SELECT e.created_at FROM honker.event e
  WHERE (e.topic, e."offset") > (u.topic COLLATE "C", u.after) AND (e.topic, e."offset") <= (u.topic COLLATE "C", 9223372036854775807) ORDER BY e.topic, e."offset" LIMIT 1)
FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY u(topic, after, n) ORDER BY u.n`

// TimesAfter implements engine.StreamStore.
func (s Streams) TimesAfter(ctx context.Context, q row.Querier, places []row.OffsetIn) ([]time.Time, error) {
	topics, offsets := make([]string, len(places)), make([]int64, len(places))
	for i, p := range places {
		topics[i], offsets[i] = p.Topic, p.Offset
	}
	all := make([]time.Time, 0, len(places))
	err := pgsql.Each(ctx, q, s.SQL(sqlTimesAfter), func(r *sql.Rows) error {
		var at sql.NullTime
		err := r.Scan(&at)
		all = append(all, pgsql.Instant(at))
		return err
	}, pgsql.Replan, topics, offsets)
	return all, err
}

const sqlFollowing = `SELECT "offset", created_at FROM honker.event WHERE "offset" > $1 ORDER BY "offset" LIMIT 1`

// Following implements engine.StreamStore.
func (s Streams) Following(ctx context.Context, q row.Querier, after int64) (offset int64, at time.Time, found bool, err error) {
	var created sql.NullTime
	found, err = pgsql.One(ctx, q, s.SQL(sqlFollowing), []any{pgsql.Replan, after}, &offset, &created)
	return offset, pgsql.Instant(created), found, err
}

// second returns the beginning of t's second.
func second(t time.Time) time.Time { return time.Unix(t.Unix(), 0) }
