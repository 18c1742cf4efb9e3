// Package schema creates, upgrades and checks the tables.
package schema

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/jobs"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// Schema creates honker's tables and the _honkerx_ tables, with comments on each table.
//
//go:embed schema.sql
var Schema string

// Version is the schema version of the _honkerx_ tables that this package writes.
const Version = 9

const (
	sqlHasMeta = `SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = '_honkerx_meta'`
	sqlVersion = `SELECT value FROM _honkerx_meta WHERE key = 'schema_version'`

	sqlSetVersion = `INSERT INTO _honkerx_meta (key, value) VALUES ('schema_version', ?1)
ON CONFLICT (key) DO UPDATE SET value = excluded.value`
)

// laterColumns lists the columns that were added to a table after its first release, in the order
// of schema.sql. It covers both honker's tables and this package's own.
var laterColumns = []struct {
	table   string
	columns []string // with their types
}{
	{"_honker_scheduler_tasks", []string{"enabled INTEGER NOT NULL DEFAULT 1", "max_attempts INTEGER NOT NULL DEFAULT 3"}},
	{"_honkerx_job", []string{"queue TEXT", "unique_key TEXT", "unique_until INTEGER", "base INTEGER", "headers TEXT",
		"key TEXT", "slot INTEGER", "priority INTEGER", "run_at INTEGER", "batch INTEGER", "progress TEXT", "checkpoint TEXT", "wait INTEGER", "requeue INTEGER"}},
	{"_honkerx_dead_job", laterKept},
	{"_honkerx_gone", laterKept},
	{"_honkerx_queues", []string{"running INTEGER", "per_key INTEGER", "in_order INTEGER",
		"rate_n INTEGER", "rate_per_ms INTEGER", "rate_burst INTEGER", "rate_tat_ms INTEGER",
		"key_rate_n INTEGER", "key_rate_per_ms INTEGER", "key_rate_burst INTEGER",
		"done_count INTEGER", "done_age_ms INTEGER", "done_kept INTEGER", "dead_count INTEGER", "dead_age_ms INTEGER",
		"keys_paused INTEGER", "claim_ms INTEGER", "fit_job INTEGER", "fit_key TEXT", "fit_rate INTEGER"}},
	{"_honkerx_keys", []string{"next_ms INTEGER"}},
	{"_honkerx_consumers", []string{"mark_ms INTEGER", "mark_offset INTEGER", "mark_behind_ms INTEGER",
		"past_ms INTEGER", "past_offset INTEGER", "past_behind_ms INTEGER"}},
	{"_honkerx_schedules", []string{"last_fire_ms INTEGER", "last_job INTEGER", "last_skip_ms INTEGER", "skipped INTEGER"}},
}

var laterKept = []string{"base INTEGER", "headers TEXT", "key TEXT", "batch INTEGER", "progress TEXT", "checkpoint TEXT"}

// Current reports whether the file has this version's schema, so that opening it needs no write. For a newer schema
// it returns ErrSchemaTooNew.
func Current(ctx context.Context, q row.Querier) (bool, error) {
	version, err := versionOf(ctx, q)
	return version == Version, err
}

// versionOf returns the version of our own tables, or 0 if they don't exist.
func versionOf(ctx context.Context, q row.Querier) (int, error) {
	var x int
	found, err := rows.One(ctx, q, sqlHasMeta, nil, &x)
	if err != nil || !found {
		return 0, err
	}
	var text string
	if found, err = rows.One(ctx, q, sqlVersion, nil, &text); err != nil || !found {
		return 0, err
	}
	version, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("schema_version %q is not a number", text)
	}
	if version > Version {
		return 0, fmt.Errorf("%w: the file has version %d, and this library supports versions up to %d", engine.ErrSchemaTooNew, version, Version)
	}
	return version, nil
}

// Bytes 18 and 19 of the header are 2 in WAL mode; see https://sqlite.org/fileformat.html.
const sqlIsWAL = `SELECT hex(substr(data, 19, 2)) = '0202' FROM sqlite_dbpage WHERE pgno = 1`

// IsWAL reports whether the file is in WAL mode. It also works on a file opened as immutable, for
// which a PRAGMA does not report the mode.
func IsWAL(ctx context.Context, q row.Querier) (is bool, err error) {
	_, err = rows.One(ctx, q, sqlIsWAL, nil, &is)
	return is, err
}

const sqlHasTables = `SELECT count(*) > 0 FROM sqlite_schema WHERE type = 'table' AND name IN ('_honker_live', '_honkerx_meta')`

// Made returns the schema version of our own tables, or 0 if only another binding has used the file. ours is false if
// the file has none of honker's tables. For a newer version it returns ErrSchemaTooNew.
func Made(ctx context.Context, q row.Querier) (version int, ours bool, err error) {
	if version, err = versionOf(ctx, q); err != nil || version > 0 {
		return version, true, err
	}
	_, err = rows.One(ctx, q, sqlHasTables, nil, &ours)
	return 0, ours, err
}

// Bootstrap upgrades the file to this version. It runs inside the caller's write transaction, and
// accepts current files and files created by another binding.
func Bootstrap(ctx context.Context, q row.Querier, ddl string) error {
	if current, err := Current(ctx, q); err != nil || current {
		return err
	}
	tables, others := rows.SplitTables(rows.SplitDDL(ddl))
	if err := rows.ExecAll(ctx, q, tables); err != nil {
		return err
	}
	for _, later := range laterColumns {
		for _, column := range later.columns {
			if err := rows.AddColumn(ctx, q, later.table, column); err != nil {
				return err
			}
		}
	}
	if err := rows.ExecAll(ctx, q, others); err != nil {
		return err
	}
	if err := jobs.RenewTriggers(ctx, q); err != nil {
		return err
	}
	_, err := q.ExecContext(ctx, sqlSetVersion, strconv.Itoa(Version))
	return err
}
