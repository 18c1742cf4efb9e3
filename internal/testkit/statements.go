package testkit

import (
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/wake"
)

// translate returns the statement for the database that q, a *sql.DB, *sql.Tx or *sql.Conn, is connected to.
// It is nil if the tests run on files.
var translate func(q any, statement string) string

// On returns the statement for q, of the statements of this package.
func On(q any, statement string) string { return on(q, statement) }

// on returns the statement for q.
func on(q any, statement string) string {
	if translate == nil {
		return statement
	}
	return translate(q, statement)
}

// Either returns onFile if the test runs on a file, and onServer if it runs on a server. It is for statements that put
// the database into a state that no verb leads to. A statement that differs in the names of tables only needs no
// counterpart if the names are in the variable tables of postgres.go.
func Either(onFile, onServer string) string {
	if engine.Elsewhere == nil || wake.InBubble() {
		return onFile
	}
	return onServer
}

// The statements of the test helpers on honker's own tables. QueryInt, Exec and Rows use their counterparts on another
// database; see postgres.go. Times are Unix seconds.
const (
	// CountJobs selects the number of jobs, including dead letters.
	CountJobs = `SELECT (SELECT count(*) FROM _honker_live) + (SELECT count(*) FROM _honker_dead)`

	// CountQueue selects the number of live jobs in the queue whose name is the parameter.
	CountQueue = `SELECT count(*) FROM _honker_live WHERE queue = $1`

	// LockExpiry selects the expiry of the lock whose name is the parameter, or 0 if there is none.
	LockExpiry = `SELECT coalesce((SELECT expires_at FROM _honker_locks WHERE name = $1), 0)`

	// CountAllowed selects the total number of calls allowed in all rate limit windows.
	CountAllowed = `SELECT coalesce(sum(count), 0) FROM _honker_rate_limits`

	// CountEvents selects the number of events.
	CountEvents = `SELECT count(*) FROM _honker_stream`

	// QueueOf selects the queue of the live job whose ID is the parameter, PayloadOf its payload.
	QueueOf   = `SELECT queue FROM _honker_live WHERE id = $1`
	PayloadOf = `SELECT payload FROM _honker_live WHERE id = $1`

	// PayloadIsText selects whether the payload of the live job whose ID is the parameter is text. It is for files.
	PayloadIsText = `SELECT typeof(payload) = 'text' FROM _honker_live WHERE id = $1`

	// MoveJobs moves all live jobs to the queue "moved".
	MoveJobs = `UPDATE _honker_live SET queue = 'moved'`

	// CountPending selects the number of rows that wait for work after their commit, such as events without a number. A file
	// has none.
	CountPending = `SELECT 0 AS pending`

	// CountEdges selects the number of jobs and batches that live or dead jobs depend on.
	CountEdges = `SELECT count(*) FROM _honkerx_after`

	// CountBatches selects the number of batches that are not done.
	CountBatches = `SELECT count(*) FROM _honkerx_batches WHERE done_ms IS NULL`

	// CountUnique selects the number of unique keys that are taken. A server has a row for each key until a sweep.
	CountUnique = `SELECT count(*) FROM _honkerx_unique`

	// ForgetResults deletes all results.
	ForgetResults = `DELETE FROM _honker_results`

	expireClaim = `UPDATE _honker_live SET claim_expires_at = unixepoch() - 1 WHERE id = $1`
	makeDue     = `UPDATE _honker_live SET run_at = unixepoch() WHERE id = $1`

	getLeader   = `SELECT owner, expires_at FROM _honker_locks WHERE name = 'honker-scheduler'`
	getSchedule = `SELECT name, queue, cron_expr, payload, priority, expires_s, max_attempts, next_fire_at, enabled,
  typeof(name) || typeof(queue) || typeof(cron_expr) || typeof(payload) FROM _honker_scheduler_tasks WHERE name = $1`
	setNextFire = `UPDATE _honker_scheduler_tasks SET next_fire_at = $1 WHERE name = $2`

	addWorker = `INSERT INTO _honkerx_workers (worker, queue, host, slots, since_ms, seen_ms) VALUES ($1, $2, 'far', $3, $4, $4)`

	storeLive = `INSERT INTO _honker_live (id, queue, payload, priority, run_at, created_at, attempts, max_attempts)
SELECT value ->> 'id', value ->> 'queue', value ->> 'payload', value ->> 'priority', value ->> 'run_at', value ->> 'created_at',
  value ->> 'attempts', value ->> 'max_attempts' FROM json_each($1)`
	storeDead = `INSERT INTO _honker_dead (id, queue, payload, priority, run_at, created_at, attempts, max_attempts, last_error, died_at)
SELECT value ->> 'id', value ->> 'queue', value ->> 'payload', value ->> 'priority', value ->> 'run_at', value ->> 'created_at',
  value ->> 'attempts', value ->> 'max_attempts', nullif(value ->> 'error', ''), value ->> 'died_at' FROM json_each($1)`

	listTables = `SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name`

	holdWriter = `BEGIN IMMEDIATE`
)
