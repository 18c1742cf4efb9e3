package inboxes

import (
	"context"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Inboxes contains the statements for the table received.
type Inboxes struct{ pgsql.Schema }

const (
	sqlReceive = `INSERT INTO honker.received (source, id, received_at, expires_at) VALUES ($1, $2, $3, $4)
ON CONFLICT (source, id) DO NOTHING`

	sqlReceived = `SELECT true FROM honker.received WHERE source = $1 AND id = $2`
)

// Receive implements engine.InboxStore. A receipt of the same message in an open transaction blocks it until that
// transaction ends.
func (s Inboxes) Receive(ctx context.Context, q row.Querier, source, id string, now, expires time.Time) (first bool, err error) {
	n, err := pgsql.Affected(ctx, q, s.SQL(sqlReceive), source, id, pgsql.Stamp(now), pgsql.StampUp(expires))
	if err != nil || n > 0 {
		return n > 0, err
	}
	// One of the application's triggers may have dropped the insert.
	there := false
	if _, err := pgsql.One(ctx, q, s.SQL(sqlReceived), []any{source, id}, &there); err != nil || there {
		return false, err
	}
	return false, row.ErrNotInserted
}

const (
	sqlReceivedOver = `SELECT 1::bigint WHERE EXISTS (SELECT FROM honker.received WHERE expires_at <= $1)`

	sqlDropReceived = `DELETE FROM honker.received WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM honker.received WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED))`
)

// Sweep returns the sweep of the messages past their retention. It finds the id 1 if there are any.
func (s Inboxes) Sweep() engine.Sweep {
	return engine.Sweep{
		Find: func(ctx context.Context, q row.Querier, _ row.Part, at time.Time, _ int) ([]int64, error) {
			return pgsql.IDs(ctx, q, s.SQL(sqlReceivedOver), pgsql.Stamp(at))
		},
		Take: func(ctx context.Context, q row.Querier, _ row.Part, _ []int64, at time.Time, limit int) (row.Swept, error) {
			n, err := pgsql.Affected(ctx, q, s.SQL(sqlDropReceived), pgsql.Stamp(at), limit)
			return row.Swept{N: n, More: n == limit}, err
		},
	}
}
