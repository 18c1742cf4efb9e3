package testkit

// translate returns the statement for the database that q, a *sql.DB, *sql.Tx or *sql.Conn, is connected to.
// It is nil if the tests run on files.
var translate func(q any, statement string) string

// on returns the statement for q.
func on(q any, statement string) string {
	if translate == nil {
		return statement
	}
	return translate(q, statement)
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

	expireClaim = `UPDATE _honker_live SET claim_expires_at = unixepoch() - 1 WHERE id = $1`
	makeDue     = `UPDATE _honker_live SET run_at = unixepoch() WHERE id = $1`

	getLeader   = `SELECT owner, expires_at FROM _honker_locks WHERE name = 'honker-scheduler'`
	getSchedule = `SELECT name, queue, cron_expr, payload, priority, expires_s, max_attempts, next_fire_at, enabled,
  typeof(name) || typeof(queue) || typeof(cron_expr) || typeof(payload) FROM _honker_scheduler_tasks WHERE name = $1`
	setNextFire = `UPDATE _honker_scheduler_tasks SET next_fire_at = $1 WHERE name = $2`

	addWorker = `INSERT INTO _honkerx_workers (worker, queue, host, slots, since_ms, seen_ms) VALUES ($1, $2, 'far', $3, $4, $4)`

	listTables = `SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name`

	holdWriter = `BEGIN IMMEDIATE`
)
