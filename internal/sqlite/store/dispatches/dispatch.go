// Package dispatches contains the statements for jobs sent by package dispatch and for its actors.
package dispatches

import (
	"context"
	"database/sql"
	_ "embed"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// Dispatches contains the statements for the _honkerx_dispatch_ tables.
type Dispatches struct{}

// The statements that create each part of the schema.
var (
	//go:embed dispatch.sql
	dispatchTablesDDL string
	//go:embed dispatch_life.sql
	dispatchLifeDDL string
	//go:embed dispatch_legacy.sql
	dispatchLegacyDDL string
	//go:embed dispatch_reply.sql
	dispatchReplyDDL string
)

// dispatchParts describes the parts of the schema, indexed by row.DispatchPart. last is the last object that is
// created for the part: if it exists, the part is complete.
var dispatchParts = [...]struct {
	last, ddl string
	triggers  []string // all triggers of the part
}{
	row.DispatchTables: {last: dispatchPresence, ddl: dispatchTablesDDL},
	row.DispatchLife: {last: dispatchDied, ddl: dispatchLifeDDL,
		triggers: []string{`_honkerx_dispatch_moved`, `_honkerx_dispatch_ended`, dispatchDied}},
	row.DispatchLegacy: {last: dispatchDropped, ddl: dispatchLegacyDDL,
		triggers: []string{`_honkerx_dispatch_taken`, dispatchDropped}},
	row.DispatchReplies: {last: dispatchRecalled, ddl: dispatchReplyDDL,
		triggers: []string{`_honkerx_dispatch_replied`, `_honkerx_dispatch_refused`, dispatchRecalled}},
}

const (
	dispatchPresence = `_honkerx_dispatch_presence`
	dispatchDied     = `_honkerx_dispatch_died`
	dispatchDropped  = `_honkerx_dispatch_dropped`
	dispatchRecalled = `_honkerx_dispatch_recalled`
)

const sqlDispatchObjects = `SELECT name FROM sqlite_schema WHERE name GLOB '_honkerx_dispatch_*'`

// objects returns the names of package dispatch's existing tables and triggers. It reads the schema.
func (Dispatches) objects(ctx context.Context, q row.Querier) (map[string]bool, error) {
	names, err := rows.Texts(ctx, q, sqlDispatchObjects)
	there := make(map[string]bool, len(names))
	for _, name := range names {
		there[name] = true
	}
	return there, err
}

// exists reports whether the file has the tables.
func (d Dispatches) exists(ctx context.Context, q row.Querier) (bool, error) {
	there, err := d.objects(ctx, q)
	return there[dispatchPresence], err
}

// Lock takes the write lock for q's transaction. A deferred transaction cannot write after a read if
// another writer has committed in between.
func (Dispatches) Lock(ctx context.Context, q row.Querier) error { return rows.TakeWriteLock(ctx, q) }

// bootstrap creates the missing parts. The caller's transaction must hold the write lock.
func (d Dispatches) bootstrap(ctx context.Context, q row.Querier, parts ...row.DispatchPart) error {
	there, err := d.objects(ctx, q)
	if err != nil {
		return err
	}
	for _, part := range parts {
		if there[dispatchParts[part].last] {
			continue
		}
		if err := rows.ExecAll(ctx, q, rows.SplitDDL(dispatchParts[part].ddl)); err != nil {
			return err
		}
	}
	return nil
}

// Create creates the tables if they are missing. The caller's transaction must hold the write lock.
func Create(ctx context.Context, q row.Querier) error {
	return Dispatches{}.bootstrap(ctx, q, row.DispatchTables)
}

const (
	sqlAddSent = `INSERT INTO _honkerx_dispatch_jobs (job_id, run_id, queue, events, reply_queue, reply_topic, sent_ms)
VALUES (?1, ?1, ?2, nullif(?3, ''), nullif(?4, ''), nullif(?5, ''), ?6) ON CONFLICT (job_id) DO NOTHING`

	sqlAddTwin = `INSERT INTO _honkerx_dispatch_twins (job_id, sent_id) VALUES (?1, ?2) ON CONFLICT (job_id) DO NOTHING`
)

// Add records a sent job. It returns false if the job is already recorded, which happens when an enqueue
// with a unique key finds an existing job. It creates the parts of the schema that the job needs, and
// must run after Lock.
func (d Dispatches) Add(ctx context.Context, q row.Querier, s row.Sent, now time.Time) (bool, error) {
	parts := []row.DispatchPart{row.DispatchTables, row.DispatchLife}
	if s.ReplyQueue != "" || s.ReplyTopic != "" {
		parts = append(parts, row.DispatchReplies)
	}
	if err := d.bootstrap(ctx, q, parts...); err != nil {
		return false, err
	}
	n, err := rows.Affected(ctx, q, sqlAddSent, s.ID, s.Queue, s.Events, s.ReplyQueue, s.ReplyTopic, rows.MilliOf(now))
	return n > 0, err
}

// AddTwins records a sent job's copies in legacy queues. It must run after Add in the same transaction.
func (d Dispatches) AddTwins(ctx context.Context, q row.Querier, sent int64, twins []int64) error {
	if err := d.bootstrap(ctx, q, row.DispatchLegacy); err != nil {
		return err
	}
	for _, twin := range twins {
		if _, err := q.ExecContext(ctx, sqlAddTwin, twin, sent); err != nil {
			return err
		}
	}
	return nil
}

// sqlDispatched uses the primary keys.
const sqlDispatched = `SELECT j.job_id, j.queue FROM _honkerx_dispatch_twins AS t
JOIN _honkerx_dispatch_jobs AS j ON j.job_id = t.sent_id WHERE t.job_id = ?1`

// Original returns the sent job and its queue for id, a copy in a legacy queue. It returns false if id is not a copy.
func (d Dispatches) Original(ctx context.Context, q row.Querier, id int64) (sent int64, queue string, found bool, err error) {
	if there, err := d.exists(ctx, q); err != nil || !there {
		return 0, "", false, err
	}
	found, err = rows.One(ctx, q, sqlDispatched, []any{id}, &sent, &queue)
	return sent, queue, found, err
}

// sqlDispatchStatus uses the primary keys, the index of copies, and the indexes of claims. If there are
// several replies, the last belongs to the attempt that ended the job. A reply that a caller has claimed
// remains readable until it is acked.
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

// Status returns a sent job's state and outcome, or false if package dispatch does not know the job.
// prefix is the job's key prefix.
func (d Dispatches) Status(ctx context.Context, q row.Querier, prefix string, id int64, now time.Time) (s row.DispatchStatus, found bool, err error) {
	if there, err := d.exists(ctx, q); err != nil || !there {
		return s, false, err
	}
	var sent, started, ended, held rows.Number
	var output sql.NullString
	var reply any
	args := []any{id, now.Unix(), prefix + row.DispatchReplyQueue, prefix + row.DispatchLegacyReplyQueue}
	found, err = rows.One(ctx, q, sqlDispatchStatus, args, &s.RunID, &s.Queue, &sent, &started, &ended, &s.Stopped, &held, &s.State,
		(*rows.Number)(&s.Attempts), &s.Worker, &s.LastError, &s.Dead, &output, &s.Reply.Queue, &reply, &s.Twins)
	s.SentAt, s.StartedAt, s.EndedAt = row.InstantMS(int64(sent)), row.InstantMS(int64(started)), row.InstantMS(int64(ended))
	s.HeldUntil = row.InstantMS(int64(held))
	if output.Valid {
		s.Output = []byte(output.String)
	}
	switch p := reply.(type) {
	case string:
		s.Reply.Payload, s.Reply.Text = []byte(p), true
	case []byte:
		s.Reply.Payload = p
	}
	return s, found, err
}

// sqlDispatchCopies uses the primary key and the index of copies.
const sqlDispatchCopies = `SELECT id, queue, state = 'processing', coalesce(worker_id, ''), claim_expires_at FROM _honker_live
WHERE id IN (SELECT job_id FROM _honkerx_dispatch_jobs WHERE job_id = ?1
  UNION ALL SELECT job_id FROM _honkerx_dispatch_twins WHERE sent_id = ?1)`

// Copies returns the live jobs that represent the sent job id. There are several as long as the job is also waiting
// in legacy queues.
func (d Dispatches) Copies(ctx context.Context, q row.Querier, id int64, now time.Time) (out []row.DispatchCopy, err error) {
	out, _, err = d.copies(ctx, q, id, now)
	return out, err
}

// copies is like Copies. held is the time at which the valid claim on any of them ends, or 0 if there is none.
func (d Dispatches) copies(ctx context.Context, q row.Querier, id int64, now time.Time) (out []row.DispatchCopy, held int64, err error) {
	if there, err := d.exists(ctx, q); err != nil || !there {
		return nil, 0, err
	}
	err = rows.Each(ctx, q, sqlDispatchCopies, func(r *sql.Rows) error {
		var c row.DispatchCopy
		var claimed bool
		var worker string
		var until rows.Number
		err := r.Scan(&c.ID, &c.Queue, &claimed, &worker, &until)
		if claimed && int64(until) >= now.Unix() {
			c.Worker, held = worker, int64(until)
		}
		out = append(out, c)
		return err
	}, id)
	return out, held, err
}

// These statements use the primary key.
const (
	sqlStopSent = `UPDATE _honkerx_dispatch_jobs SET stop_ms = ?2, held_until_ms = ?3 WHERE job_id = ?1`

	sqlEndStopped = `UPDATE _honkerx_dispatch_jobs SET held_until_ms = 0, ended_ms = ?2
WHERE job_id = ?1 AND stop_ms IS NOT NULL AND held_until_ms > 0`

	sqlLogStopped = `INSERT INTO _honker_stream (topic, key, payload)
SELECT events, 'stopped', json_object('id', job_id, 'queue', queue, 'state', 'stopped')
FROM _honkerx_dispatch_jobs WHERE job_id = ?1 AND events IS NOT NULL`
)

// Stop records that a sent job was stopped and returns its live jobs, which the caller must cancel in the
// same transaction. If there are none, the job has ended or is unknown, and Stop changes nothing.
func (d Dispatches) Stop(ctx context.Context, q row.Querier, id int64, now time.Time) ([]row.DispatchCopy, error) {
	live, held, err := d.copies(ctx, q, id, now)
	if err != nil || len(live) == 0 {
		return nil, err
	}
	heldMS := int64(0)
	if held != 0 {
		heldMS = row.Instant(held).UnixMilli()
	}
	_, err = q.ExecContext(ctx, sqlStopSent, id, rows.MilliOf(now), heldMS)
	return live, err
}

// EndStopped records that a stopped job's handler has returned.
func (Dispatches) EndStopped(ctx context.Context, q row.Querier, id int64, now time.Time) error {
	n, err := rows.Affected(ctx, q, sqlEndStopped, id, rows.MilliOf(now))
	if err != nil || n == 0 {
		return err
	}
	_, err = q.ExecContext(ctx, sqlLogStopped, id)
	return err
}

// sqlDispatchLoads uses the indexes of claims, which cover the counts. IDs increase in the order in which jobs are
// enqueued, so the lowest ID belongs to the oldest job.
const sqlDispatchLoads = `SELECT k.value,
  (SELECT count(*) FROM _honker_live INDEXED BY _honkerx_live_pending WHERE queue = k.value AND state = 'pending'),
  (SELECT count(*) FROM _honker_live INDEXED BY _honker_live_processing_deadline WHERE queue = k.value AND state = 'processing'),
  (SELECT created_at FROM _honker_live WHERE id = (
    SELECT min(id) FROM _honker_live INDEXED BY _honkerx_live_pending WHERE queue = k.value AND state = 'pending'))
FROM json_each(?1) AS k`

// Loads returns each queue's number of pending and running jobs, and its oldest pending job's creation
// time.
func (Dispatches) Loads(ctx context.Context, q row.Querier, queues []string) (out []row.DispatchLoad, err error) {
	err = rows.Each(ctx, q, sqlDispatchLoads, func(r *sql.Rows) error {
		var l row.DispatchLoad
		var oldest rows.Number
		err := r.Scan(&l.Queue, &l.Depth, &l.InFlight, &oldest)
		l.Oldest = row.Instant(int64(oldest))
		out = append(out, l)
		return err
	}, rows.NameList(queues))
	return out, err
}

// These statements use the indexes of claims. Counting stops at a thousand, which is precise enough to choose between
// queues.
const (
	sqlDispatchWaiting = `SELECT k.value, (SELECT count(*) FROM (
  SELECT 1 FROM _honker_live INDEXED BY _honkerx_live_pending WHERE queue = k.value AND state = 'pending' LIMIT 1000))
FROM json_each(?1) AS k`

	sqlDispatchRunning = `SELECT l.worker_id FROM json_each(?1) AS k CROSS JOIN _honker_live AS l INDEXED BY _honker_live_processing_deadline
ON l.queue = k.value AND l.state = 'processing' WHERE l.worker_id IS NOT NULL`
)

// Occupancy returns the number of pending jobs in each of the queues in waiting, and the worker of each running job
// in the queues in running.
func (Dispatches) Occupancy(ctx context.Context, q row.Querier, waiting, running []string) (out row.DispatchOccupancy, err error) {
	out.Waiting = make(map[string]int, len(waiting))
	err = rows.Each(ctx, q, sqlDispatchWaiting, func(r *sql.Rows) error {
		var queue string
		var n int
		err := r.Scan(&queue, &n)
		out.Waiting[queue] = n
		return err
	}, rows.NameList(waiting))
	if err == nil {
		out.Workers, err = rows.Texts(ctx, q, sqlDispatchRunning, rows.NameList(running))
	}
	return out, err
}
