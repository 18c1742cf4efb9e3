//go:build honkerpg && unix

package testkit

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerpg"
	"github.com/honker-go/honker/internal/engine"
)

func init() {
	engine.Elsewhere = openDatabase
	openPool, attach, watchSchema, translate = poolOf, attachTo, watchDump, translated
	startServer = server.prepare
}

// statements maps statements on a file to those on a schema.
var statements = map[string]string{
	CountJobs:     `SELECT (SELECT count(*) FROM job) + (SELECT count(*) FROM dead)`,
	CountQueue:    `SELECT count(*) FROM job WHERE queue = $1`,
	LockExpiry:    `SELECT coalesce((SELECT floor(extract(epoch FROM expires_at))::bigint FROM lock WHERE name = $1), 0)`,
	CountAllowed:  `SELECT coalesce(sum(count), 0)::bigint FROM rate`,
	CountEvents:   `SELECT count(*) FROM event`,
	CountPending:  `SELECT (SELECT count(*) FROM pending) + (SELECT count(*) FROM token WHERE queue IS NULL)`,
	CountEdges:    `SELECT count(*) FROM edge WHERE waiter > 0`,
	CountBatches:  `SELECT count(*) FROM batch WHERE done_at IS NULL`,
	CountUnique:   `SELECT count(*) FROM uniq WHERE until_at > clock_timestamp() OR EXISTS (SELECT FROM job WHERE id = job_id)`,
	QueueOf:       `SELECT queue FROM job WHERE id = $1`,
	PayloadOf:     `SELECT payload FROM job WHERE id = $1`,
	ForgetResults: `DELETE FROM result`,
	MoveJobs:      `UPDATE job SET queue = 'moved'`,
	expireClaim:   `UPDATE job SET lease_until = clock_timestamp() - interval '1 second' WHERE id = $1`,
	makeDue:       `UPDATE job SET run_at = clock_timestamp() WHERE id = $1`,
	getLeader:     `SELECT owner, extract(epoch FROM expires_at)::bigint FROM lock WHERE name = 'honker-scheduler'`,
	getSchedule: `SELECT name, queue, spec, payload, priority, extract(epoch FROM expires)::bigint, max_attempts,
  extract(epoch FROM next_at)::bigint, enabled::int, 'texttexttexttext' FROM schedule WHERE name = $1`,
	setNextFire: `UPDATE schedule SET next_at = to_timestamp($1::bigint) WHERE name = $2`,
	addWorker: `INSERT INTO worker (worker, queue, host, boot, pid_space, pid, pid_start, version, slots, since, seen_at)
VALUES ($1, $2, 'far', '', '', 0, 0, '', $3, to_timestamp($4::bigint / 1000.0), to_timestamp($4::bigint / 1000.0))`,
	storeLive: `WITH made AS (INSERT INTO job (id, queue, payload, priority, run_at, created_at, attempts, max_attempts)
  SELECT id, queue, payload, priority, to_timestamp(run_at), to_timestamp(created_at), attempts, max_attempts FROM json_to_recordset($1::json)
    AS j ` + storedJob + ` RETURNING id)
SELECT setval(pg_get_serial_sequence('job', 'id'), greatest(max(id), pg_sequence_last_value('job_id_seq'))) FROM made`,
	storeDead: `INSERT INTO dead (id, queue, payload, priority, run_at, created_at, attempts, max_attempts, last_error, died_at)
SELECT id, queue, payload, priority, to_timestamp(run_at), to_timestamp(created_at), attempts, max_attempts, nullif(error, ''), to_timestamp(died_at)
FROM json_to_recordset($1::json) AS j ` + storedJob,
	// The lock of a table in the mode EXCLUSIVE lets others read it.
	holdWriter: `BEGIN; DO $$ BEGIN EXECUTE (SELECT 'LOCK TABLE ' || string_agg(quote_ident(table_name), ', ') || ' IN EXCLUSIVE MODE'
  FROM information_schema.tables WHERE table_schema = current_schema() AND table_type = 'BASE TABLE'); END $$`,
	// The rows of processes and minutes change while nothing else does.
	listTables: `SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema() AND table_name NOT IN ('process', 'minute') ORDER BY 1`,
}

// storedJob are the columns of StoredJob.
const storedJob = `(id bigint, queue text, payload text, priority bigint, run_at bigint, created_at bigint,
  attempts bigint, max_attempts bigint, error text, died_at bigint)`

// translated is the statement for q. A *sql.Tx or *sql.Conn of a testing/synctest bubble is on a file.
func translated(q any, statement string) string {
	isFile := onFile()
	if pool, ok := q.(*sql.DB); ok {
		isFile = fmt.Sprintf("%T", pool.Driver()) != "*stdlib.Driver" // of pgx
	}
	if isFile {
		return statement
	}
	if other, ok := statements[statement]; ok {
		return other
	}
	return tables.Replace(statement)
}

// tables are the names of tables whose columns have the same names and meanings on both databases, except times. A
// statement on them alone runs on both.
var tables = strings.NewReplacer("_honker_stream_consumers", "consumer", "_honker_stream", "event", "_honker_results", "result",
	"_honker_live", "job", "_honker_dead", "dead", "_honkerx_done", "done", "_honkerx_attempts", "attempt",
	"_honkerx_after", "edge", "_honkerx_audit", "audit", "_honkerx_workers", "worker", "_honkerx_minutes", "minute")

// watchDump is WatchFile for a schema.
func watchDump(t testing.TB, path string) func(what string) {
	t.Helper()
	db := server.open(path)
	require.NotNil(t, db, "open the DB first")
	before := Dump(t, db.SQL())
	return func(what string) {
		t.Helper()
		require.Equal(t, before, Dump(t, db.SQL()), "%s has written", what)
	}
}

// poolOf is OpenPool for a schema.
func poolOf(path string) (*sql.DB, error) {
	name, err := server.make(path)
	if err != nil {
		return nil, err
	}
	return sql.Open(driverName, dsnOf(name))
}

// attachTo is Attach for a schema.
func attachTo(t testing.TB, path string, opts *honker.Options) *honker.DB {
	t.Helper()
	name, err := server.make(path)
	require.NoError(t, err)
	if opts == nil {
		opts = new(honker.Options)
	}
	db, closePool, err := honkerpg.AttachDSN(context.Background(), dsnOf(name), optionsOf(name, *opts))
	require.NoError(t, err)
	t.Cleanup(closePool)
	t.Cleanup(func() { require.NoError(t, db.Close()) }) // runs before the pool is closed
	return db
}
