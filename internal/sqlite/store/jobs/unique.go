package jobs

import (
	"context"
	_ "embed"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// keyTaken returns the condition that a job holds the key at now, a Unix second, and nowMS, the
// same time in milliseconds. A job that can no longer run does not hold its key, even though its
// row remains until the next sweep. The arguments are SQL expressions.
func keyTaken(queue, key, now, nowMS string) string {
	return `EXISTS (SELECT 1 FROM _honkerx_unique AS u
  LEFT JOIN _honker_live AS l ON l.id = u.job_id
  LEFT JOIN _honkerx_job AS s ON s.job_id = u.job_id
  WHERE u.queue = ` + queue + ` AND u.key = ` + key + ` AND (u.next_id IS NOT NULL OR u.until_ms > ` + nowMS + `
    OR (l.state = 'processing' AND l.claim_expires_at >= ` + now + `
      OR l.attempts < l.max_attempts AND (l.expires_at IS NULL OR l.expires_at > ` + now + `))
    AND CASE s.unique_until WHEN 1 THEN l.attempts = 0 WHEN 2 THEN 0 ELSE 1 END))`
}

// These statements use the primary keys. The columns are those of sqlInsertJobs.
var (
	sqlInsertUnique = `INSERT INTO _honker_live (queue, priority, run_at, max_attempts, created_at, expires_at, payload)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7 WHERE NOT ` + keyTaken("?1", "?8", "?5", "?9")

	sqlGetKey = `SELECT ifnull(next_id, job_id), first_ms, until_ms, ` + keyTaken("?1", "?2", "?3", "?4") + `
FROM _honkerx_unique WHERE queue = ?1 AND key = ?2`
)

// These statements use the primary keys.
const (
	sqlInsertHeld = `INSERT INTO _honker_live (queue, priority, run_at, max_attempts, created_at, expires_at, payload, state)
VALUES (?, ?, ?, ?, ?, ?, ?, 'held')`

	sqlSaveKey = `INSERT INTO _honkerx_job (job_id, queue, unique_key, unique_until) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (job_id) DO UPDATE SET queue = excluded.queue, unique_key = excluded.unique_key, unique_until = excluded.unique_until`

	// An existing row belongs to a job that no longer holds the key (see keyTaken).
	sqlTakeKey = `INSERT INTO _honkerx_unique (queue, key, job_id, until_ms, first_ms) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (queue, key) DO UPDATE SET
  job_id = excluded.job_id, next_id = NULL, until_ms = excluded.until_ms, first_ms = excluded.first_ms`

	sqlSetNext = `UPDATE _honkerx_unique
SET next_id = ?3, until_ms = nullif(max(ifnull(until_ms, 0), ifnull(?4, 0)), 0), first_ms = ?5
WHERE queue = ?1 AND key = ?2`

	// A held job stays held. Attempts are never reset, because they fence claims.
	sqlReplaceJob = `UPDATE _honker_live
SET payload = ?2, priority = ?3, run_at = ?4, expires_at = ?5, max_attempts = attempts + ?6,
  state = iif(state = 'processing', 'pending', state), worker_id = NULL, claim_expires_at = NULL
WHERE id = ?1`
)

// InsertUnique enqueues a job with the key u.Key. If another job holds the key, u.Conflict decides
// the outcome, which the result reports.
func (j Jobs) InsertUnique(ctx context.Context, q row.Querier, n NewJob, payload string, u Unique) (row.Placed, error) {
	res, err := q.ExecContext(ctx, sqlInsertUnique, append(newJobColumns(n), payload, u.Key, u.NowMS)...)
	if err != nil {
		return row.Placed{}, err
	}
	r, err := res.RowsAffected()
	if err != nil {
		return row.Placed{}, err
	}
	if r == 0 {
		return j.conflict(ctx, q, n, payload, u)
	}
	id, err := res.LastInsertId()
	if err != nil {
		return row.Placed{}, err
	}
	if err := j.takeKey(ctx, q, n.Queue, id, u); err != nil {
		return row.Placed{}, err
	}
	return row.Placed{ID: id, Result: row.PlacedNew}, nil
}

// takeKey assigns the key to the job id.
func (j Jobs) takeKey(ctx context.Context, q row.Querier, queue string, id int64, u Unique) error {
	if err := ensureKeyTriggers(ctx, q, u.Started); err != nil {
		return err
	}
	if err := saveKey(ctx, q, queue, id, u.Key, u.until()); err != nil {
		return err
	}
	_, err := q.ExecContext(ctx, sqlTakeKey, queue, u.Key, id, rows.Nullable(u.UntilMS), u.NowMS)
	return err
}

func saveKey(ctx context.Context, q row.Querier, queue string, id int64, key string, until int64) error {
	_, err := q.ExecContext(ctx, sqlSaveKey, id, queue, key, until)
	return err
}

// keyRow is a key's state.
type keyRow struct {
	job   int64 // job that holds the key, or the job that waits for it
	first int64 // time at which that job was created, in milliseconds
	kept  int64 // time until which the key is kept, in milliseconds; 0 if only as long as its job
	taken bool
}

// getKey returns a key's state. It is zero if the key has no row.
func getKey(ctx context.Context, q row.Querier, queue, key string, now, nowMS int64) (k keyRow, err error) {
	_, err = rows.One(ctx, q, sqlGetKey, []any{queue, key, now, nowMS}, (*rows.Number)(&k.job), (*rows.Number)(&k.first), (*rows.Number)(&k.kept), &k.taken)
	return k, err
}

// conflict handles the enqueue of a job whose key is held by another job, according to u.Conflict.
func (j Jobs) conflict(ctx context.Context, q row.Querier, n NewJob, payload string, u Unique) (row.Placed, error) {
	key, err := getKey(ctx, q, n.Queue, u.Key, n.CreatedAt, u.NowMS)
	if err != nil {
		return row.Placed{}, err
	}
	if !key.taken { // one of the application's triggers has dropped the job
		return row.Placed{}, row.ErrNotInserted
	}
	was, live, err := j.Live(ctx, q, key.job)
	if err != nil {
		return row.Placed{}, err
	}
	p := row.Placed{ID: key.job, Result: row.PlacedExisting, Of: was.Job}
	if !live {
		p.Of = row.Job{ID: key.job, Queue: n.Queue}
		return p, nil
	}
	runs := was.State == "processing" && was.Times.ClaimExpiresAt >= n.CreatedAt
	switch {
	case u.Conflict == row.RunAgain && runs:
		p.Result = row.PlacedAgain
		p.ID, err = insertNext(ctx, q, n, payload, u)
	case u.Conflict != row.KeepExisting && !runs:
		p.Result = row.PlacedReplaced
		if err := noCircle(ctx, q, key.job, u.Links); err != nil { // before any change, because a caller may commit despite the error
			return row.Placed{}, err
		}
		if u.MaxMS > 0 {
			n.RunAt = min(n.RunAt, (key.first+u.MaxMS+999)/1000)
		}
		err = replace(ctx, q, key.job, n, payload)
	}
	return p, err
}

// insertNext adds a job that is held until the key's current job has ended.
func insertNext(ctx context.Context, q row.Querier, n NewJob, payload string, u Unique) (int64, error) {
	id, err := rows.Inserted(ctx, q, sqlInsertHeld, 1, append(newJobColumns(n), payload)...)
	if err != nil {
		return 0, err
	}
	if u.Started { // the previous job may not have needed this trigger
		if err := ensureKeyTriggers(ctx, q, true); err != nil {
			return 0, err
		}
	}
	if err := saveKey(ctx, q, n.Queue, id, u.Key, u.until()); err != nil {
		return 0, err
	}
	_, err = q.ExecContext(ctx, sqlSetNext, n.Queue, u.Key, id, rows.Nullable(u.UntilMS), u.NowMS)
	return id, err
}

// replace overwrites a waiting job with n and payload.
func replace(ctx context.Context, q row.Querier, id int64, n NewJob, payload string) error {
	changed, err := rows.Affected(ctx, q, sqlReplaceJob, id, payload, n.Priority, n.RunAt, rows.Nullable(n.ExpiresAt), n.MaxAttempts)
	if err == nil && changed == 0 {
		return row.ErrStuck
	}
	return err
}

// The trigger on attempts is separate, because it costs a plain job a comparison when it is
// claimed.
var (
	//go:embed unique.sql
	uniqueDDL string
	//go:embed unique_started.sql
	startedDDL string

	uniqueTriggers  = rows.SplitDDL(uniqueDDL)
	startedTriggers = rows.SplitDDL(startedDDL)
)

// ensureKeyTriggers creates the triggers unless they exist. The trigger on attempts is created only
// if started is set.
func ensureKeyTriggers(ctx context.Context, q row.Querier, started bool) error {
	err := ensureTriggers(ctx, q, "_honkerx_unique_gone", uniqueTriggers...)
	if err != nil || !started {
		return err
	}
	return ensureTriggers(ctx, q, "_honkerx_unique_started", startedTriggers...)
}

// renewKeyTriggers recreates the triggers in a file that has those of an earlier revision of this
// schema version, which copied fewer columns.
func renewKeyTriggers(ctx context.Context, q row.Querier) error {
	found, err := triggerExists(ctx, q, "_honkerx_unique_gone")
	if err != nil || !found {
		return err
	}
	return rows.ExecAll(ctx, q, append([]string{
		`DROP TRIGGER IF EXISTS _honkerx_unique_dead`, `DROP TRIGGER IF EXISTS _honkerx_unique_forgotten`, `DROP TRIGGER _honkerx_unique_gone`,
	}, uniqueTriggers...))
}

// These statements use the primary keys.
const (
	sqlForgetKey = `UPDATE _honkerx_job SET unique_key = NULL, unique_until = NULL WHERE job_id IN (
  SELECT job_id FROM _honkerx_unique WHERE queue = ?1 AND key = ?2
  UNION ALL SELECT next_id FROM _honkerx_unique WHERE queue = ?1 AND key = ?2)`
	sqlReleaseKey = `DELETE FROM _honkerx_unique WHERE queue = ?1 AND key = ?2`
)

// ReleaseUnique takes the key from the job that holds it. It returns false if the key was free.
func (Jobs) ReleaseUnique(ctx context.Context, q row.Querier, queue, key string, now time.Time) (bool, error) {
	k, err := getKey(ctx, q, queue, key, now.Unix(), now.UnixMilli())
	if err != nil {
		return false, err
	}
	for _, query := range []string{sqlForgetKey, sqlReleaseKey} {
		if _, err := q.ExecContext(ctx, query, queue, key); err != nil {
			return false, err
		}
	}
	_, err = q.ExecContext(ctx, sqlUnhold, k.job)
	return k.taken, err
}

// sqlDeadKey uses the primary keys.
const sqlDeadKey = `SELECT d.unique_key, d.unique_until, j.attempts
FROM _honkerx_dead_job AS d JOIN _honker_dead AS j ON j.id = d.job_id WHERE d.job_id = ?1 AND d.unique_key IS NOT NULL`

// RetakeUnique gives a dead job that is about to live again in queue the unique key that it had
// when it died. If another job holds that key, RetakeUnique changes nothing and returns that job's
// id in by; the dead job must then stay dead. key is "" if the job had none. RetakeUnique must run
// in the transaction that moves the job, before the dead row is deleted.
func (Jobs) RetakeUnique(ctx context.Context, q row.Querier, id int64, queue string, now, nowMS int64) (key string, by int64, err error) {
	var until, attempts rows.Number
	found, err := rows.One(ctx, q, sqlDeadKey, []any{id}, &key, &until, &attempts)
	if err != nil || !found {
		return "", 0, err
	}
	if until == hasStarted || until == untilStarted && attempts > 0 {
		return key, 0, saveKey(ctx, q, queue, id, key, hasStarted) // the job had released its key before it died
	}
	k, err := getKey(ctx, q, queue, key, now, nowMS)
	if err != nil {
		return key, 0, err
	}
	if k.taken && k.job != id { // a key kept for a time may still belong to the dead job
		return key, k.job, nil
	}
	u := Unique{Key: key, Started: until == untilStarted, UntilMS: k.kept, NowMS: nowMS}
	return key, 0, Jobs{}.takeKey(ctx, q, queue, id, u)
}

// These statements find and delete keys whose time has passed. sqlKeysOver scans the whole table
// without the write lock; sqlDropKeysOver uses _honkerx_unique_timed.
const (
	whereKeyOver = ` FROM _honkerx_unique AS u WHERE until_ms <= ?1 AND next_id IS NULL
  AND NOT EXISTS (SELECT 1 FROM _honker_live WHERE id = u.job_id)`

	sqlKeysOver     = `SELECT job_id` + whereKeyOver + ` LIMIT ?2 + 0`
	sqlDropKeysOver = `DELETE` + whereKeyOver + ` AND job_id IN (SELECT value FROM json_each(?2))`
)
