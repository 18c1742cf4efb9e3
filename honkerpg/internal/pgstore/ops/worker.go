// Package ops contains the statements for operators: workers, traffic and the audit log.
package ops

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

// Workers contains the statements for the table worker.
type Workers struct{ pgsql.Schema }

const sqlPutWorkers = `INSERT INTO honker.worker AS w (worker, queue, host, boot, pid_space, pid, pid_start, version, slots, since, seen_at)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::text[], $9::bigint[],
  $10::timestamptz[], $11::timestamptz[]) u (worker, queue) ORDER BY u.worker, u.queue
ON CONFLICT (worker, queue) DO UPDATE SET host = excluded.host, boot = excluded.boot, pid_space = excluded.pid_space,
  pid = excluded.pid, pid_start = excluded.pid_start, version = excluded.version, slots = excluded.slots,
  since = excluded.since, seen_at = excluded.seen_at`

// Put implements engine.WorkerStore.
func (s Workers) Put(ctx context.Context, q row.Querier, all []row.Worker) error {
	if len(all) == 0 {
		return nil
	}
	_, err := q.ExecContext(ctx, s.SQL(sqlPutWorkers),
		column(all, func(w row.Worker) string { return w.ID }),
		column(all, func(w row.Worker) string { return w.Queue }),
		column(all, func(w row.Worker) string { return w.Host }),
		column(all, func(w row.Worker) string { return w.Boot }),
		column(all, func(w row.Worker) string { return w.Space }),
		column(all, func(w row.Worker) int64 { return w.PID }),
		column(all, func(w row.Worker) int64 { return w.Start }),
		column(all, func(w row.Worker) string { return w.Version }),
		column(all, func(w row.Worker) int64 { return w.Slots }),
		column(all, since),
		column(all, func(w row.Worker) time.Time { return pgsql.Stamp(w.Seen) }))
	return err
}

// column returns a value of each row as an array.
func column[R, V any](all []R, of func(R) V) []V {
	values := make([]V, len(all))
	for i, r := range all {
		values[i] = of(r)
	}
	return values
}

// since returns the start of a worker loop, to the millisecond.
func since(w row.Worker) time.Time { return pgsql.Stamp(w.Since.Truncate(time.Millisecond)) }

// The row must belong to the same loop, because another loop may have been given the same name by mistake.
const sqlDropWorkers = `DELETE FROM honker.worker w USING unnest($1::text[], $2::text[], $3::timestamptz[]) u (worker, queue, since)
WHERE w.worker = u.worker COLLATE "C" AND w.queue = u.queue COLLATE "C" AND w.since = u.since`

// Drop implements engine.WorkerStore.
func (s Workers) Drop(ctx context.Context, q row.Querier, all []row.Worker) error {
	if len(all) == 0 {
		return nil
	}
	_, err := q.ExecContext(ctx, s.SQL(sqlDropWorkers), column(all, func(w row.Worker) string { return w.ID }),
		column(all, func(w row.Worker) string { return w.Queue }), column(all, since))
	return err
}

const sqlWorkers = `SELECT worker, queue, host, boot, pid_space, pid, pid_start, version, slots, since, seen_at
FROM honker.worker WHERE $1 = '' OR queue = $1 ORDER BY worker, queue LIMIT 10000`

// List implements engine.WorkerStore.
func (s Workers) List(ctx context.Context, q row.Querier, queue string) (all []row.Worker, err error) {
	err = pgsql.Each(ctx, q, s.SQL(sqlWorkers), func(r *sql.Rows) error {
		var w row.Worker
		var began, seen sql.NullTime
		err := r.Scan(&w.ID, &w.Queue, &w.Host, &w.Boot, &w.Space, &w.PID, &w.Start, &w.Version, &w.Slots, &began, &seen)
		w.Since, w.Seen = pgsql.Instant(began), pgsql.Instant(seen)
		all = append(all, w)
		return err
	}, queue)
	return all, err
}

// The recursive query reads the name of each queue with claims by a single probe of the index.
const sqlHolders = `WITH RECURSIVE n (queue) AS (
    SELECT CASE WHEN $2 = '' THEN (SELECT min(queue) FROM honker.job WHERE state = 1) ELSE $2 END UNION ALL
    SELECT (SELECT min(queue) FROM honker.job WHERE state = 1 AND queue > n.queue) FROM n WHERE n.queue IS NOT NULL AND $2 = '')
SELECT worker, queue, count(*), min(id) FROM (
  SELECT coalesce(j.worker, '') AS worker, j.queue, j.id FROM n JOIN honker.job j ON j.queue = n.queue AND j.state = 1 AND j.lease_until >= $1
  LIMIT 10000) held
GROUP BY worker, queue ORDER BY worker COLLATE "C", queue`

// Holders implements engine.WorkerStore.
func (s Workers) Holders(ctx context.Context, q row.Querier, queue string, now time.Time) (all []row.Holder, err error) {
	err = pgsql.Each(ctx, q, s.SQL(sqlHolders), func(r *sql.Rows) error {
		var h row.Holder
		err := r.Scan(&h.Worker, &h.Queue, &h.Jobs, &h.Oldest)
		all = append(all, h)
		return err
	}, pgsql.Stamp(now), queue)
	return all, err
}
