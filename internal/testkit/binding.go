package testkit

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
)

// Binding imitates honker in another language. It runs honker's statements, with SQLite's clock, on
// a plain connection.
type Binding struct {
	t    testing.TB
	Pool *sql.DB
}

// BindingPool opens the file at path with the settings of a binding.
func BindingPool(path string) (*sql.DB, error) {
	return sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate")
}

// OpenBinding opens the file at path as a binding and closes it when the test ends.
func OpenBinding(t testing.TB, path string) *Binding {
	t.Helper()
	pool, err := BindingPool(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	return &Binding{t, pool}
}

// OpenWithBinding creates a file and returns a DB and a binding on it.
func OpenWithBinding(t testing.TB) (*honker.DB, *Binding) {
	t.Helper()
	path, db := OpenShared(t)
	return db, OpenBinding(t, path)
}

// Bootstrap creates the job tables, indexes and views, as a binding does whenever it opens a file.
func (b *Binding) Bootstrap() {
	b.t.Helper()
	ExecAll(b.t, b.Pool, strings.Split(bindingSchema, ";\n")...)
}

const bindingSchema = `CREATE TABLE IF NOT EXISTS _honker_live (id INTEGER PRIMARY KEY AUTOINCREMENT, queue TEXT NOT NULL, payload TEXT NOT NULL,
  state TEXT NOT NULL DEFAULT 'pending', priority INTEGER NOT NULL DEFAULT 0, run_at INTEGER NOT NULL DEFAULT (unixepoch()),
  worker_id TEXT, claim_expires_at INTEGER, attempts INTEGER NOT NULL DEFAULT 0, max_attempts INTEGER NOT NULL DEFAULT 3,
  created_at INTEGER NOT NULL DEFAULT (unixepoch()), expires_at INTEGER);
CREATE INDEX IF NOT EXISTS _honker_live_claim ON _honker_live(queue, priority DESC, run_at, id) WHERE state IN ('pending', 'processing');
CREATE INDEX IF NOT EXISTS _honker_live_pending_deadline ON _honker_live(queue, run_at) WHERE state = 'pending';
CREATE INDEX IF NOT EXISTS _honker_live_processing_deadline ON _honker_live(queue, claim_expires_at) WHERE state = 'processing';
CREATE TABLE IF NOT EXISTS _honker_dead (id INTEGER PRIMARY KEY, queue TEXT NOT NULL, payload TEXT NOT NULL,
  priority INTEGER NOT NULL DEFAULT 0, run_at INTEGER NOT NULL DEFAULT 0, attempts INTEGER NOT NULL DEFAULT 0,
  max_attempts INTEGER NOT NULL DEFAULT 0, last_error TEXT, created_at INTEGER NOT NULL DEFAULT (unixepoch()), died_at INTEGER NOT NULL DEFAULT (unixepoch()));
DROP VIEW IF EXISTS _honker_jobs;
CREATE VIEW _honker_jobs AS
  SELECT id, queue, payload, state, priority, run_at, worker_id, claim_expires_at, attempts, max_attempts,
    NULL AS last_error, created_at FROM _honker_live UNION ALL
  SELECT id, queue, payload, 'dead', priority, run_at, NULL, NULL, attempts, max_attempts, last_error, created_at FROM _honker_dead`

// Change runs a write and returns the number of changed rows.
func (b *Binding) Change(query string, args ...any) int64 {
	b.t.Helper()
	res, err := b.Pool.ExecContext(context.Background(), query, args...)
	require.NoError(b.t, err)
	n, err := res.RowsAffected()
	require.NoError(b.t, err)
	return n
}

// Enqueue acts as honker_enqueue and returns the job's ID.
func (b *Binding) Enqueue(queue, payload string) int64 {
	b.t.Helper()
	return QueryInt(b.t, b.Pool, `INSERT INTO _honker_live (queue, payload, run_at, priority, max_attempts)
VALUES (?, ?, unixepoch(), 0, 3) RETURNING id`, queue, payload)
}

// BindingJob is an element of the result of honker_claim_batch.
type BindingJob struct {
	ID, Attempts int64
	Payload      string
}

// Claim acts as honker_claim_batch. timeout is the lease in seconds.
func (b *Binding) Claim(queue, worker string, n, timeout int) []BindingJob {
	b.t.Helper()
	jobs, err := ClaimAs(context.Background(), b.Pool, queue, worker, n, timeout)
	require.NoError(b.t, err)
	return jobs
}

// ClaimAs is like Binding.Claim, for processes without a testing.TB.
func ClaimAs(ctx context.Context, pool *sql.DB, queue, worker string, n, timeout int) (jobs []BindingJob, err error) {
	const exhausted = ` FROM _honker_live WHERE queue = ?1 AND attempts >= max_attempts
  AND (expires_at IS NULL OR expires_at > unixepoch())
  AND (state = 'pending' AND run_at <= unixepoch() OR state = 'processing' AND claim_expires_at < unixepoch())`
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	for _, bury := range []string{`INSERT INTO _honker_dead (id, queue, payload, priority, run_at, attempts, max_attempts, last_error, created_at)
SELECT id, queue, payload, priority, run_at, attempts, max_attempts, 'max attempts exceeded', created_at`, `DELETE`} {
		if _, err := tx.ExecContext(ctx, bury+exhausted, queue); err != nil {
			return nil, err
		}
	}
	rows, err := tx.QueryContext(ctx, `UPDATE _honker_live
SET state = 'processing', worker_id = ?2, claim_expires_at = unixepoch() + ?4, attempts = attempts + 1
WHERE id IN (SELECT id FROM _honker_live
  WHERE queue = ?1 AND state IN ('pending', 'processing') AND attempts < max_attempts
    AND (expires_at IS NULL OR expires_at > unixepoch())
    AND (state = 'pending' AND run_at <= unixepoch() OR state = 'processing' AND claim_expires_at < unixepoch())
  ORDER BY priority DESC, run_at, id LIMIT ?3)
RETURNING id, attempts, payload`, queue, worker, n, timeout)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var c BindingJob
		if err := rows.Scan(&c.ID, &c.Attempts, &c.Payload); err != nil {
			return nil, err
		}
		jobs = append(jobs, c)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return nil, err
	}
	return jobs, tx.Commit()
}

// ValidClaim is the WHERE clause for job ?1 while it is claimed by worker ?2.
const ValidClaim = ` WHERE id = ?1 AND worker_id = ?2 AND claim_expires_at >= unixepoch()`

// Ack acts as honker_ack and returns 1 if the worker held the job, and 0 otherwise.
func (b *Binding) Ack(id int64, worker string) int64 {
	b.t.Helper()
	return b.Change(ackJob, id, worker)
}

const ackJob = `DELETE FROM _honker_live` + ValidClaim

// AckAs acts as honker_ack in a binding's transaction. It reports whether the worker held the job.
func AckAs(ctx context.Context, tx *sql.Tx, id int64, worker string) (bool, error) {
	res, err := tx.ExecContext(ctx, ackJob, id, worker)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n == 1, err
}

// Fail acts as honker_fail.
func (b *Binding) Fail(id int64, worker, cause string) {
	b.t.Helper()
	tx, err := b.Pool.BeginTx(context.Background(), nil)
	require.NoError(b.t, err)
	defer tx.Rollback()
	_, err = FailAs(context.Background(), tx, id, worker, cause)
	require.NoError(b.t, err)
	require.NoError(b.t, tx.Commit())
}

// FailAs acts as honker_fail in a binding's transaction. It reports whether the worker held the
// job.
func FailAs(ctx context.Context, tx *sql.Tx, id int64, worker, cause string) (bool, error) {
	if _, err := tx.ExecContext(ctx, `INSERT INTO _honker_dead (id, queue, payload, attempts, max_attempts, last_error)
SELECT id, queue, payload, attempts, max_attempts, ?3 FROM _honker_live`+ValidClaim, id, worker, cause); err != nil {
		return false, err
	}
	return AckAs(ctx, tx, id, worker)
}

// SaveResult acts as honker_result_save.
func (b *Binding) SaveResult(id int64, value any) {
	b.t.Helper()
	b.Change(`INSERT INTO _honker_results (job_id, value) VALUES (?1, ?2)
ON CONFLICT (job_id) DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at`, id, value)
}
