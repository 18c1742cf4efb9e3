package streams

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Retentions contains the statements for the table retention, those that find and delete events beyond the retention,
// and those for the retentions of queues, which are columns of the table queue.
type Retentions struct{ pgsql.Schema }

const (
	sqlSetRetention = `INSERT INTO honker.retention (topic, max_count, max_age)
VALUES ($1, nullif($2::bigint, 0), nullif($3::bigint, 0) * interval '1 second')
ON CONFLICT (topic) DO UPDATE SET max_count = excluded.max_count, max_age = excluded.max_age`

	sqlDropRetention = `DELETE FROM honker.retention WHERE topic = $1`
)

// Set implements engine.RetentionStore.
func (s Retentions) Set(ctx context.Context, q row.Querier, r row.Retention) error {
	if !r.Bounded() {
		_, err := q.ExecContext(ctx, s.SQL(sqlDropRetention), r.Topic)
		return err
	}
	_, err := q.ExecContext(ctx, s.SQL(sqlSetRetention), r.Topic, r.MaxCount, engine.Seconds(r.MaxAge))
	return err
}

const (
	retention       = `SELECT topic, coalesce(max_count, 0), coalesce(extract(epoch FROM max_age)::bigint, 0) FROM honker.retention `
	sqlGetRetention = retention + `WHERE topic = $1`
	sqlRetained     = retention + `ORDER BY topic`
)

// List implements engine.RetentionStore.
func (s Retentions) List(ctx context.Context, q row.Querier, topic string) ([]row.Retention, error) {
	if topic == "" {
		return s.list(ctx, q, sqlRetained)
	}
	return s.list(ctx, q, sqlGetRetention, topic)
}

func (s Retentions) list(ctx context.Context, q row.Querier, query string, args ...any) (all []row.Retention, err error) {
	err = pgsql.Each(ctx, q, s.SQL(query), func(rs *sql.Rows) error {
		var r row.Retention
		var age int64
		err := rs.Scan(&r.Topic, &r.MaxCount, &age)
		r.MaxAge = row.Span(age)
		all = append(all, r)
		return err
	}, args...)
	return all, err
}

// These statements walk event_topic from the end of the topic.
const (
	topicFromEnd = `SELECT "offset" FROM honker.event WHERE (topic, "offset") > ($1, 0) AND (topic, "offset") < ($1, $2)
ORDER BY topic DESC, "offset" DESC `
	sqlRank   = topicFromEnd + `LIMIT 1 OFFSET $3`
	sqlBefore = topicFromEnd + `LIMIT 1`
)

// Cutoff implements engine.RetentionStore.
func (s Retentions) Cutoff(ctx context.Context, q row.Querier, topic string, now time.Time) (cutoff int64, err error) {
	all, err := s.List(ctx, q, topic)
	if err != nil || len(all) == 0 {
		return 0, err
	}
	r := all[0]
	if r.MaxCount > 0 {
		if _, err := pgsql.One(ctx, q, s.SQL(sqlRank), []any{pgsql.Replan, topic, int64(row.Unbounded), r.MaxCount}, &cutoff); err != nil {
			return 0, err
		}
	}
	if r.MaxAge == 0 {
		return cutoff, nil
	}
	young, err := Streams(s).firstSince(ctx, q, topic, second(now).Add(-r.MaxAge))
	if err != nil {
		return 0, err
	}
	if young == 0 {
		young = row.Unbounded // all events are too old
	}
	var old int64
	_, err = pgsql.One(ctx, q, s.SQL(sqlBefore), []any{pgsql.Replan, topic, young}, &old)
	return max(cutoff, old), err
}

const (
	sqlBeginCompaction = `SELECT pg_try_advisory_xact_lock(1751085688, 'honker.retention'::regclass::oid::int)`

	// The readers of a topic, and of the patterns that match it. A group has read the events below the lowest that it
	// has not acked.
	readers = `SELECT 'consumer' AS kind, c.name, c.topic, c."offset" FROM honker.consumer c
  WHERE c.topic = $1 OR right(c.topic, 1) = '*' AND starts_with($1, left(c.topic, -1))
  UNION ALL
  SELECT 'group', g.name, g.topic, least(
    (SELECT t.cursor FROM honker.grp_turn t WHERE t.group_id = g.id ORDER BY t.group_id DESC, t.token DESC LIMIT 1),
    (SELECT d."offset" - 1 FROM honker.delivery d WHERE d.group_id = g.id AND d.state < 2 ORDER BY d.group_id, d."offset" LIMIT 1))
  FROM honker.grp g WHERE g.topic = $1 OR right(g.topic, 1) = '*' AND starts_with($1, left(g.topic, -1))`

	// All parts of the statement see the same moment, so an event is either kept for a reader or seen by all.
	sqlCompact = `WITH pin AS (SELECT * FROM (` + readers + `) r ORDER BY "offset", kind, topic, name LIMIT 1),
gone AS (
  DELETE FROM honker.event WHERE "offset" = ANY (ARRAY(
    SELECT e."offset" FROM honker.event e
    WHERE (e.topic, e."offset") > ($1, $2) AND (e.topic, e."offset") <= ($1, least($3, (SELECT p."offset" FROM pin p)))
      AND NOT EXISTS (SELECT FROM honker.delivery d WHERE d."offset" = e."offset" AND d.state = 2)
    ORDER BY e.topic, e."offset" LIMIT $4))
  RETURNING "offset"
),
noted AS (
  INSERT INTO honker.deleted AS d (log, topic, through) SELECT 0, $1, max(g."offset") FROM gone g HAVING count(*) > 0
  ON CONFLICT (log, topic) DO UPDATE SET through = excluded.through WHERE excluded.through > d.through
)
SELECT g.n, coalesce(g.last, 0), p.kind, p.name, p.topic, p."offset"
FROM (SELECT count(*) AS n, max("offset") AS last FROM gone) g LEFT JOIN pin p ON p."offset" < $3`
)

const sqlPin = `SELECT kind, name, topic, "offset" FROM (` + readers + `) r ORDER BY "offset", kind, topic, name LIMIT 1`

// Pin implements engine.RetentionStore.
func (s Retentions) Pin(ctx context.Context, q row.Querier, topic string) (p row.Pin, found bool, err error) {
	found, err = pgsql.One(ctx, q, s.SQL(sqlPin), []any{pgsql.Replan, topic}, &p.Kind, &p.Name, &p.Topic, &p.Offset)
	return p, found, err
}

// Compact implements engine.RetentionStore. It deletes nothing while another transaction adds a reader, moves a reader
// back, or compacts.
func (s Retentions) Compact(ctx context.Context, q row.Querier, c row.Compaction) (done row.Compacted, err error) {
	done.Cutoff = c.Policy
	alone := false
	if _, err := pgsql.One(ctx, q, s.SQL(sqlBeginCompaction), nil, &alone); err != nil || !alone {
		return done, err
	}
	var kind, name, topic sql.NullString
	var offset sql.NullInt64
	_, err = pgsql.One(ctx, q, s.SQL(sqlCompact), []any{pgsql.Replan, c.Topic, c.After, c.Policy, c.Limit},
		&done.Deleted, &done.Last, &kind, &name, &topic, &offset)
	if offset.Valid {
		done.Cutoff, done.Pinned = offset.Int64, true
		done.Pin = row.Pin{Kind: kind.String, Name: name.String, Topic: topic.String, Offset: offset.Int64}
	}
	return done, err
}
