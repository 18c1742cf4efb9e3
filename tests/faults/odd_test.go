//go:build unix

package faults_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// oddValues lists values that SQLite stores in a column of any type.
var oddValues = []string{"NULL", "-1", "9223372036854775807", "-9223372036854775808", "1.5", "1e300", "-1e300", "'abc'", "''", "x'ff00'", "x''",
	"'2024-01-01 00:00:00'", "char(0)", "'a'||char(0)||'b'", "zeroblob(3000)"}

// oddTables lists the rows that honker would write to each table. # is replaced by a different
// number in each row.
var oddTables = []struct{ table, columns, values string }{
	{"_honker_live", "id, queue, payload, state, priority, run_at, worker_id, claim_expires_at, attempts, max_attempts, created_at, expires_at",
		"5#, 'q', '1', 'pending', 0, 1, NULL, NULL, 0, 3, 1, NULL"},
	{"_honker_live", "id, queue, payload, state, priority, run_at, worker_id, claim_expires_at, attempts, max_attempts, created_at, expires_at",
		"5#, 'q', '1', 'processing', 0, 1, 'x', 1, 1, 3, 1, NULL"},
	{"_honker_dead", "id, queue, payload, priority, run_at, attempts, max_attempts, last_error, created_at, died_at",
		"5#, 'q', '1', 0, 1, 3, 3, 'e', 1, 1"},
	{"_honker_notifications", "id, channel, payload, created_at", "5#, 'c', '1', 1"},
	{"_honker_locks", "name, owner, expires_at", "'l#', 'x', 1"},
	{"_honker_rate_limits", "name, window_start, count", "'r', #, 1"},
	{"_honker_scheduler_tasks", "name, queue, cron_expr, payload, priority, expires_s, next_fire_at, enabled, max_attempts",
		"'bad#', 'fired', '@every 1s', '1', 0, NULL, 1, 1, 3"},
	{"_honker_results", "job_id, value, created_at, expires_at", "5#, '1', 1, NULL"},
	{"_honker_stream", "offset, topic, key, payload, created_at", "5#, 't', 'k', '1', 1"},
	{"_honker_stream_consumers", "name, topic, offset", "'bad#', 't', 0"},
	{"_honkerx_job", "job_id, last_error", "5#, 'x'"},
	{"_honkerx_consumers", "topic, name, created_ms, last_ack_ms, filter", "'t', 'bad#', 1, 1, NULL"},
	{"_honkerx_retention", "topic, max_count, max_age_ms", "'t#', 100000, 0"},
	{"_honkerx_groups", "id, topic, name, cursor, turn, filter, created_ms", "77#, 't', 'bad#', 0, 0, NULL, 1"},
	{"_honkerx_group_members", "group_id, name, instance, joined_ms, expires_ms", "1, 'bad#', 'x', 1, 1"},
	{"_honkerx_group_claims", "group_id, offset, state, holder, token, deadline_ms, attempts, last_error", "1, #, 1, 'x', 1, 1, 1, NULL"},
}

// oddRows returns an INSERT for each odd value of a column.
func oddRows(table, columns, values string, column int) (all []string) {
	for i, odd := range oddValues {
		row := strings.Split(strings.ReplaceAll(values, "#", fmt.Sprint(i+1)), ", ")
		row[column] = odd
		all = append(all, fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s)", table, columns, strings.Join(row, ", ")))
	}
	return all
}

// fillsTable reports whether the row uses the highest possible id, after which SQLite cannot assign
// another id.
func fillsTable(insert string) bool {
	return slices.ContainsFunc([]string{"_honker_live ", "_honker_notifications ", "_honker_stream "}, func(table string) bool {
		return strings.Contains(insert, table)
	}) && strings.Contains(insert, "VALUES (9223372036854775807")
}

// Rows with unexpected values, written by other programs, do not block valid rows or waiting calls,
// and do not cause busy loops.
func TestOddRows_GoodRowsGoOn(t *testing.T) {
	var files []*troubled
	for _, o := range oddTables {
		for i, column := range strings.Split(o.columns, ", ") {
			inserts := slices.DeleteFunc(oddRows(o.table, o.columns, o.values, i), fillsTable)
			files = append(files, &troubled{name: o.table + "." + column, statements: inserts})
		}
	}
	exerciseAll(t, files)
	for _, f := range files {
		for _, bad := range f.failed {
			t.Errorf("%s: %s", f.name, bad)
		}
	}
}

// Triggers that reject or ignore writes may make verbs fail. Verbs and loops still end with their
// ctx, and no loop spins.
func TestTriggers_NoBusyLoop(t *testing.T) {
	var files []*troubled
	for _, table := range []string{"_honker_live", "_honker_dead", "_honker_notifications", "_honker_locks", "_honker_rate_limits",
		"_honker_scheduler_tasks", "_honker_results", "_honker_stream", "_honker_stream_consumers", "_honkerx_meta", "_honkerx_groups",
		"_honkerx_group_members", "_honkerx_group_claims"} {
		for _, verb := range []string{"INSERT", "UPDATE", "DELETE"} {
			for _, raise := range []string{"IGNORE", "ABORT, 'no'", "ROLLBACK, 'no'"} {
				trigger := fmt.Sprintf("CREATE TRIGGER z BEFORE %s ON %s BEGIN SELECT RAISE(%s); END", verb, table, raise)
				files = append(files, &troubled{name: trigger, statements: append(slices.Clone(work), trigger), mayFail: true})
			}
		}
	}
	exerciseAll(t, files)
	for _, f := range files {
		for _, bad := range f.failed {
			t.Errorf("%s: %s", f.name, bad)
		}
	}
}

// work inserts rows for every loop: due, lapsed, exhausted and expired jobs, returned events, due
// schedules and expired results.
var work = []string{
	`INSERT INTO _honker_live (queue, payload) VALUES ('q', '1'), ('q', '2')`,
	`INSERT INTO _honker_live (queue, payload, expires_at) VALUES ('q', '3', 1)`,
	`INSERT INTO _honker_live (queue, payload, state, worker_id, claim_expires_at, attempts) VALUES ('q', '4', 'processing', 'x', 1, 1), ('q', '5', 'processing', 'x', 1, 3)`,
	`INSERT INTO _honker_stream (topic, payload) VALUES ('t', '1'), ('t', '2'), ('t', '3')`,
	`INSERT INTO _honkerx_group_claims (group_id, offset, state, holder, token, deadline_ms, attempts) VALUES (1, 1, 0, 'x', 1, 1, 1), (1, 2, 1, 'x', 1, 1, 1)`,
	`UPDATE _honkerx_groups SET cursor = 2, turn = 1`,
	`INSERT INTO _honker_scheduler_tasks (name, queue, cron_expr, payload, next_fire_at) VALUES ('due', 'q', '@every 1s', '1', 1)`,
	`INSERT INTO _honker_results (job_id, value, expires_at) VALUES (1, '1', 1)`,
	`INSERT INTO _honkerx_retention (topic, max_count, max_age_ms) VALUES ('t', 1, 0)`,
}
