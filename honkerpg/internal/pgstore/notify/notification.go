// Package notify contains the statements for messages of channels.
package notify

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Notifications contains the statements for the table message. Messages get their ids as events get their offsets.
type Notifications struct{ pgsql.Schema }

const (
	sqlNotify = `SELECT honker.notify_($1, $2, $3)`

	sqlNotifyLater = `INSERT INTO honker.pending (xid, created_at, message, topic, payload) VALUES (pg_current_xact_id(), $3, true, $1, $2)`
)

// Insert implements engine.NotificationStore. It waits in an op, and takes no lock in an application's transaction.
func (s Notifications) Insert(ctx context.Context, q row.Querier, channel, payload string, now time.Time) (int64, error) {
	args := []any{channel, payload, pgsql.Stamp(now)}
	if _, ok := q.(pgsql.Session); !ok {
		_, err := q.ExecContext(ctx, s.SQL(sqlNotifyLater), args...)
		return 0, err
	}
	var id sql.NullInt64
	_, err := pgsql.One(ctx, q, s.SQL(sqlNotify), args, &id)
	if err == nil && !id.Valid {
		err = row.ErrNotInserted
	}
	return id.Int64, err
}

// pageBytes limits the payloads of a page.
const pageBytes = 1 << 20

// sqlSince reads message_channel for each channel, and the sizes and payloads of the chosen messages only. The server
// limits the size of the page, because a client that stops early must still receive all rows.
const sqlSince = `SELECT id, channel, payload, created_at FROM (
  SELECT m.*, sum(octet_length(m.payload)) OVER (ORDER BY m.id ROWS UNBOUNDED PRECEDING) - octet_length(m.payload) AS before
  FROM honker.message m WHERE m.id = ANY (ARRAY(
    SELECT c.id FROM unnest($1::text[]) k CROSS JOIN LATERAL (
      SELECT n.id FROM honker.message n WHERE (n.channel, n.id) > (k, $2::bigint) AND (n.channel, n.id) <= (k, $4::bigint)
      ORDER BY n.channel, n.id LIMIT $3) c
    ORDER BY c.id LIMIT $3))
) measured WHERE before < $5 ORDER BY id`

// Since implements engine.NotificationStore.
func (s Notifications) Since(ctx context.Context, q row.Querier, channels []string, after int64, limit int) (all []row.Notification, err error) {
	err = pgsql.Each(ctx, q, s.SQL(sqlSince), func(r *sql.Rows) error {
		var n row.Notification
		err := r.Scan(&n.ID, &n.Channel, &n.Payload, &n.CreatedAt)
		n.CreatedAt = pgsql.Shown(n.CreatedAt)
		all = append(all, n)
		return err
	}, pgsql.Replan, pgsql.List(channels), after, limit, int64(row.Unbounded), pageBytes)
	return all, err
}

// messageHead is the head of the messages.
const messageHead = `greatest((SELECT max(id) FROM honker.message), (SELECT max(through) FROM honker.deleted WHERE log = 1), 0)`

const (
	sqlHead = `SELECT ` + messageHead

	sqlChannelsSince = `SELECT ` + messageHead + `, NULL, NULL UNION ALL SELECT * FROM
  (SELECT id, channel, '' FROM honker.message WHERE id > $1 ORDER BY id LIMIT $2) added`
)

// Head implements engine.NotificationStore.
func (s Notifications) Head(ctx context.Context, q row.Querier) (id int64, err error) {
	_, err = pgsql.One(ctx, q, s.SQL(sqlHead), nil, &id)
	return id, err
}

// ChannelsSince implements the Since of wake.Log for messages.
func (s Notifications) ChannelsSince(ctx context.Context, q row.Querier, after int64, limit int) (channels row.Added, n int, last int64, err error) {
	return pgsql.AddedSince(ctx, q, s.SQL(sqlChannelsSince), after, limit)
}

// Ids have gaps and do not tell a message's rank, so sqlSurplus steps over the newest rows.
const (
	sqlOld     = `SELECT id FROM honker.message WHERE created_at < $1 LIMIT $2`
	sqlSurplus = `SELECT id FROM honker.message WHERE id <= (SELECT id FROM honker.message ORDER BY id DESC LIMIT 1 OFFSET $1) ORDER BY id LIMIT $2`

	sqlDrop = `WITH gone AS (DELETE FROM honker.message WHERE id = ANY ($1) AND created_at < $2 RETURNING id),
noted AS (
  INSERT INTO honker.deleted AS d (log, topic, through) SELECT 1, '', max(id) FROM gone HAVING count(*) > 0
  ON CONFLICT (log, topic) DO UPDATE SET through = excluded.through WHERE excluded.through > d.through
)
SELECT count(*) FROM gone`
)

// Old returns the sweep of the messages sent before a time.
func (s Notifications) Old() engine.Sweep {
	return engine.Sweep{
		Find: func(ctx context.Context, q row.Querier, _ row.Part, at time.Time, limit int) ([]int64, error) {
			return pgsql.IDs(ctx, q, s.SQL(sqlOld), pgsql.Stamp(at), limit)
		},
		Take: func(ctx context.Context, q row.Querier, _ row.Part, ids []int64, at time.Time, limit int) (row.Swept, error) {
			return s.drop(ctx, q, ids, pgsql.Stamp(at), limit)
		},
	}
}

// Surplus returns the sweep of all messages but the newest keep, counted across all channels. Take needs no second
// check: a surplus message stays surplus, and ids are never reused.
func (s Notifications) Surplus(keep int) engine.Sweep {
	return engine.Sweep{
		Find: func(ctx context.Context, q row.Querier, _ row.Part, _ time.Time, limit int) ([]int64, error) {
			return pgsql.IDs(ctx, q, s.SQL(sqlSurplus), keep, limit)
		},
		Take: func(ctx context.Context, q row.Querier, _ row.Part, ids []int64, _ time.Time, limit int) (row.Swept, error) {
			return s.drop(ctx, q, ids, pgsql.Stamp(endOfTime), limit)
		},
	}
}

// endOfTime is after the creation of every message.
var endOfTime = time.Unix(1<<40, 0)

// drop deletes those of the messages that were sent before a time, and returns how many they were.
func (s Notifications) drop(ctx context.Context, q row.Querier, ids []int64, before time.Time, limit int) (done row.Swept, err error) {
	some := ids[:min(len(ids), limit)]
	done.More = len(some) < len(ids)
	_, err = pgsql.One(ctx, q, s.SQL(sqlDrop), []any{some, before}, &done.N)
	return done, err
}
