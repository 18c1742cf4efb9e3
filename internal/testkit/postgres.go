//go:build honkerpg && unix

package testkit

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
)

func init() {
	engine.Elsewhere, watchSchema = openDatabase, watchDump
	CountJobs = `SELECT (SELECT count(*) FROM job) + (SELECT count(*) FROM dead)`
	CountQueue = `SELECT count(*) FROM job WHERE queue = $1`
	LockExpiry = `SELECT coalesce((SELECT extract(epoch FROM expires_at)::bigint FROM lock WHERE name = $1), 0)`
	CountAllowed = `SELECT coalesce(sum(count), 0)::bigint FROM rate`
	expireClaim = `UPDATE job SET lease_until = clock_timestamp() - interval '1 second' WHERE id = $1`
	makeDue = `UPDATE job SET run_at = clock_timestamp() WHERE id = $1`
	getLeader = `SELECT owner, extract(epoch FROM expires_at)::bigint FROM lock WHERE name = 'honker-scheduler'`
	getSchedule = `SELECT name, queue, spec, payload, priority, extract(epoch FROM expires)::bigint, max_attempts,
  extract(epoch FROM next_at)::bigint, enabled::int, 'texttexttexttext' FROM schedule WHERE name = $1`
	setNextFire = `UPDATE schedule SET next_at = to_timestamp($1::bigint) WHERE name = $2`
	addWorker = `INSERT INTO worker (worker, queue, host, boot, pid_space, pid, pid_start, version, slots, since, seen_at)
VALUES ($1, $2, 'far', '', '', 0, 0, '', $3, to_timestamp($4::bigint / 1000.0), to_timestamp($4::bigint / 1000.0))`
	// The processes' rows change while nothing else does.
	listTables = `SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema() AND table_name <> 'process' ORDER BY 1`
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
