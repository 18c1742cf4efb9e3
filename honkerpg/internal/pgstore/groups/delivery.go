package groups

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

// A lease is valid while the row has its token and the deadline has not passed. The sum keeps the server from the
// indexes of states, so it uses the primary key.
const whereHolding = ` WHERE group_id = $1 AND "offset" = $2 AND token = $3 AND state + 0 = 0 AND deadline >= $4`

const (
	sqlAck = `SELECT honker.group_ack($1, $2, $3, $4)`

	sqlNack = `UPDATE honker.delivery SET token = nextval('honker.grp_token'), last_error = nullif($7, ''),
  state = CASE WHEN $6::bigint > 0 AND attempts >= $6 THEN 2 ELSE 1 END,
  deadline = CASE WHEN $6 > 0 AND attempts >= $6 THEN $4 ELSE $5::timestamptz END` + whereHolding + ` RETURNING state = 2`

	sqlExtendDelivery = `UPDATE honker.delivery SET deadline = $5` + whereHolding
)

// Ack implements engine.GroupStore.
func (s Groups) Ack(ctx context.Context, q row.Querier, held []row.Holding, now time.Time) (n int, err error) {
	if len(held) == 0 {
		return 0, nil
	}
	events, tokens := make([]int64, len(held)), make([]int64, len(held))
	for i, h := range held {
		events[i], tokens[i] = h.Offset, h.Token
	}
	_, err = pgsql.One(ctx, q, s.SQL(sqlAck), []any{held[0].Group, events, tokens, pgsql.Stamp(now)}, &n)
	return n, err
}

// Settle implements engine.GroupStore. It takes a single statement and no lock of the group.
func (s Groups) Settle(ctx context.Context, q row.Querier, t row.GroupSettlement, now time.Time) (out row.GroupSettled, err error) {
	if !t.Back {
		n, err := s.Ack(ctx, q, []row.Holding{t.Holding}, now)
		return row.GroupSettled{Held: n > 0}, err
	}
	args := []any{pgsql.Replan, t.Group, t.Offset, t.Token, pgsql.Stamp(now), pgsql.StampUp(t.Ready), t.MaxAttempts, t.Cause}
	out.Held, err = pgsql.One(ctx, q, s.SQL(sqlNack), args, &out.Died)
	return out, err
}

// Extend implements engine.GroupStore.
func (s Groups) Extend(ctx context.Context, q row.Querier, h row.Holding, expires, now time.Time) (bool, error) {
	n, err := pgsql.Affected(ctx, q, s.SQL(sqlExtendDelivery), pgsql.Replan, h.Group, h.Offset, h.Token, pgsql.Stamp(now), pgsql.StampUp(expires))
	return n > 0, err
}

// All events get the same token, so that they keep their order.
const sqlRelease = `UPDATE honker.delivery SET state = 1, token = (SELECT nextval('honker.grp_token')), deadline = $4, attempts = attempts - 1
WHERE group_id = $1 AND "offset" = ANY ($2) AND token = $3 AND state + 0 = 0`

// Release implements engine.GroupStore.
func (s Groups) Release(ctx context.Context, q row.Querier, group, token int64, events []int64, now time.Time) error {
	_, err := q.ExecContext(ctx, s.SQL(sqlRelease), pgsql.Replan, group, pgsql.List(events), token, pgsql.Stamp(now))
	return err
}

// The server limits the size of the page, because a client that stops early must still receive all rows.
const sqlDeadDeliveries = `SELECT "offset", topic, key, payload, created_at, attempts, last_error, deadline FROM (
  SELECT d."offset", e.topic, coalesce(e.key, '') AS key, e.payload, e.created_at, d.attempts, coalesce(d.last_error, '') AS last_error, d.deadline,
    coalesce(sum(octet_length(e.payload) + coalesce(octet_length(d.last_error), 0))
      OVER (ORDER BY d."offset" ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
  FROM (SELECT * FROM honker.delivery x WHERE x.group_id = $1 AND x.state = 2 AND x."offset" > $2
    AND EXISTS (SELECT FROM honker.event y WHERE y."offset" = x."offset") ORDER BY x."offset" LIMIT $3) d
  JOIN honker.event e ON e."offset" = d."offset") page
WHERE before < $4 ORDER BY "offset"`

// Dead implements engine.GroupStore.
func (s Groups) Dead(ctx context.Context, q row.Querier, group, after int64, limit int) (all []row.DeadDelivery, err error) {
	err = pgsql.Each(ctx, q, s.SQL(sqlDeadDeliveries), func(r *sql.Rows) error {
		var d row.DeadDelivery
		var created, died sql.NullTime
		err := r.Scan(&d.Offset, &d.Topic, &d.Key, &d.Payload, &created, &d.Attempts, &d.LastError, &died)
		d.CreatedAt, d.DiedAt = pgsql.Instant(created), pgsql.Instant(died)
		all = append(all, d)
		return err
	}, group, after, limit, pageBytes)
	return all, err
}

const (
	sqlRevive = `UPDATE honker.delivery SET state = 1, token = nextval('honker.grp_token'), deadline = $3, attempts = 0
WHERE group_id = $1 AND "offset" = $2 AND state = 2`

	sqlDropDead = `DELETE FROM honker.delivery WHERE group_id = $1 AND "offset" = $2 AND state = 2`
)

// Revive implements engine.GroupStore.
func (s Groups) Revive(ctx context.Context, q row.Querier, group, offset int64, now time.Time) (bool, error) {
	n, err := pgsql.Affected(ctx, q, s.SQL(sqlRevive), group, offset, pgsql.Stamp(now))
	return n > 0, err
}

// Discard implements engine.GroupStore.
func (s Groups) Discard(ctx context.Context, q row.Querier, group, offset int64) (bool, error) {
	n, err := pgsql.Affected(ctx, q, s.SQL(sqlDropDead), group, offset)
	return n > 0, err
}
