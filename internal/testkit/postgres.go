//go:build honkerpg && unix

package testkit

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerpg"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/wake"
)

func init() {
	engine.Elsewhere = openDatabase
	openPool, attach, watchSchema, translate = poolOf, attachTo, watchDump, translated
}

// statements maps statements on a file to those on a schema.
var statements = map[string]string{
	CountJobs:    `SELECT (SELECT count(*) FROM job) + (SELECT count(*) FROM dead)`,
	CountQueue:   `SELECT count(*) FROM job WHERE queue = $1`,
	LockExpiry:   `SELECT coalesce((SELECT extract(epoch FROM expires_at)::bigint FROM lock WHERE name = $1), 0)`,
	CountAllowed: `SELECT coalesce(sum(count), 0)::bigint FROM rate`,
	expireClaim:  `UPDATE job SET lease_until = clock_timestamp() - interval '1 second' WHERE id = $1`,
	makeDue:      `UPDATE job SET run_at = clock_timestamp() WHERE id = $1`,
	getLeader:    `SELECT owner, extract(epoch FROM expires_at)::bigint FROM lock WHERE name = 'honker-scheduler'`,
	getSchedule: `SELECT name, queue, spec, payload, priority, extract(epoch FROM expires)::bigint, max_attempts,
  extract(epoch FROM next_at)::bigint, enabled::int, 'texttexttexttext' FROM schedule WHERE name = $1`,
	setNextFire: `UPDATE schedule SET next_at = to_timestamp($1::bigint) WHERE name = $2`,
	addWorker: `INSERT INTO worker (worker, queue, host, boot, pid_space, pid, pid_start, version, slots, since, seen_at)
VALUES ($1, $2, 'far', '', '', 0, 0, '', $3, to_timestamp($4::bigint / 1000.0), to_timestamp($4::bigint / 1000.0))`,
	// The lock of a table in the mode EXCLUSIVE lets others read it.
	holdWriter: `BEGIN; DO $$ BEGIN EXECUTE (SELECT 'LOCK TABLE ' || string_agg(quote_ident(table_name), ', ') || ' IN EXCLUSIVE MODE'
  FROM information_schema.tables WHERE table_schema = current_schema() AND table_type = 'BASE TABLE'); END $$`,
	// The rows of processes and minutes change while nothing else does.
	listTables: `SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema() AND table_name NOT IN ('process', 'minute') ORDER BY 1`,
}

// translated is the statement for q. A *sql.Tx or *sql.Conn of a testing/synctest bubble is on a file.
func translated(q any, statement string) string {
	onFile := wake.InBubble()
	if pool, ok := q.(*sql.DB); ok {
		onFile = fmt.Sprintf("%T", pool.Driver()) != "*stdlib.Driver" // of pgx
	}
	if other, ok := statements[statement]; ok && !onFile {
		return other
	}
	return statement
}

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
	db, closePool, err := honkerpg.AttachDSN(context.Background(), dsnOf(name), &honkerpg.Options{Options: *opts, Schema: schema})
	require.NoError(t, err)
	t.Cleanup(closePool)
	t.Cleanup(func() { require.NoError(t, db.Close()) }) // runs before the pool is closed
	return db
}
