package jobs

import (
	"context"
	"database/sql"
	"math"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Batches contains the statements for the table batch. A batch's members and waiters are edges (see links.sql).
type Batches struct{ pgsql.Schema }

const (
	sqlInsertBatch = `INSERT INTO honker.batch (name, headers, created_at) VALUES ($1, $2, $3) RETURNING id`

	// sqlSealBatch waits for the transactions that are adding members.
	sqlSealBatch = `WITH sealed AS (UPDATE honker.batch SET open = false WHERE id = $1 RETURNING id)
INSERT INTO honker.token (batch) SELECT id FROM sealed`
)

// Insert implements engine.BatchStore.
func (s Batches) Insert(ctx context.Context, q row.Querier, name, headers string, now time.Time) (id int64, err error) {
	found, err := pgsql.One(ctx, q, s.SQL(sqlInsertBatch), []any{text(name), text(headers), pgsql.Stamp(now)}, &id)
	if err == nil && !found {
		err = row.ErrNotInserted
	}
	return id, err
}

// Seal implements engine.BatchStore.
func (s Batches) Seal(ctx context.Context, q row.Querier, id int64) (bool, error) {
	n, err := pgsql.Affected(ctx, q, s.SQL(sqlSealBatch), id)
	if err == nil && n > 0 {
		err = s.LeaveTokens(ctx, q)
	}
	return n > 0, err
}

const (
	sqlLiveMembers = `SELECT id FROM honker.job WHERE batch = $1 LIMIT $2`
	sqlDeadMembers = `SELECT id FROM honker.dead WHERE batch = $1 LIMIT $2`
)

// Members implements engine.BatchStore.
func (s Batches) Members(ctx context.Context, q row.Querier, id int64, dead bool, limit int) ([]int64, error) {
	query := sqlLiveMembers
	if dead {
		query = sqlDeadMembers
	}
	return pgsql.IDs(ctx, q, s.SQL(query), id, limit)
}

const sqlWaiters = `SELECT honker.waiters($1)`

// Cancel implements engine.BatchStore. It removes the waiters first: the last member's end would let them go.
func (s Batches) Cancel(ctx context.Context, q row.Querier, id int64, limit int, now time.Time) (gone []row.Change, more, found bool, err error) {
	if found, err = s.Seal(ctx, q, id); err != nil || !found {
		return nil, false, found, err
	}
	members, err := s.Members(ctx, q, id, false, limit)
	if err != nil {
		return nil, false, true, err
	}
	waiters, err := pgsql.IDs(ctx, q, s.SQL(sqlWaiters), append([]int64{-id}, members...))
	if err != nil {
		return nil, false, true, err
	}
	gone, err = Jobs(s).cancel(ctx, q, "", append(waiters, members...), now)
	return gone, len(gone) > 0, true, err
}

// batchesWhere begins a query for batches. The members of a batch that is not done are counted; done ones keep the number.
const batchesWhere = `SELECT b.id, b.name, b.headers, CASE WHEN b.done_at IS NULL THEN (SELECT count(*) FROM honker.edge WHERE waiter = -b.id) ELSE b.total END,
  b.open, b.created_at, b.done_at, (SELECT count(*) FROM honker.job WHERE batch = b.id),
  (SELECT count(*) FROM honker.job WHERE batch = b.id AND state = 1 AND lease_until >= $1), (SELECT count(*) FROM honker.dead WHERE batch = b.id)
FROM honker.batch b WHERE `

const (
	sqlNewestBatches = batchesWhere + `b.id < $2 ORDER BY b.id DESC LIMIT $3`
	sqlOldestBatches = batchesWhere + `b.id > $2 ORDER BY b.id LIMIT $3`
	sqlOneBatch      = batchesWhere + `b.id = $2 LIMIT $3`

	sqlNextOfBatches = `SELECT u.id, w.waiter FROM unnest($1::bigint[]) u (id) CROSS JOIN LATERAL (
  SELECT e.waiter FROM honker.edge e WHERE e.batch = u.id AND e.batch <> 0 ORDER BY e.waiter LIMIT 100) w ORDER BY w.waiter`
)

// Get implements engine.BatchStore.
func (s Batches) Get(ctx context.Context, q row.Querier, id int64, now time.Time) (b row.Batch, found bool, err error) {
	all, err := s.list(ctx, q, sqlOneBatch, id, 1, now)
	if err != nil || len(all) == 0 {
		return b, false, err
	}
	return all[0], true, nil
}

// List implements engine.BatchStore.
func (s Batches) List(ctx context.Context, q row.Querier, newest bool, after int64, limit int, now time.Time) ([]row.Batch, error) {
	switch {
	case !newest:
		return s.list(ctx, q, sqlOldestBatches, after, limit, now)
	case after == 0:
		after = math.MaxInt64
	}
	return s.list(ctx, q, sqlNewestBatches, after, limit, now)
}

func (s Batches) list(ctx context.Context, q row.Querier, query string, id int64, limit int, now time.Time) (all []row.Batch, err error) {
	at := make(map[int64]int)
	var ids []int64
	err = pgsql.Each(ctx, q, s.SQL(query), func(r *sql.Rows) error {
		var b row.Batch
		var name, headers sql.NullString
		var created, done sql.NullTime
		err := r.Scan(&b.ID, &name, &headers, &b.Total, &b.Open, &created, &done, &b.Live, &b.Running, &b.Dead)
		b.Name, b.Headers, b.Created, b.Done = name.String, headers.String, pgsql.Instant(created), pgsql.Instant(done)
		b.Next = []int64{}
		at[b.ID] = len(all)
		all, ids = append(all, b), append(ids, b.ID)
		return err
	}, pgsql.Stamp(now), id, limit)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	err = pgsql.Each(ctx, q, s.SQL(sqlNextOfBatches), func(r *sql.Rows) error {
		var batch, waiter int64
		err := r.Scan(&batch, &waiter)
		b := &all[at[batch]]
		b.Next = append(b.Next, waiter)
		return err
	}, ids)
	return all, err
}

const (
	whereBatchIsOver = ` b.done_at < $1 AND NOT EXISTS (SELECT FROM honker.edge e WHERE e.batch = b.id AND e.batch <> 0)`

	sqlOldBatches = `SELECT b.id FROM honker.batch b WHERE` + whereBatchIsOver + ` LIMIT $2`
	// sqlDropBatches skips a batch that is getting a waiter or a member.
	sqlDropBatches = `WITH over AS (DELETE FROM honker.batch b WHERE b.id IN (
    SELECT l.id FROM honker.batch l WHERE l.id = ANY ($2) FOR UPDATE SKIP LOCKED) AND` + whereBatchIsOver + ` RETURNING b.id),
  members AS (DELETE FROM honker.edge m USING over WHERE m.waiter = -over.id)
SELECT id FROM over`
)

// Sweep returns the sweep of batches that were done before a time and that no job waits for.
func (s Batches) Sweep() engine.Sweep {
	return engine.Sweep{
		Find: func(ctx context.Context, q row.Querier, _ row.Part, at time.Time, limit int) ([]int64, error) {
			return pgsql.IDs(ctx, q, s.SQL(sqlOldBatches), pgsql.Stamp(at), limit)
		},
		Take: func(ctx context.Context, q row.Querier, _ row.Part, ids []int64, at time.Time, limit int) (row.Swept, error) {
			some := ids[:min(len(ids), limit)]
			gone, err := pgsql.IDs(ctx, q, s.SQL(sqlDropBatches), pgsql.Stamp(at), pgsql.List(some))
			return row.Swept{N: len(gone), More: len(some) < len(ids)}, err
		},
	}
}
