package store_test

import (
	"database/sql"
	"testing"

	"github.com/honker-go/honker/internal/row"

	"github.com/stretchr/testify/require"
)

// This file reproduces a honker binding's effects on the database, based on the published format and the documented
// behavior of its functions. Our statements are tested against it. The time is a parameter, so that both sides see
// the same second.

// honkerAttach creates the notifications table, which a binding does when it opens a connection.
var honkerAttach = []string{
	`CREATE TABLE IF NOT EXISTS _honker_notifications (
	   id INTEGER PRIMARY KEY AUTOINCREMENT, channel TEXT NOT NULL, payload TEXT NOT NULL,
	   created_at INTEGER NOT NULL DEFAULT (unixepoch()))`,
	`CREATE INDEX IF NOT EXISTS _honker_notifications_recent ON _honker_notifications(channel, id)`,
}

const (
	honkerLive = `CREATE TABLE IF NOT EXISTS _honker_live (
	   id INTEGER PRIMARY KEY AUTOINCREMENT, queue TEXT NOT NULL, payload TEXT NOT NULL,
	   state TEXT NOT NULL DEFAULT 'pending', priority INTEGER NOT NULL DEFAULT 0,
	   run_at INTEGER NOT NULL DEFAULT (unixepoch()), worker_id TEXT, claim_expires_at INTEGER,
	   attempts INTEGER NOT NULL DEFAULT 0, max_attempts INTEGER NOT NULL DEFAULT 3,
	   created_at INTEGER NOT NULL DEFAULT (unixepoch()), expires_at INTEGER)`
	honkerClaimIndex = `CREATE INDEX IF NOT EXISTS _honker_live_claim
	   ON _honker_live(queue, priority DESC, run_at, id) WHERE state IN ('pending', 'processing')`
	honkerPendingIndex = `CREATE INDEX IF NOT EXISTS _honker_live_pending_deadline
	   ON _honker_live(queue, run_at) WHERE state = 'pending'`
	honkerProcessingIndex = `CREATE INDEX IF NOT EXISTS _honker_live_processing_deadline
	   ON _honker_live(queue, claim_expires_at) WHERE state = 'processing'`
)

// The schedules table, as created by three different releases.
const (
	honkerTasksFirst = `CREATE TABLE IF NOT EXISTS _honker_scheduler_tasks (
	   name TEXT PRIMARY KEY, queue TEXT NOT NULL, cron_expr TEXT NOT NULL, payload TEXT NOT NULL,
	   priority INTEGER NOT NULL DEFAULT 0, expires_s INTEGER, next_fire_at INTEGER NOT NULL)`
	honkerTasksEnabled = `CREATE TABLE IF NOT EXISTS _honker_scheduler_tasks (
	   name TEXT PRIMARY KEY, queue TEXT NOT NULL, cron_expr TEXT NOT NULL, payload TEXT NOT NULL,
	   priority INTEGER NOT NULL DEFAULT 0, expires_s INTEGER, next_fire_at INTEGER NOT NULL,
	   enabled INTEGER NOT NULL DEFAULT 1)`
	honkerTasks = `CREATE TABLE IF NOT EXISTS _honker_scheduler_tasks (
	   name TEXT PRIMARY KEY, queue TEXT NOT NULL, cron_expr TEXT NOT NULL, payload TEXT NOT NULL,
	   priority INTEGER NOT NULL DEFAULT 0, expires_s INTEGER, next_fire_at INTEGER NOT NULL,
	   enabled INTEGER NOT NULL DEFAULT 1, max_attempts INTEGER NOT NULL DEFAULT 3)`
)

var honkerRest = []string{
	`CREATE TABLE IF NOT EXISTS _honker_dead (
	   id INTEGER PRIMARY KEY, queue TEXT NOT NULL, payload TEXT NOT NULL,
	   priority INTEGER NOT NULL DEFAULT 0, run_at INTEGER NOT NULL DEFAULT 0,
	   attempts INTEGER NOT NULL DEFAULT 0, max_attempts INTEGER NOT NULL DEFAULT 0,
	   last_error TEXT, created_at INTEGER NOT NULL DEFAULT (unixepoch()),
	   died_at INTEGER NOT NULL DEFAULT (unixepoch()))`,
	`CREATE TABLE IF NOT EXISTS _honker_locks (
	   name TEXT PRIMARY KEY, owner TEXT NOT NULL, expires_at INTEGER NOT NULL)`,
	`CREATE TABLE IF NOT EXISTS _honker_rate_limits (
	   name TEXT NOT NULL, window_start INTEGER NOT NULL, count INTEGER NOT NULL DEFAULT 0,
	   PRIMARY KEY (name, window_start))`,
	`CREATE TABLE IF NOT EXISTS _honker_results (
	   job_id INTEGER PRIMARY KEY, value TEXT,
	   created_at INTEGER NOT NULL DEFAULT (unixepoch()), expires_at INTEGER)`,
	`CREATE TABLE IF NOT EXISTS _honker_stream (
	   offset INTEGER PRIMARY KEY AUTOINCREMENT, topic TEXT NOT NULL, key TEXT, payload TEXT NOT NULL,
	   created_at INTEGER NOT NULL DEFAULT (unixepoch()))`,
	`CREATE INDEX IF NOT EXISTS _honker_stream_topic ON _honker_stream(topic, offset)`,
	`CREATE TABLE IF NOT EXISTS _honker_stream_consumers (
	   name TEXT NOT NULL, topic TEXT NOT NULL, offset INTEGER NOT NULL DEFAULT 0,
	   PRIMARY KEY (name, topic))`,
}

// honkerBootstrapStep creates the remaining tables, which a binding does when it is asked to
// bootstrap.
var honkerBootstrapStep = append([]string{
	honkerLive, honkerClaimIndex, honkerPendingIndex, honkerProcessingIndex, honkerTasks,
}, honkerRest...)

func honkerBootstrap(t *testing.T, db *sql.DB) {
	t.Helper()
	exec(t, db, `PRAGMA journal_mode = WAL`)
	execAll(t, db, honkerAttach)
	execAll(t, db, honkerBootstrapStep)
}

func execAll(t *testing.T, db *sql.DB, statements []string) {
	t.Helper()
	for _, s := range statements {
		exec(t, db, s)
	}
}

// honkerExhausted selects jobs that the next claim must not return: due, not expired, and without
// attempts left.
const honkerExhausted = ` FROM _honker_live
WHERE queue = ?1 AND attempts >= max_attempts AND (expires_at IS NULL OR expires_at > ?2)
  AND ((state = 'pending' AND run_at <= ?2) OR (state = 'processing' AND claim_expires_at < ?2))`

const (
	honkerBury = `INSERT INTO _honker_dead
  (id, queue, payload, priority, run_at, attempts, max_attempts, last_error, created_at, died_at)
SELECT id, queue, payload, priority, run_at, attempts, max_attempts, 'max attempts exceeded', created_at, ?2` + honkerExhausted
	honkerDrop = `DELETE` + honkerExhausted

	honkerClaimBatch = `UPDATE _honker_live
SET state = 'processing', worker_id = ?3, claim_expires_at = ?4, attempts = attempts + 1
WHERE id IN (
  SELECT id FROM _honker_live
  WHERE queue = ?1 AND state IN ('pending', 'processing')
    AND attempts < max_attempts AND (expires_at IS NULL OR expires_at > ?2)
    AND ((state = 'pending' AND run_at <= ?2) OR (state = 'processing' AND claim_expires_at < ?2))
  ORDER BY priority DESC, run_at, id
  LIMIT ?5)
RETURNING id`

	honkerNextClaimAt = `SELECT coalesce(min(CASE state WHEN 'pending' THEN run_at ELSE claim_expires_at + 1 END), 0)
FROM _honker_live
WHERE queue = ?1 AND attempts < max_attempts AND (expires_at IS NULL OR expires_at > ?2)
  AND ((state = 'pending' AND run_at > ?2) OR (state = 'processing' AND claim_expires_at >= ?2))`
)

// honkerClaim is honker's claim: the dead-letter pass followed by the update. It returns the
// claimed jobs in honker's order.
func honkerClaim(t *testing.T, q row.Querier, queue, worker string, n int, now, expires int64) []fixture {
	t.Helper()
	exec(t, q, honkerBury, queue, now)
	exec(t, q, honkerDrop, queue, now)
	claimed := make(map[string]bool)
	for _, id := range lines(t, q, honkerClaimBatch, queue, now, worker, expires, n) {
		claimed[id] = true
	}
	all := readRows(t, q, `ORDER BY priority DESC, run_at, id`)
	var out []fixture
	for _, r := range all {
		if claimed[line([]any{r.ID})] {
			out = append(out, r)
		}
	}
	require.Len(t, out, len(claimed))
	return out
}
