package moves

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// A parcel is JSON with an array for each kind of row. Times are those of the columns, in seconds or, with the suffix
// _ms, in milliseconds. The server reads it in honker.take_in. ?1 are the ids of the jobs, live or dead, and ?2 those
// of the batches, as JSON arrays. clean removes zero bytes from text that other bindings or handlers wrote, and that
// nothing depends on.
const sqlMoveParcel = `SELECT json_object(
'jobs', json((SELECT json_group_array(json_object('id', l.id, 'queue', l.queue, 'payload', CAST(l.payload AS TEXT), 'state', l.state,
  'priority', l.priority, 'run_at', l.run_at, 'worker', l.worker_id, 'lease', l.claim_expires_at, 'attempts', l.attempts, 'most', l.max_attempts,
  'created', l.created_at, 'expires', l.expires_at, 'error', replace(s.last_error, char(0), ''), 'base', s.base, 'headers', s.headers, 'key', s.key,
  'batch', s.batch, 'progress', s.progress, 'checkpoint', s.checkpoint, 'uniq', iif(s.unique_until < 2, s.unique_key, NULL)))
  FROM json_each(?1) AS i CROSS JOIN _honker_live AS l ON l.id = i.value LEFT JOIN _honkerx_job AS s ON s.job_id = l.id)),
'dead', json((SELECT json_group_array(json_object('id', d.id, 'queue', d.queue, 'payload', CAST(d.payload AS TEXT), 'priority', d.priority,
  'run_at', d.run_at, 'attempts', d.attempts, 'most', d.max_attempts, 'error', replace(d.last_error, char(0), ''), 'created', d.created_at,
  'died', d.died_at, 'base', s.base, 'headers', s.headers, 'key', s.key, 'batch', s.batch, 'progress', s.progress,
  'checkpoint', s.checkpoint, 'uniq', s.unique_key, 'kind', s.unique_until))
  FROM json_each(?1) AS i CROSS JOIN _honker_dead AS d ON d.id = i.value LEFT JOIN _honkerx_dead_job AS s ON s.job_id = d.id)),
'attempts', json((SELECT json_group_array(json_object('id', a.job_id, 'attempt', a.attempt, 'worker', a.worker, 'start_ms', a.start_ms,
  'ran_ms', a.ran_ms, 'error', replace(a.error, char(0), ''), 'log', replace(a.log, char(0), '')))
  FROM json_each(?1) AS i CROSS JOIN _honkerx_attempts AS a ON a.job_id = i.value)),
'edges', json((SELECT json_group_array(json_object('waiter', e.waiter, 'parent', e.job_id, 'batch', e.batch, 'state', e.state, 'if_dead', e.if_dead))
  FROM (SELECT value AS node FROM json_each(?1) UNION ALL SELECT -value FROM json_each(?2)) AS i CROSS JOIN _honkerx_after AS e ON e.waiter = i.node)),
'keys', json((SELECT json_group_array(json_object('queue', u.queue, 'key', u.key, 'id', u.job_id, 'next', u.next_id, 'until_ms', u.until_ms,
  'first_ms', u.first_ms, 'kind', coalesce(min(s.unique_until, 1), 0)))
  FROM json_each(?1) AS i CROSS JOIN _honkerx_job AS s ON s.job_id = i.value
  CROSS JOIN _honkerx_unique AS u ON u.queue = s.queue AND u.key = s.unique_key AND u.job_id = s.job_id)),
'batches', json((SELECT json_group_array(json_object('id', b.id, 'name', b.name, 'headers', b.headers, 'total', b.total, 'open', b.open,
  'created_ms', b.created_ms, 'done_ms', b.done_ms))
  FROM json_each(?2) AS i CROSS JOIN _honkerx_batches AS b ON b.id = i.value)),
'sent', json((SELECT json_group_array(json_object('id', d.job_id, 'run', d.run_id, 'queue', d.queue, 'events', d.events,
  'reply_queue', d.reply_queue, 'reply_topic', d.reply_topic, 'sent_ms', d.sent_ms, 'started_ms', d.started_ms, 'ended_ms', d.ended_ms,
  'stop_ms', d.stop_ms, 'held_ms', d.held_until_ms))
  FROM _honkerx_dispatch_jobs AS d WHERE d.job_id IN (` + sentOf + `))),
'copies', json((SELECT json_group_array(json_object('id', t.job_id, 'sent', t.sent_id))
  FROM _honkerx_dispatch_twins AS t WHERE t.sent_id IN (` + sentOf + `))),
'results', json((SELECT json_group_array(json_object('id', r.job_id, 'value', r.value, 'created', r.created_at, 'expires', r.expires_at))
  FROM (SELECT e.job_id AS id FROM json_each(?1) AS i CROSS JOIN _honkerx_after AS e ON e.waiter = i.value
    UNION SELECT e.job_id FROM json_each(?2) AS i CROSS JOIN _honkerx_after AS e ON e.waiter = -i.value
    UNION SELECT value FROM json_each(?1)) AS p CROSS JOIN _honker_results AS r ON r.job_id = p.id WHERE p.id > 0)))`

// sentOf selects the jobs that Send of package dispatch has returned, for jobs and their copies.
const sentOf = `SELECT value FROM json_each(?1) UNION SELECT c.sent_id FROM json_each(?1) AS i CROSS JOIN _honkerx_dispatch_twins AS c ON c.job_id = i.value`

// parcelOf returns the text of a parcel. It returns false if PostgreSQL cannot hold it.
func parcelOf(ctx context.Context, q row.Querier, jobs, batches []int64) (text string, fits bool, err error) {
	_, err = rows.One(ctx, q, sqlMoveParcel, []any{rows.IDList(jobs), rows.IDList(batches)}, &text)
	return text, err == nil && utf8.ValidString(text) && !hasNUL(text), err
}

// hasNUL reports whether JSON text has a zero byte in a string. A payload that is JSON may have an escaped zero.
func hasNUL(text string) bool {
	for {
		before, rest, found := strings.Cut(text, `\u0000`)
		if !found {
			return false
		}
		slashes := len(before) - len(strings.TrimRight(before, `\`))
		if slashes%2 == 0 {
			return true
		}
		text = rest
	}
}

// removals delete the rows of a parcel. Edges and the rows of package dispatch go before their jobs, so that no trigger takes
// the jobs for done, and keys before the jobs that hold them.
var removals = []string{
	`DELETE FROM _honkerx_after WHERE waiter IN (SELECT value FROM json_each(?1) UNION ALL SELECT -value FROM json_each(?2))`,
	`DELETE FROM _honkerx_unique WHERE (queue, key) IN (SELECT s.queue, s.unique_key FROM json_each(?1) AS i CROSS JOIN _honkerx_job AS s
  ON s.job_id = i.value WHERE s.unique_key IS NOT NULL) AND job_id IN (SELECT value FROM json_each(?1)) AND ?2 IS NOT NULL`,
	`DELETE FROM _honkerx_dispatch_jobs WHERE job_id IN (` + sentOf + `) AND ?2 IS NOT NULL`,
	`DELETE FROM _honkerx_dispatch_twins WHERE sent_id IN (` + sentOf + `) AND ?2 IS NOT NULL`,
	`DELETE FROM _honkerx_attempts WHERE job_id IN (SELECT value FROM json_each(?1)) AND ?2 IS NOT NULL`,
	`DELETE FROM _honker_live WHERE id IN (SELECT value FROM json_each(?1)) AND ?2 IS NOT NULL`,
	`DELETE FROM _honkerx_dead_job WHERE job_id IN (SELECT value FROM json_each(?1)) AND ?2 IS NOT NULL`,
	`DELETE FROM _honker_dead WHERE id IN (SELECT value FROM json_each(?1)) AND ?2 IS NOT NULL`,
	`DELETE FROM _honkerx_batches WHERE id IN (SELECT value FROM json_each(?2)) AND ?1 IS NOT NULL`,
}

const sqlMoveKept = `SELECT count(*) FROM json_each(?1) AS i WHERE EXISTS (SELECT 1 FROM _honker_live WHERE id = i.value)
  OR EXISTS (SELECT 1 FROM _honker_dead WHERE id = i.value)`

// remove deletes the rows of a parcel from the file.
func remove(ctx context.Context, q row.Querier, jobs, batches []int64) error {
	for _, statement := range removals {
		if _, err := q.ExecContext(ctx, statement, rows.IDList(jobs), rows.IDList(batches)); err != nil {
			return err
		}
	}
	kept := 0
	_, err := rows.One(ctx, q, sqlMoveKept, []any{rows.IDList(jobs)}, &kept)
	if err == nil && kept > 0 {
		err = row.ErrIgnored
	}
	return err
}
