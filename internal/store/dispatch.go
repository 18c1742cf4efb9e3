package store

import (
	"context"
	"database/sql"

	"github.com/honker-go/honker/internal/row"
)

// Dispatches are the statements on the _honkerx_dispatch_ tables.
type Dispatches struct{}

// The objects that tell whether a part of dispatch is in the file, which are the last that it makes.
const (
	DispatchTables  = `_honkerx_dispatch_presence`
	DispatchLife    = `_honkerx_dispatch_died`
	DispatchLegacy  = `_honkerx_dispatch_dropped`
	DispatchReplies = `_honkerx_dispatch_recalled`
)

// dispatchTriggers are all triggers of the parts.
var dispatchTriggers = map[string][]string{
	DispatchLife:    {`_honkerx_dispatch_moved`, `_honkerx_dispatch_ended`, DispatchLife},
	DispatchLegacy:  {`_honkerx_dispatch_taken`, DispatchLegacy},
	DispatchReplies: {`_honkerx_dispatch_replied`, `_honkerx_dispatch_refused`, DispatchReplies},
}

const sqlDispatchObjects = `SELECT name FROM sqlite_schema WHERE name GLOB '_honkerx_dispatch_*'`

// objects are the names of what is there. It is a read of the schema.
func (Dispatches) objects(ctx context.Context, q Querier) (map[string]bool, error) {
	names, err := texts(ctx, q, sqlDispatchObjects)
	there := make(map[string]bool, len(names))
	for _, name := range names {
		there[name] = true
	}
	return there, err
}

// Exists tells whether the file has the tables.
func (d Dispatches) Exists(ctx context.Context, q Querier) (bool, error) {
	there, err := d.objects(ctx, q)
	return there[DispatchTables], err
}

// Bootstrap makes those of parts that are not there, inside the caller's transaction. See
// [Relays.Bootstrap] for the lock.
func (d Dispatches) Bootstrap(ctx context.Context, q Querier, parts ...row.DispatchPart) error {
	if err := TakeWriteLock(ctx, q); err != nil {
		return err
	}
	there, err := d.objects(ctx, q)
	if err != nil {
		return err
	}
	for _, part := range parts {
		if there[part.Name] {
			continue
		}
		if err := execAll(ctx, q, statements(part.DDL)); err != nil {
			return err
		}
	}
	return nil
}

const (
	sqlAddSent = `INSERT INTO _honkerx_dispatch_jobs (job_id, run_id, queue, events, reply_queue, reply_topic, sent_ms)
VALUES (?1, ?1, ?2, nullif(?3, ''), nullif(?4, ''), nullif(?5, ''), ?6) ON CONFLICT (job_id) DO NOTHING`

	sqlAddTwin = `INSERT INTO _honkerx_dispatch_twins (job_id, sent_id) VALUES (?1, ?2) ON CONFLICT (job_id) DO NOTHING`
)

// Add notes a job that was sent; false for one that was noted before, which an enqueue with a unique
// key has found.
func (Dispatches) Add(ctx context.Context, q Querier, s row.Sent, nowMS int64) (bool, error) {
	n, err := affected(ctx, q, sqlAddSent, s.ID, s.Queue, s.Events, s.ReplyQueue, s.ReplyTopic, nowMS)
	return n > 0, err
}

// AddTwin notes a copy of a job in a legacy queue.
func (Dispatches) AddTwin(ctx context.Context, q Querier, twin, sent int64) error {
	_, err := q.ExecContext(ctx, sqlAddTwin, twin, sent)
	return err
}

// By primary keys.
const sqlDispatched = `SELECT j.job_id, j.queue FROM _honkerx_dispatch_twins AS t
JOIN _honkerx_dispatch_jobs AS j ON j.job_id = t.sent_id WHERE t.job_id = ?1`

// Original returns the job of which id is a copy in a legacy queue, and where it was sent to.
func (Dispatches) Original(ctx context.Context, q Querier, id int64) (sent int64, queue string, found bool, err error) {
	found, err = one(ctx, q, sqlDispatched, []any{id}, &sent, &queue)
	return sent, queue, found, err
}

// DispatchPrefix begins the keys of dispatch by default.
const DispatchPrefix = "hero:"

// The names of reply queues, between the prefix and the id of the job.
const (
	dispatchReply       = "q:reply:"
	dispatchLegacyReply = "reply:"
)

// By primary keys, the index of the twins, and those of claims. Of several replies the last is that of
// the attempt that has ended the job. A reply that a caller has claimed is read until it is acked.
const sqlDispatchStatus = `SELECT j.run_id, j.queue, j.sent_ms, j.started_ms, j.ended_ms, j.stop_ms IS NOT NULL, j.held_until_ms,
  coalesce(l.state, ''), coalesce(l.attempts, d.attempts), coalesce(l.worker_id, ''),
  coalesce(d.last_error, x.last_error, ''), d.id IS NOT NULL, r.value,
  coalesce(p.queue, ''), p.payload,
  j.run_id = j.job_id AND EXISTS (SELECT 1 FROM _honkerx_dispatch_twins WHERE sent_id = j.job_id)
FROM _honkerx_dispatch_jobs AS j
LEFT JOIN _honker_live AS l ON l.id = j.run_id
LEFT JOIN _honker_dead AS d ON d.id = j.run_id
LEFT JOIN _honkerx_job AS x ON x.job_id = j.run_id
LEFT JOIN _honker_results AS r ON r.job_id = j.run_id AND (r.expires_at IS NULL OR r.expires_at > ?2)
LEFT JOIN _honker_live AS p ON p.id = iif(r.value IS NULL, (SELECT max(id) FROM (
    SELECT id FROM _honker_live INDEXED BY _honkerx_live_pending
      WHERE queue IN (?3 || j.run_id, ?4 || j.run_id) AND state = 'pending'
    UNION ALL
    SELECT id FROM _honker_live INDEXED BY _honker_live_processing_deadline
      WHERE queue IN (?3 || j.run_id, ?4 || j.run_id) AND state = 'processing')), NULL)
WHERE j.job_id = ?1`

// Status reads what became of a job that was sent, by keys with that prefix.
func (Dispatches) Status(ctx context.Context, q Querier, prefix string, id, now int64) (s row.DispatchStatus, found bool, err error) {
	args := []any{id, now, prefix + dispatchReply, prefix + dispatchLegacyReply}
	found, err = one(ctx, q, sqlDispatchStatus, args, &s.RunID, &s.Queue, (*number)(&s.SentMS),
		(*number)(&s.StartedMS), (*number)(&s.EndedMS), &s.Stopped, (*number)(&s.HeldUntilMS), &s.State,
		(*number)(&s.Attempts), &s.Worker, &s.LastError, &s.Dead, &s.Output, &s.ReplyQueue, &s.Reply, &s.Twins)
	return s, found, err
}

// By primary key, and the index of the twins.
const sqlDispatchCopies = `SELECT id, queue, state = 'processing', coalesce(worker_id, ''), claim_expires_at FROM _honker_live
WHERE id IN (SELECT job_id FROM _honkerx_dispatch_jobs WHERE job_id = ?1
  UNION ALL SELECT job_id FROM _honkerx_dispatch_twins WHERE sent_id = ?1)`

// Copies are the live jobs that stand for the job id: several while it waits in legacy queues too.
func (Dispatches) Copies(ctx context.Context, q Querier, id int64) (out []row.DispatchCopy, err error) {
	err = each(ctx, q, sqlDispatchCopies, func(rows *sql.Rows) error {
		var c row.DispatchCopy
		err := rows.Scan(&c.ID, &c.Queue, &c.Claimed, &c.Worker, (*number)(&c.Until))
		out = append(out, c)
		return err
	}, id)
	return out, err
}

// By primary key.
const (
	sqlStopSent = `UPDATE _honkerx_dispatch_jobs SET stop_ms = ?2, held_until_ms = ?3 WHERE job_id = ?1`

	sqlEndStopped = `UPDATE _honkerx_dispatch_jobs SET held_until_ms = 0, ended_ms = ?2
WHERE job_id = ?1 AND stop_ms IS NOT NULL AND held_until_ms > 0`

	sqlLogStopped = `INSERT INTO _honker_stream (topic, key, payload)
SELECT events, 'stopped', json_object('id', job_id, 'queue', queue, 'state', 'stopped')
FROM _honkerx_dispatch_jobs WHERE job_id = ?1 AND events IS NOT NULL`
)

// Stop notes that a job is stopped, before its live row is deleted. One that runs is held by its
// worker until heldMS; 0: it waits.
func (Dispatches) Stop(ctx context.Context, q Querier, id, heldMS, nowMS int64) error {
	_, err := q.ExecContext(ctx, sqlStopSent, id, nowMS, heldMS)
	return err
}

// EndStopped notes that the handler of a stopped job has returned.
func (Dispatches) EndStopped(ctx context.Context, q Querier, id, nowMS int64) error {
	n, err := affected(ctx, q, sqlEndStopped, id, nowMS)
	if err != nil || n == 0 {
		return err
	}
	_, err = q.ExecContext(ctx, sqlLogStopped, id)
	return err
}

// By the indexes of claims, which have what is counted. Ids rise in the order of the enqueues.
const sqlDispatchLoads = `SELECT k.value,
  (SELECT count(*) FROM _honker_live INDEXED BY _honkerx_live_pending WHERE queue = k.value AND state = 'pending'),
  (SELECT count(*) FROM _honker_live INDEXED BY _honker_live_processing_deadline WHERE queue = k.value AND state = 'processing'),
  (SELECT created_at FROM _honker_live WHERE id = (
    SELECT min(id) FROM _honker_live INDEXED BY _honkerx_live_pending WHERE queue = k.value AND state = 'pending'))
FROM json_each(?1) AS k`

// Loads counts what waits and what runs in each of queues.
func (Dispatches) Loads(ctx context.Context, q Querier, queues []string) (out []row.DispatchLoad, err error) {
	err = each(ctx, q, sqlDispatchLoads, func(rows *sql.Rows) error {
		var l row.DispatchLoad
		err := rows.Scan(&l.Queue, &l.Depth, &l.InFlight, (*number)(&l.Oldest))
		out = append(out, l)
		return err
	}, nameList(queues))
	return out, err
}

// By the indexes of claims. A thousand that wait are as good as more, to choose by.
const (
	sqlDispatchWaiting = `SELECT k.value, (SELECT count(*) FROM (
  SELECT 1 FROM _honker_live INDEXED BY _honkerx_live_pending WHERE queue = k.value AND state = 'pending' LIMIT 1000))
FROM json_each(?1) AS k`

	sqlDispatchRunning = `SELECT l.worker_id FROM json_each(?1) AS k CROSS JOIN _honker_live AS l INDEXED BY _honker_live_processing_deadline
ON l.queue = k.value AND l.state = 'processing' WHERE l.worker_id IS NOT NULL`
)

// Waiting counts what waits in each of queues, up to a thousand.
func (Dispatches) Waiting(ctx context.Context, q Querier, queues []string) (map[string]int, error) {
	waiting := make(map[string]int, len(queues))
	err := each(ctx, q, sqlDispatchWaiting, func(rows *sql.Rows) error {
		var queue string
		var n int
		err := rows.Scan(&queue, &n)
		waiting[queue] = n
		return err
	}, nameList(queues))
	return waiting, err
}

// Running returns the worker of each job of queues that runs.
func (Dispatches) Running(ctx context.Context, q Querier, queues []string) ([]string, error) {
	return texts(ctx, q, sqlDispatchRunning, nameList(queues))
}
