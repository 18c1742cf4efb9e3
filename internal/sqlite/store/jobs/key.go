package jobs

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// sqlKeyStats uses _honkerx_job_key. It combines the keys of live jobs, paused keys, and the keys
// of cancelled jobs that may still run.
var sqlKeyStats = `SELECT g.key, runs, ` + cancelled("?1", "g.key", "?2 * 1000") + `, held, waits, oldest, paused_ms, until_ms, reason, who FROM (
  SELECT s.key, sum(l.state = 'processing') AS runs, sum(s.slot = 2) AS held,
    sum(l.state <> 'processing' AND s.slot <> 2) AS waits, min(iif(l.state = 'processing', NULL, l.created_at)) AS oldest
  FROM _honkerx_job AS s INDEXED BY _honkerx_job_key CROSS JOIN _honker_live AS l ON l.id = s.job_id
  WHERE s.queue = ?1 AND s.key IS NOT NULL
  GROUP BY s.key
  UNION ALL
  SELECT key, 0, 0, 0, NULL FROM _honkerx_keys AS k WHERE queue = ?1 AND ` + pauseHolds + `
    AND NOT EXISTS (SELECT 1 FROM _honkerx_job INDEXED BY _honkerx_job_key WHERE queue = ?1 AND key = k.key)
  UNION
  SELECT key, 0, 0, 0, NULL FROM _honkerx_cancelled AS k WHERE queue = ?1 AND key IS NOT NULL AND until_ms > ?2 * 1000
    AND NOT EXISTS (SELECT 1 FROM _honkerx_job INDEXED BY _honkerx_job_key WHERE queue = ?1 AND key = k.key)) AS g
LEFT JOIN _honkerx_keys AS k ON k.queue = ?1 AND k.key = g.key AND ` + pauseHolds + `
ORDER BY held DESC, runs DESC, g.key LIMIT ?3 + 0`

// Keys returns up to limit keys in queue: its jobs' keys, and paused keys. The keys with the most
// held jobs come first.
func (Jobs) Keys(ctx context.Context, q row.Querier, queue string, limit int, now time.Time) (all []row.KeyStats, err error) {
	err = rows.Each(ctx, q, sqlKeyStats, func(r *sql.Rows) error {
		var k row.KeyStats
		var p row.Pause
		var since sql.NullInt64
		var oldest rows.Number
		err := r.Scan(&k.Key, (*rows.Number)(&k.Running), (*rows.Number)(&k.Cancelled), (*rows.Number)(&k.Held), (*rows.Number)(&k.Waiting), &oldest,
			&since, (*rows.Milli)(&p.Until), (*rows.Text)(&p.Reason), (*rows.Text)(&p.By))
		k.Oldest = row.Instant(int64(oldest))
		if since.Valid {
			p.Since = row.InstantMS(since.Int64)
			k.Pause = &p
		}
		all = append(all, k)
		return err
	}, queue, now.Unix(), limit)
	return all, err
}

// sqlKeyOf uses the primary key.
const sqlKeyOf = `SELECT key FROM _honkerx_job WHERE job_id = ?1 AND key IS NOT NULL`

// keyOf returns the key that limits apply to for a live job, or "" if it has none.
func (Jobs) keyOf(ctx context.Context, q row.Querier, id int64) (key string, err error) {
	_, err = rows.One(ctx, q, sqlKeyOf, []any{id}, &key)
	return key, err
}

// These statements use the primary key.
const (
	sqlGetKeyPause = `SELECT paused_ms, until_ms, reason, who FROM _honkerx_keys WHERE queue = ?1 AND key = ?3 AND ` + pauseHolds

	sqlSetKeyPause = `INSERT INTO _honkerx_keys (queue, key, paused_ms, until_ms, reason, who) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (queue, key) DO UPDATE SET paused_ms = excluded.paused_ms, until_ms = excluded.until_ms,
  reason = excluded.reason, who = excluded.who`

	setNoKeyPause  = `UPDATE _honkerx_keys SET paused_ms = NULL, until_ms = NULL, reason = NULL, who = NULL`
	sqlEndKeyPause = setNoKeyPause + ` WHERE queue = ?1 AND key = ?2 AND paused_ms IS NOT NULL`

	sqlAddQueue = `INSERT INTO _honkerx_queues (queue) VALUES (?1) ON CONFLICT (queue) DO NOTHING`
	pausedKeys  = `(SELECT count(*) FROM _honkerx_keys AS k WHERE k.queue = _honkerx_queues.queue AND k.paused_ms IS NOT NULL)`
	// When the last pause in a queue without key limits ends, its jobs must lose their key state.
	// Setting fit_job makes FitSome do so.
	countKeyPauses = `UPDATE _honkerx_queues SET keys_paused = nullif(` + pausedKeys + `, 0),
  fit_job = iif(keys_paused IS NOT NULL AND coalesce(per_key, in_order, key_rate_n) IS NULL AND ` + pausedKeys + ` = 0, 0, fit_job)`
	sqlCountKeyPauses = countKeyPauses + ` WHERE queue = ?1`
)

// These statements scan a small table: it holds only keys that are paused or rate limited.
const (
	whereKeyIdle    = ` FROM _honkerx_keys WHERE paused_ms IS NULL AND max(ifnull(tat_ms, 0), ifnull(next_ms, 0)) <= ?1 * 1000`
	sqlEndKeyPauses = setNoKeyPause + ` WHERE until_ms <= ?1 * 1000`
	sqlDropIdleKeys = `DELETE` + whereKeyIdle
	sqlCountAllKeys = countKeyPauses + ` WHERE keys_paused IS NOT NULL`
)

// These statements use _honkerx_job_key, for a single key's jobs.
const (
	sqlLetKeyGo = letGoSlots + ` WHERE job_id IN (
  SELECT job_id FROM _honkerx_job INDEXED BY _honkerx_job_key WHERE queue = ?1 AND key = ?2 AND slot = 2)`

	ofKeyWaiting = ` FROM _honkerx_job INDEXED BY _honkerx_job_key WHERE queue = ?1 AND key = ?2 AND wait & 2`

	sqlDueOfKey = `UPDATE _honker_live SET run_at = ?3
WHERE state = 'pending' AND run_at > ?3 AND id IN (SELECT job_id` + ofKeyWaiting + `)`
	sqlNoWaitOfKey = `UPDATE _honkerx_job SET wait = nullif(wait & 1, 0) WHERE job_id IN (SELECT job_id` + ofKeyWaiting + `)`
)

// getKey returns a key's pause, or false if the key is not paused.
func (Pauses) getKey(ctx context.Context, q row.Querier, queue, key string, now int64) (row.Pause, bool, error) {
	return getPause(ctx, q, sqlGetKeyPause, queue, now, key)
}

// setKey pauses a key in queue; see Set.
func (ps Pauses) setKey(ctx context.Context, q row.Querier, queue, key string, p row.Pause, now int64) (was bool, err error) {
	before, was, err := ps.getKey(ctx, q, queue, key, now)
	if err != nil {
		return false, err
	}
	if was {
		p.Since = before.Since
	}
	if _, err := q.ExecContext(ctx, sqlAddQueue, queue); err != nil {
		return was, err
	}
	n, err := rows.Affected(ctx, q, sqlSetKeyPause, queue, key, rows.MilliOf(p.Since), rows.NullMilli(p.Until), rows.NullText(p.Reason), rows.NullText(p.By))
	if err == nil && n == 0 {
		err = row.ErrNotInserted
	}
	if err != nil {
		return was, err
	}
	return was, ps.keyChanged(ctx, q, queue, key, now)
}

// endKey ends the pause of a key in queue; see End.
func (ps Pauses) endKey(ctx context.Context, q row.Querier, queue, key string, now int64) (was bool, err error) {
	if _, was, err = ps.getKey(ctx, q, queue, key, now); err != nil {
		return false, err
	}
	n, err := rows.Affected(ctx, q, sqlEndKeyPause, queue, key)
	if err != nil || n == 0 {
		return false, err
	}
	return was, ps.keyChanged(ctx, q, queue, key, now)
}

// keyChanged releases a key's jobs that wait for the end of a pause. The next claims check them
// again.
func (Pauses) keyChanged(ctx context.Context, q row.Querier, queue, key string, now int64) error {
	if _, err := q.ExecContext(ctx, sqlCountKeyPauses, queue); err != nil {
		return err
	}
	if _, err := q.ExecContext(ctx, sqlLetKeyGo, queue, key); err != nil {
		return err
	}
	if _, err := q.ExecContext(ctx, sqlDueOfKey, queue, key, now); err != nil {
		return err
	}
	if _, err := q.ExecContext(ctx, sqlNoWaitOfKey, queue, key); err != nil {
		return err
	}
	return fitTriggers(ctx, q)
}

// slowDown pauses a live job's key until p.Until, or its queue if the job has no key. It never
// shortens an existing pause, and keeps an operator's reason.
func (j Jobs) slowDown(ctx context.Context, q row.Querier, queue string, id int64, p row.Pause, now int64) error {
	var ps Pauses
	key, err := j.keyOf(ctx, q, id)
	if err != nil {
		return err
	}
	get := func() (row.Pause, bool, error) { return ps.Get(ctx, q, queue, now) }
	if key != "" {
		get = func() (row.Pause, bool, error) { return ps.getKey(ctx, q, queue, key, now) }
	}
	before, was, err := get()
	if err != nil || was && (before.Until.IsZero() || !before.Until.Before(p.Until)) {
		return err
	}
	if was && before.By != "" {
		p.Reason, p.By = before.Reason, before.By
	}
	_, err = ps.Set(ctx, q, queue, key, p, time.Unix(now, 0))
	return err
}
