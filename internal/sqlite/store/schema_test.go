package store_test

import (
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/sqlite/store/jobs"
	"github.com/honker-go/honker/internal/sqlite/store/schedules"
	"github.com/honker-go/honker/internal/sqlite/store/schema"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/row"
)

var honkerTables = []string{
	"_honker_dead", "_honker_live", "_honker_locks", "_honker_notifications", "_honker_rate_limits",
	"_honker_results", "_honker_scheduler_tasks", "_honker_stream", "_honker_stream_consumers",
}

// schemaRows returns the file's objects by name, with whitespace removed.
func schemaRows(t *testing.T, q row.Querier) map[string]string {
	t.Helper()
	out := make(map[string]string)
	for _, name := range lines(t, q, `SELECT name FROM sqlite_schema`) {
		text := value(t, q, `SELECT type || ' ' || tbl_name || ' ' || coalesce(sql, '') FROM sqlite_schema WHERE name = ?1`, name)
		out[name] = strings.Join(strings.Fields(strings.ReplaceAll(strings.ReplaceAll(text, "(", " ( "), ")", " ) ")), " ")
	}
	return out
}

func columns(t *testing.T, q row.Querier, table string) []string {
	t.Helper()
	return lines(t, q, `SELECT * FROM pragma_table_info(?1)`, table)
}

func current(t *testing.T, q row.Querier) bool {
	t.Helper()
	ok, err := schema.Current(ctx, q)
	require.NoError(t, err)
	return ok
}

// Bootstrap makes a fresh file current.
func TestSchema_Fresh(t *testing.T) {
	db := open(t, newPath(t))
	require.False(t, current(t, db))
	require.NoError(t, bootstrap(db, schema.Schema))
	require.True(t, current(t, db))
	broken, err := schema.Check(ctx, db)
	require.NoError(t, err)
	require.Empty(t, broken)
}

// unchanged runs do and requires that another connection sees no commit.
func unchanged(t *testing.T, path string, do func()) {
	t.Helper()
	watcher := openPlain(t, path)
	before := value(t, watcher, `PRAGMA data_version`)
	do()
	require.Equal(t, before, value(t, watcher, `PRAGMA data_version`), "something was written")
}

// A second bootstrap writes nothing.
func TestSchema_SecondBootstrap(t *testing.T) {
	path := newPath(t)
	db := openBootstrapped(t, path)
	unchanged(t, path, func() { require.NoError(t, bootstrap(db, schema.Schema)) })

	watcher := openPlain(t, path) // verify that data_version detects a commit
	before := value(t, watcher, `PRAGMA data_version`)
	exec(t, db, `INSERT INTO _honker_live (queue, payload) VALUES ('a', '1')`)
	require.NotEqual(t, before, value(t, watcher, `PRAGMA data_version`))
}

func TestBootstrap_SameSchemaInEitherOrder(t *testing.T) {
	ours, theirs := newPath(t), newPath(t)
	oursFirst := openBootstrapped(t, ours)
	honkerBootstrap(t, openPlain(t, ours))

	honkerBootstrap(t, openPlain(t, theirs))
	theirsFirst := openBootstrapped(t, theirs)

	require.Equal(t, schemaRows(t, oursFirst), schemaRows(t, theirsFirst))
	unchanged(t, ours, func() { honkerBootstrap(t, openPlain(t, ours)) })
	require.NoError(t, bootstrap(oursFirst, schema.Schema))
}

// A fresh file has the right indexes on jobs.
func TestSchema_JobIndexes(t *testing.T) {
	const indexes = `SELECT name FROM sqlite_schema WHERE type = 'index' AND tbl_name = '_honker_live' ORDER BY name`
	right := []string{
		"_honker_live_processing_deadline", "_honkerx_live_deadline", "_honkerx_live_exhausted", "_honkerx_live_held", "_honkerx_live_pending",
	}
	require.Equal(t, right, lines(t, openFresh(t), indexes))
	shared := append(right, "_honker_live_claim", "_honker_live_pending_deadline")
	require.ElementsMatch(t, shared, lines(t, openShared(t), indexes), "honker's own are kept")
}

// honker's tables have the same columns as those that honker creates.
func TestSchema_AsHonker(t *testing.T) {
	theirs := openPlain(t, newPath(t))
	honkerBootstrap(t, theirs)
	ours := openFresh(t)
	for _, table := range honkerTables {
		require.NotEmpty(t, columns(t, theirs, table))
		require.Equal(t, columns(t, theirs, table), columns(t, ours, table), table)
	}
	const autoincrement = `SELECT name FROM sqlite_schema WHERE sql LIKE '%AUTOINCREMENT%' AND name LIKE '\_honker\_%' ESCAPE '\' ORDER BY name`
	require.Equal(t, []string{"_honker_live", "_honker_notifications", "_honker_stream"}, lines(t, ours, autoincrement))
}

// All other objects in the file have this library's prefix.
func TestSchema_Prefix(t *testing.T) {
	theirs := openPlain(t, newPath(t))
	honkerBootstrap(t, theirs)
	known := schemaRows(t, theirs)
	for name := range schemaRows(t, openFresh(t)) {
		if _, honkers := known[name]; !honkers {
			require.Contains(t, name, "_honkerx_")
		}
	}
}

// Concurrent bootstraps of a file all succeed.
func TestSchema_Concurrent(t *testing.T) {
	ddl := schema.Schema
	want := schemaRows(t, openFresh(t))
	for range 5 {
		path := newPath(t)
		dbs := []*sql.DB{open(t, path), open(t, path)}
		errs := make([]error, len(dbs))
		var wg sync.WaitGroup
		for i, db := range dbs {
			wg.Go(func() { errs[i] = bootstrap(db, ddl) })
		}
		wg.Wait()
		require.Equal(t, make([]error, len(dbs)), errs)
		require.Equal(t, want, schemaRows(t, dbs[0]))
	}
}

// Bootstrap upgrades files from earlier honker releases and keeps their rows.
func TestSchema_OlderFiles(t *testing.T) {
	for release, made := range map[string][]string{
		"before 0.2.2": {honkerLive, honkerClaimIndex, honkerTasksFirst},
		"0.2.3":        {honkerLive, honkerClaimIndex, honkerPendingIndex, honkerProcessingIndex, honkerTasksFirst},
		"0.2.4":        {honkerLive, honkerClaimIndex, honkerPendingIndex, honkerProcessingIndex, honkerTasksEnabled},
	} {
		t.Run(release, func(t *testing.T) {
			path := newPath(t)
			old := openPlain(t, path)
			execAll(t, old, slices.Concat(honkerAttach, made, honkerRest))
			exec(t, old, `INSERT INTO _honker_scheduler_tasks (name, queue, cron_expr, payload, next_fire_at) VALUES ('t', 'a', '@every 5s', '1', 99)`)
			exec(t, old, `INSERT INTO _honker_live (id, queue, payload, run_at, created_at) VALUES (41, 'a', '"old"', 5, 5)`)

			db := openBootstrapped(t, path)
			require.Equal(t, []string{"t|a|@every 5s|1|0|NULL|99|1|3"}, lines(t, db, `SELECT * FROM _honker_scheduler_tasks`))
			jobs, _, err := claim(db, "a", "w", 1, 10, 20)
			require.NoError(t, err)
			require.Equal(t, []int64{41}, idsOf(jobs, jobID))

			fresh := openFresh(t)
			for _, table := range honkerTables {
				require.Equal(t, columns(t, fresh, table), columns(t, db, table), table)
			}
			names := slices.Collect(maps.Keys(schemaRows(t, db)))
			for name := range schemaRows(t, fresh) {
				require.Contains(t, names, name)
			}
		})
	}
}

// Tables that versions 4 to 7 created or changed.
var later = []string{
	"_honkerx_job", "_honkerx_unique", "_honkerx_dead_job", "_honkerx_gone", "_honkerx_queues", "_honkerx_keys", "_honkerx_done",
	"_honkerx_after", "_honkerx_batches", "_honkerx_attempts", "_honkerx_workers", "_honkerx_minutes", "_honkerx_audit", "_honkerx_cancelled",
}

// A version 3 file keeps its side rows and gets the tables and columns for keys, pauses and later
// features.
func TestSchema_Version3(t *testing.T) {
	db := openFresh(t)
	for _, table := range later {
		exec(t, db, `DROP TABLE `+table)
	}
	execAll(t, db, []string{
		`CREATE TABLE _honkerx_job (job_id INTEGER PRIMARY KEY, last_error TEXT)`,
		`INSERT INTO _honker_live (id, queue, payload, run_at) VALUES (1, 'a', '1', 5)`,
		`INSERT INTO _honkerx_job VALUES (1, 'out of paper')`,
		`UPDATE _honkerx_meta SET value = '3' WHERE key = 'schema_version'`,
	})
	require.NoError(t, bootstrap(db, schema.Schema))
	require.Equal(t, []string{"1|out of paper|NULL"}, lines(t, db, `SELECT job_id, last_error, unique_key FROM _honkerx_job`))
	requireFreshShape(t, db)
	require.Equal(t, row.PlacedNew, keyed(t, db, jobs.Unique{}).Result)
	broken, err := schema.Check(ctx, db)
	require.NoError(t, err)
	require.Empty(t, broken)
}

// requireFreshShape requires the columns and indexes of a fresh file. It ignores triggers, which
// are created for keys and pauses.
func requireFreshShape(t *testing.T, db *sql.DB) {
	t.Helper()
	fresh := openFresh(t)
	for _, table := range later {
		require.NotEmpty(t, columns(t, fresh, table), table)
		require.Equal(t, columns(t, fresh, table), columns(t, db, table), table)
	}
	const others = `SELECT name FROM sqlite_schema WHERE type <> 'table' AND name NOT LIKE '%unique%' AND name <> '_honkerx_gate' ORDER BY name`
	require.Equal(t, lines(t, fresh, others), lines(t, db, others))
}

// A version 4 file gets the missing columns, and its key triggers copy the new columns.
func TestSchema_Version4(t *testing.T) {
	db := openFresh(t)
	for _, table := range []string{
		"_honkerx_job", "_honkerx_dead_job", "_honkerx_gone", "_honkerx_queues", "_honkerx_keys", "_honkerx_done",
		"_honkerx_after", "_honkerx_batches", "_honkerx_attempts", "_honkerx_workers", "_honkerx_minutes", "_honkerx_audit",
	} {
		exec(t, db, `DROP TABLE `+table)
	}
	execAll(t, db, []string{
		`CREATE TABLE _honkerx_job (job_id INTEGER PRIMARY KEY, last_error TEXT, queue TEXT, unique_key TEXT, unique_until INTEGER)`,
		`CREATE TABLE _honkerx_dead_job (job_id INTEGER PRIMARY KEY, unique_key TEXT, unique_until INTEGER)`,
		`CREATE TABLE _honkerx_gone (slot INTEGER PRIMARY KEY, job_id INTEGER NOT NULL, unique_key TEXT, unique_until INTEGER)`,
		`CREATE TABLE _honkerx_queues (queue TEXT PRIMARY KEY, paused_ms INTEGER, until_ms INTEGER, reason TEXT, who TEXT) WITHOUT ROWID`,
		`CREATE TRIGGER _honkerx_unique_gone AFTER DELETE ON _honkerx_job WHEN OLD.unique_key IS NOT NULL
BEGIN DELETE FROM _honkerx_unique WHERE queue = OLD.queue AND key = OLD.unique_key; END`,
		`CREATE TRIGGER _honkerx_unique_dead AFTER INSERT ON _honker_dead BEGIN SELECT 1; END`,
		`INSERT INTO _honker_live (id, queue, payload, run_at) VALUES (1, 'a', '1', 5)`,
		`INSERT INTO _honkerx_job VALUES (1, NULL, 'a', 'k', 0)`,
		`INSERT INTO _honkerx_unique (queue, key, job_id, first_ms) VALUES ('a', 'k', 1, 5)`,
		`INSERT INTO _honkerx_queues VALUES ('b', 5000, NULL, 'deploy', NULL)`,
		`UPDATE _honkerx_meta SET value = '4' WHERE key = 'schema_version'`,
	})
	require.False(t, current(t, db))
	require.NoError(t, bootstrap(db, schema.Schema))
	require.True(t, current(t, db))
	requireFreshShape(t, db)
	require.Contains(t, schemaRows(t, db), "_honkerx_gate")
	require.Equal(t, []string{"b|5000|deploy|NULL"}, lines(t, db, `SELECT queue, paused_ms, reason, done_count FROM _honkerx_queues`))

	exec(t, db, `UPDATE _honkerx_job SET headers = '{"tenant":"acme"}'`)
	require.EqualValues(t, 1, die(t, db))
	require.Equal(t, `1|k|{"tenant":"acme"}`, value(t, db, `SELECT job_id, unique_key, headers FROM _honkerx_dead_job`))
}

// A version 7 file keeps how its schedules handle missed times, and gets the columns of last fires and the table of starts.
func TestSchema_Version7(t *testing.T) {
	db := openFresh(t)
	execAll(t, db, []string{
		`DROP TABLE _honkerx_starts`,
		`DROP TABLE _honkerx_schedules`,
		`CREATE TABLE _honkerx_schedules (name TEXT PRIMARY KEY, missed INTEGER NOT NULL) WITHOUT ROWID`,
		`INSERT INTO _honkerx_schedules VALUES ('t', 2)`,
		`INSERT INTO _honker_scheduler_tasks (name, queue, cron_expr, payload, next_fire_at) VALUES ('t', 'a', '@every 5s', '1', 99)`,
		`UPDATE _honkerx_meta SET value = '7' WHERE key = 'schema_version'`,
	})
	require.False(t, current(t, db))
	require.NoError(t, bootstrap(db, schema.Schema))
	require.True(t, current(t, db))
	for _, table := range []string{"_honkerx_starts", "_honkerx_schedules"} {
		require.Equal(t, columns(t, openFresh(t), table), columns(t, db, table), table)
	}
	all, err := schedules.Schedules{}.List(ctx, db, "t")
	require.NoError(t, err)
	require.Equal(t, row.Skip, all[0].Missed)
	require.Zero(t, all[0].LastJob)
}

// A version 8 file gets the column that marks the jobs of a requeue, and keeps the jobs requeued before.
func TestSchema_Version8(t *testing.T) {
	db := openFresh(t)
	execAll(t, db, []string{
		`ALTER TABLE _honkerx_job DROP COLUMN requeue`,
		`INSERT INTO _honker_live (id, queue, payload, attempts) VALUES (1, 'a', '1', 3)`,
		`INSERT INTO _honkerx_job (job_id, last_error, base) VALUES (1, 'no', 3)`,
		`UPDATE _honkerx_meta SET value = '8' WHERE key = 'schema_version'`,
	})
	require.False(t, current(t, db))
	require.NoError(t, bootstrap(db, schema.Schema))
	require.True(t, current(t, db))
	require.Equal(t, columns(t, openFresh(t), "_honkerx_job"), columns(t, db, "_honkerx_job"))
	require.NoError(t, jobs.Jobs{}.MarkRequeued(ctx, db, []int64{1}, 7))
	require.Equal(t, "3|7", value(t, db, `SELECT base, requeue FROM _honkerx_job`))
}

// A version 5 file with a paused queue gets a trigger that respects limits, and keeps its pause.
func TestSchema_Version5(t *testing.T) {
	db := openFresh(t)
	exec(t, db, `DROP INDEX _honkerx_job_key`)
	for _, c := range [][2]string{{"_honkerx_job", "wait"}, {"_honkerx_job", "requeue"}, {"_honkerx_queues", "keys_paused"}, {"_honkerx_queues", "claim_ms"}, {"_honkerx_keys", "next_ms"},
		{"_honkerx_queues", "fit_job"}, {"_honkerx_queues", "fit_key"}, {"_honkerx_queues", "fit_rate"}} {
		exec(t, db, `ALTER TABLE `+c[0]+` DROP COLUMN `+c[1])
	}
	execAll(t, db, []string{
		`CREATE INDEX _honkerx_job_runs ON _honkerx_job(queue, key) WHERE slot = 1`,
		`CREATE INDEX _honkerx_job_held ON _honkerx_job(queue, key, priority DESC, run_at, job_id) WHERE slot = 2`,
		`INSERT INTO _honkerx_queues (queue, paused_ms, done_count, done_age_ms, done_kept) VALUES ('b', 5000, 7, 0, 0)`,
		`CREATE TRIGGER _honkerx_gate BEFORE UPDATE OF state ON _honker_live
WHEN NEW.state = 'processing' AND EXISTS (SELECT 1 FROM _honkerx_queues
  WHERE queue = OLD.queue AND paused_ms IS NOT NULL AND (until_ms IS NULL OR until_ms > unixepoch() * 1000))
BEGIN
  SELECT RAISE(IGNORE);
END`,
		`UPDATE _honkerx_meta SET value = '5' WHERE key = 'schema_version'`,
	})
	require.False(t, current(t, db))
	require.NoError(t, bootstrap(db, schema.Schema))
	require.Equal(t, []string{"b|5000|7"}, lines(t, db, `SELECT queue, paused_ms, done_count FROM _honkerx_queues`))
	require.Contains(t, value(t, db, `SELECT sql FROM sqlite_schema WHERE name = '_honkerx_gate'`), "running")
	broken, err := schema.Check(ctx, db)
	require.NoError(t, err)
	require.Empty(t, broken)

	tx := begin(t, db)
	ended, err := jobs.Pauses{}.End(ctx, tx, "b", "", time.Unix(6, 0))
	require.NoError(t, err)
	require.True(t, ended)
	require.NoError(t, tx.Commit())
	requireFreshShape(t, db)
	require.NotContains(t, schemaRows(t, db), "_honkerx_gate")
}

// A version 6 file with limits on keys gets triggers that respect cancelled jobs, and its held job
// stays held.
func TestSchema_Version6(t *testing.T) {
	db := openFresh(t)
	tx := begin(t, db)
	_, err := jobs.Limits{}.Set(ctx, tx, "a", row.QueueLimits{PerKey: 1})
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	for _, name := range lines(t, db, `SELECT name FROM sqlite_schema WHERE type = 'trigger' AND name GLOB '_honkerx_key*'`) {
		exec(t, db, `DROP TRIGGER `+name)
	}
	execAll(t, db, []string{
		`CREATE TRIGGER _honkerx_key_gate BEFORE UPDATE OF state ON _honker_live WHEN 0 BEGIN SELECT 1; END`,
		`DROP TABLE _honkerx_cancelled`,
		`ALTER TABLE _honkerx_queues DROP COLUMN fit_job`,
		`ALTER TABLE _honkerx_queues DROP COLUMN fit_key`,
		`ALTER TABLE _honkerx_queues DROP COLUMN fit_rate`,
		`INSERT INTO _honker_live (id, queue, payload, run_at, state, worker_id, claim_expires_at, attempts) VALUES (1, 'a', '1', 5, 'processing', 'w', 99, 1)`,
		`INSERT INTO _honker_live (id, queue, payload, run_at, state) VALUES (2, 'a', '1', 5, 'held')`,
		`INSERT INTO _honkerx_job (job_id, queue, key, slot) VALUES (1, 'a', 'k', 1)`,
		`INSERT INTO _honkerx_job (job_id, queue, key, slot, priority, run_at) VALUES (2, 'a', 'k', 2, 0, 5)`,
		`UPDATE _honkerx_meta SET value = '6' WHERE key = 'schema_version'`,
	})
	require.False(t, current(t, db))
	require.NoError(t, bootstrap(db, schema.Schema))
	require.True(t, current(t, db))
	broken, err := schema.Check(ctx, db)
	require.NoError(t, err)
	require.Empty(t, broken)
	require.Contains(t, value(t, db, `SELECT sql FROM sqlite_schema WHERE name = '_honkerx_key_gate'`), "_honkerx_cancelled")
	require.Contains(t, schemaRows(t, db), "_honkerx_key_freed")
	require.Equal(t, []string{"1|1", "2|2"}, lines(t, db, `SELECT job_id, slot FROM _honkerx_job`))
}

// Bootstrap completes a file that has only the notifications table, which is all that a binding
// creates when it opens a connection.
func TestSchema_NotificationsOnly(t *testing.T) {
	path := newPath(t)
	execAll(t, openPlain(t, path), honkerAttach)
	require.Equal(t, schemaRows(t, openFresh(t)), schemaRows(t, openBootstrapped(t, path)))
}

// Bootstrap leaves the application's own tables in the file unchanged.
func TestSchema_ApplicationFile(t *testing.T) {
	path := newPath(t)
	app := openPlain(t, path)
	for _, s := range []string{
		`PRAGMA page_size = 8192`, `PRAGMA user_version = 42`, `PRAGMA application_id = 4660`,
		`CREATE TABLE orders (id INTEGER PRIMARY KEY, total REAL)`,
		`CREATE INDEX orders_by_total ON orders(total)`,
		`INSERT INTO orders VALUES (1, 9.5)`,
	} {
		exec(t, app, s)
	}
	before := schemaRows(t, app)
	db := openBootstrapped(t, path)
	for pragma, want := range map[string]string{"page_size": "8192", "user_version": "42", "application_id": "4660"} {
		require.Equal(t, want, value(t, db, `PRAGMA `+pragma), pragma)
	}
	require.Equal(t, []string{"1|9.5"}, lines(t, db, `SELECT * FROM orders`))
	after := schemaRows(t, db)
	for name, text := range before {
		require.Equal(t, text, after[name])
	}
}

// A file from a newer version is rejected and not changed.
func TestSchema_NewerFile(t *testing.T) {
	path := newPath(t)
	db := openBootstrapped(t, path)
	exec(t, db, `UPDATE _honkerx_meta SET value = ?1 WHERE key = 'schema_version'`, fmt.Sprint(schema.Version+1))
	exec(t, db, `DROP TABLE _honker_locks`) // as a newer version might do
	unchanged(t, path, func() {
		require.ErrorIs(t, bootstrap(db, schema.Schema), engine.ErrSchemaTooNew)
		_, err := schema.Current(ctx, db)
		require.ErrorIs(t, err, engine.ErrSchemaTooNew)
	})
}

// It is an error if the schema version isn't a number.
func TestSchema_BadVersion(t *testing.T) {
	path := newPath(t)
	db := openBootstrapped(t, path)
	exec(t, db, `UPDATE _honkerx_meta SET value = 'soon'`)
	unchanged(t, path, func() { require.ErrorContains(t, bootstrap(db, schema.Schema), `"soon"`) })
}

// Bootstrap completes a file in which only some of the tables exist.
func TestSchema_HalfMade(t *testing.T) {
	path := newPath(t)
	db := openBootstrapped(t, path)
	want := schemaRows(t, db)
	exec(t, db, `DELETE FROM _honkerx_meta`)
	exec(t, db, `DROP TRIGGER _honkerx_job_gone`)
	exec(t, db, `DROP INDEX _honkerx_live_pending`)
	require.False(t, current(t, db))
	require.NoError(t, bootstrap(db, schema.Schema))
	require.True(t, current(t, db))
	require.Equal(t, want, schemaRows(t, db))
}

// A bootstrap that fails midway leaves no changes.
func TestSchema_AllOrNothing(t *testing.T) {
	db := open(t, newPath(t))
	require.Error(t, bootstrap(db, schema.Schema+"\nCREATE TABLE broken (;\n"))
	require.Empty(t, lines(t, db, `SELECT name FROM sqlite_schema`))
}
