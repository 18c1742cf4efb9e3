// Package ops contains the statements for operators: workers, traffic, the audit log, the file and
// problems.
package ops

import (
	"context"
	"database/sql"
	"encoding/json"
	"strings"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// Workers contains the statements for _honkerx_workers.
type Workers struct{}

// Limits on the number of rows read.
const (
	mostWorkers = `10000`
	mostHeld    = `10000`
)

// These statements use the primary key.
const (
	sqlPutWorkers = `INSERT INTO _honkerx_workers (worker, queue, host, boot, pid_space, pid, pid_start, version, slots, since_ms, seen_ms)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7, value ->> 8, value ->> 9, value ->> 10
FROM json_each(?1) WHERE true
ON CONFLICT (worker, queue) DO UPDATE SET host = excluded.host, boot = excluded.boot, pid_space = excluded.pid_space,
  pid = excluded.pid, pid_start = excluded.pid_start, version = excluded.version, slots = excluded.slots,
  since_ms = excluded.since_ms, seen_ms = excluded.seen_ms`

	// The row must belong to the same worker loop, because another loop may have been given the same name by mistake.
	sqlDropWorkers = `DELETE FROM _honkerx_workers
WHERE (worker, queue, since_ms) IN (SELECT value ->> 0, value ->> 1, value ->> 9 FROM json_each(?1))`

	sqlWorkers = `SELECT worker, queue, host, ifnull(boot, ''), ifnull(pid_space, ''), pid, pid_start, ifnull(version, ''), slots, since_ms, seen_ms
FROM _honkerx_workers WHERE ?1 = '' OR queue = ?1 ORDER BY worker, queue LIMIT ` + mostWorkers
)

// These statements use the index of claims, (queue, deadline).
var (
	sqlHolders   = `WITH RECURSIVE ` + rows.SkipScan("n", "queue", "_honker_live INDEXED BY _honker_live_processing_deadline WHERE state = 'processing'") + holders
	sqlHoldersOf = `WITH n(queue) AS (SELECT ?2)` + holders
)

// holders is the query for the workers that hold jobs in the queues in n.
const holders = `
SELECT worker, queue, count(*), min(id) FROM (SELECT ifnull(j.worker_id, '') AS worker, j.queue AS queue, j.id AS id
  FROM n CROSS JOIN _honker_live AS j INDEXED BY _honker_live_processing_deadline ON j.queue = n.queue
    AND j.state = 'processing' AND j.claim_expires_at >= ?1 LIMIT ` + mostHeld + `) GROUP BY worker, queue ORDER BY worker, queue`

// Put inserts or updates the rows of workers.
func (Workers) Put(ctx context.Context, q row.Querier, all []row.Worker) error {
	if len(all) == 0 {
		return nil
	}
	_, err := q.ExecContext(ctx, sqlPutWorkers, workerList(all))
	return err
}

// Drop deletes the workers' rows that still belong to these worker loops.
func (Workers) Drop(ctx context.Context, q row.Querier, all []row.Worker) error {
	if len(all) == 0 {
		return nil
	}
	_, err := q.ExecContext(ctx, sqlDropWorkers, workerList(all))
	return err
}

// workerList encodes workers as a JSON array for json_each.
func workerList(all []row.Worker) string {
	r := make([][]any, len(all))
	for i, w := range all {
		r[i] = []any{w.ID, w.Queue, w.Host, w.Boot, w.Space, w.PID, w.Start, w.Version, w.Slots, rows.MilliOf(w.Since), rows.MilliOf(w.Seen)}
	}
	var text strings.Builder
	_ = json.NewEncoder(&text).Encode(r) // numbers and strings cannot fail
	return text.String()
}

// List returns queue's workers, sorted by name. An empty queue means all queues.
func (Workers) List(ctx context.Context, q row.Querier, queue string) (all []row.Worker, err error) {
	err = rows.Each(ctx, q, sqlWorkers, func(r *sql.Rows) error {
		var w row.Worker
		err := r.Scan(&w.ID, &w.Queue, &w.Host, &w.Boot, &w.Space, (*rows.Number)(&w.PID), (*rows.Number)(&w.Start), &w.Version,
			(*rows.Number)(&w.Slots), (*rows.Milli)(&w.Since), (*rows.Milli)(&w.Seen))
		all = append(all, w)
		return err
	}, queue)
	return all, err
}

// Holders returns the workers, of any binding, that hold jobs in queue, sorted by name. An empty
// queue means all queues.
func (Workers) Holders(ctx context.Context, q row.Querier, queue string, now time.Time) (all []row.Holder, err error) {
	query, args := sqlHolders, []any{now.Unix()}
	if queue != "" {
		query, args = sqlHoldersOf, []any{now.Unix(), queue}
	}
	err = rows.Each(ctx, q, query, func(r *sql.Rows) error {
		var h row.Holder
		err := r.Scan(&h.Worker, &h.Queue, &h.Jobs, &h.Oldest)
		all = append(all, h)
		return err
	}, args...)
	return all, err
}
