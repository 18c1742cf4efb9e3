package lists

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

const (
	sqlCancelMany = `SELECT id, queue, waited FROM honker.cancel_many($1, $2, $3, $4)`
	sqlBury       = `SELECT id, queue, attempts FROM honker.bury_many($1, $2, $3)`
	sqlDiscard    = `SELECT id, queue, waited FROM honker.discard($1, $2, $3)`
	sqlMark       = `INSERT INTO honker.side (job_id, requeue) SELECT unnest($1::bigint[]), $2 ON CONFLICT (job_id) DO UPDATE SET requeue = excluded.requeue`
	sqlRequeue    = `SELECT queue, done, key, taken_by, live FROM honker.requeue($1, $2, $3, $4, $5, $6)`
	sqlWaiters    = `SELECT honker.waiters($1)`

	sqlEdgesBefore = `(SELECT CASE WHEN parent > 0 THEN parent ELSE -batch END, true, false FROM honker.edge WHERE waiter = $1 AND batch <> -1 AND state = 2 LIMIT $2)
UNION ALL (SELECT CASE WHEN parent > 0 THEN parent ELSE -batch END, false, false FROM honker.edge WHERE waiter = $1 AND batch <> -1 AND state = 0 LIMIT $2)
UNION ALL (SELECT CASE WHEN parent > 0 THEN parent ELSE -batch END, false, true FROM honker.edge WHERE waiter = $1 AND batch <> -1 AND state = 1 LIMIT $2)`
	sqlEdgesAfter      = `SELECT waiter, state = 2, state = 1 FROM honker.edge WHERE parent = $1 AND parent <> 0 AND batch <> -1 ORDER BY waiter LIMIT $2`
	sqlEdgesAfterBatch = `SELECT waiter, state = 2, state = 1 FROM honker.edge WHERE batch = $1 AND batch <> 0 AND parent = 0 ORDER BY waiter LIMIT $2`

	sqlRunNow = `UPDATE honker.job SET run_at = $2 WHERE id IN (
  SELECT id FROM honker.job WHERE id = ANY ($1) AND state = 0 AND run_at > $2 ORDER BY id FOR UPDATE) RETURNING id, queue`

	// sqlSame is a single statement, because a job may move to another table between two statements.
	sqlSame = `SELECT 'live' FROM honker.job WHERE id = $1 AND queue = $2 AND created_at = $3 AND payload = $4
UNION ALL SELECT 'dead' FROM honker.dead WHERE id = $1 AND queue = $2 AND created_at = $3 AND payload = $4
UNION ALL SELECT 'done' FROM honker.done WHERE id = $1 AND queue = $2 AND created_at = $3 AND payload = $4`
)

// waitersAs are the values by which honker.cancel_many and honker.discard know how to treat waiting jobs.
var waitersAs = map[row.Waiters]int{row.ReleaseWaiters: 0, row.DropWaiters: 1, row.KeepWaiters: 2}

// Bury implements engine.OperatorStore.
func (s Operators) Bury(ctx context.Context, q row.Querier, ids []int64, now time.Time) (dead []row.Death, err error) {
	err = pgsql.Each(ctx, q, s.SQL(sqlBury), func(r *sql.Rows) error {
		d := row.Death{Reason: row.ReasonBuried}
		err := r.Scan(&d.ID, &d.Queue, &d.Attempts)
		dead = append(dead, d)
		return err
	}, pgsql.List(ids), row.ReasonBuried, pgsql.Stamp(now))
	if err == nil && len(dead) > 0 {
		pgsql.Leave(q, pgsql.Resolve)
	}
	return dead, err
}

// CancelMany implements engine.OperatorStore.
func (s Operators) CancelMany(ctx context.Context, q row.Querier, c row.CancelJobs, now time.Time) (row.Removed, error) {
	return s.remove(ctx, q, sqlCancelMany, pgsql.List(c.IDs), c.Running, waitersAs[c.Waiters], pgsql.Stamp(now))
}

// Discard implements engine.OperatorStore. No running job waits for a dead job, so the time of the removed waiters does not matter.
func (s Operators) Discard(ctx context.Context, q row.Querier, ids []int64, w row.Waiters) (row.Removed, error) {
	return s.remove(ctx, q, sqlDiscard, pgsql.List(ids), waitersAs[w], pgsql.Stamp(time.Time{}))
}

// remove runs a query that removes jobs.
func (s Operators) remove(ctx context.Context, q row.Querier, query string, args ...any) (out row.Removed, err error) {
	err = pgsql.Each(ctx, q, s.SQL(query), func(r *sql.Rows) error {
		var c row.Change
		var waited bool
		err := r.Scan(&c.ID, &c.Queue, &waited)
		if waited {
			out.Waiters = append(out.Waiters, c)
		} else {
			out.Jobs = append(out.Jobs, c)
		}
		return err
	}, args...)
	if err == nil && len(out.Jobs)+len(out.Waiters) > 0 {
		pgsql.Leave(q, pgsql.Resolve)
	}
	return out, err
}

// RunNow implements engine.OperatorStore.
func (s Operators) RunNow(ctx context.Context, q row.Querier, ids []int64, now time.Time) (all []row.Change, err error) {
	err = pgsql.Each(ctx, q, s.SQL(sqlRunNow), func(r *sql.Rows) error {
		var c row.Change
		err := r.Scan(&c.ID, &c.Queue)
		all = append(all, c)
		return err
	}, pgsql.List(ids), pgsql.Stamp(now))
	return all, err
}

// Requeue implements engine.OperatorStore.
func (s Operators) Requeue(ctx context.Context, q row.Querier, r row.Requeue, now time.Time) (out row.Requeued, err error) {
	runAt := pgsql.Stamp(now)
	if !r.RunAt.IsZero() {
		runAt = pgsql.StampUp(r.RunAt)
	}
	_, err = pgsql.One(ctx, q, s.SQL(sqlRequeue), []any{r.ID, sql.NullString{String: r.Queue, Valid: r.Queue != ""}, runAt, r.Attempts, r.Payload, pgsql.Stamp(now)},
		&out.Queue, &out.Done, &out.Key, &out.TakenBy, &out.Live)
	switch {
	case pgsql.Dropped(err):
		err = fmt.Errorf("%w: %w", row.ErrNotInserted, err)
	case err == nil && out.Done:
		pgsql.Leave(q, pgsql.Resolve)
	}
	return out, err
}

// MarkRequeued implements engine.OperatorStore.
func (s Operators) MarkRequeued(ctx context.Context, q row.Querier, ids []int64, entry int64) error {
	_, err := q.ExecContext(ctx, s.SQL(sqlMark), pgsql.List(ids), entry)
	return err
}

// Waiters implements engine.OperatorStore.
func (s Operators) Waiters(ctx context.Context, q row.Querier, nodes []int64) ([]int64, error) {
	return pgsql.IDs(ctx, q, s.SQL(sqlWaiters), pgsql.List(nodes))
}

// Edges implements engine.OperatorStore. Edges to the holder of a unique key have the batch -1 and are omitted.
func (s Operators) Edges(ctx context.Context, q row.Querier, node int64, limit int) (before, after []row.Neighbor, err error) {
	if before, err = s.neighbors(ctx, q, sqlEdgesBefore, node, limit); err != nil {
		return nil, nil, err
	}
	query := sqlEdgesAfter
	if node < 0 {
		query, node = sqlEdgesAfterBatch, -node
	}
	after, err = s.neighbors(ctx, q, query, node, limit)
	return before, after, err
}

func (s Operators) neighbors(ctx context.Context, q row.Querier, query string, node int64, limit int) (all []row.Neighbor, err error) {
	err = pgsql.Each(ctx, q, s.SQL(query), func(r *sql.Rows) error {
		var n row.Neighbor
		err := r.Scan(&n.Node, &n.Dead, &n.Done)
		all = append(all, n)
		return err
	}, node, limit)
	return all[:min(len(all), limit)], err
}

// Same implements engine.OperatorStore.
func (s Operators) Same(ctx context.Context, q row.Querier, id int64, queue string, created time.Time, payload string) (where string, err error) {
	_, err = pgsql.One(ctx, q, s.SQL(sqlSame), []any{id, queue, pgsql.Stamp(created), payload}, &where)
	return where, err
}
