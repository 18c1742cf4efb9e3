package model_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

// on returns the statement for the database that the tests run on: a file or a server.
func on(file, server string) string {
	if testkit.OnFile() {
		return file
	}
	return server
}

// unit is the resolution of times: a second in a file, a microsecond on a server.
func unit() time.Duration {
	if testkit.OnFile() {
		return time.Second
	}
	return time.Microsecond
}

// fine is the resolution of the times that a file stores in milliseconds.
func fine() time.Duration { return min(unit(), time.Millisecond) }

// now returns the current time, rounded down to the unit.
func now() time.Time { return round(time.Now(), unit(), 0) }

// ceil returns the first time from t on that is a multiple of the unit.
func ceil(t time.Time) time.Time { return round(t, unit(), unit()-1) }

// round returns t + more, rounded down to the unit to, as honker returns times.
func round(t time.Time, to, more time.Duration) time.Time {
	t = t.Add(more).Truncate(to)
	return time.Unix(t.Unix(), int64(t.Nanosecond()))
}

// notBefore returns the first time of the unit that is at least d from now.
func notBefore(d time.Duration) time.Time {
	if d <= 0 {
		return now()
	}
	return ceil(time.Now().Add(d))
}

// later returns the last moment of a lease that begins now. In a file, it begins with the second.
func later(now time.Time, d time.Duration) time.Time {
	if testkit.OnFile() {
		return ceil(now.Add(d))
	}
	return ceil(time.Now().Add(d))
}

// startSecond waits for the next second. Each check starts at a whole second.
func startSecond() { time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) }

// column returns the values of a query with a single column.
func column[V any](t require.TestingT, db *honker.DB, query string, args ...any) (all []V) {
	rows, err := db.SQL().Query(query, args...)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var v V
		require.NoError(t, rows.Scan(&v))
		all = append(all, v)
	}
	require.NoError(t, rows.Err())
	return all
}

// exec runs a statement and returns the number of rows that it has changed.
func exec(t require.TestingT, db *honker.DB, query string, args ...any) int64 {
	res, err := db.SQL().ExecContext(context.Background(), query, args...)
	require.NoError(t, err)
	n, err := res.RowsAffected()
	require.NoError(t, err)
	return n
}

// requireMet fails the test if an event has never happened, unless the test is short. Events whose names begin with
// "foreign" are those of other bindings, which only a file has.
func requireMet(t *testing.T, met map[string]int, events ...string) {
	t.Helper()
	for _, what := range events {
		if !testkit.OnFile() && strings.HasPrefix(what, "foreign") {
			continue
		}
		require.True(t, met[what] > 0 || testing.Short(), "the property holds because nothing happened: %s", what)
	}
}

// skipForeign skips a step of another binding if the tests do not run on a file.
func skipForeign(t *rapid.T) {
	if !testkit.OnFile() {
		t.Skip("only a file has other bindings")
	}
}

// clearEvents deletes all events and deliveries. The next event has the offset 1.
func clearEvents(t require.TestingT, db *honker.DB) {
	exec(t, db, on(`DELETE FROM _honker_stream`, `DELETE FROM event`))
	exec(t, db, on(`DELETE FROM _honkerx_group_claims`, `DELETE FROM delivery`))
	exec(t, db, on(`DELETE FROM sqlite_sequence WHERE name = '_honker_stream'`, `ALTER TABLE event ALTER COLUMN "offset" RESTART`))
	if !testkit.OnFile() {
		exec(t, db, `DELETE FROM deleted`)
	}
}

// clearSchedules deletes all schedules and live jobs.
func clearSchedules(t require.TestingT, db *honker.DB) {
	exec(t, db, on(`DELETE FROM _honker_scheduler_tasks`, `DELETE FROM schedule`))
	exec(t, db, on(`DELETE FROM _honker_live`, `DELETE FROM job`))
}

// jobTables are the tables of jobs.
func jobTables() []string {
	if testkit.OnFile() {
		return []string{"_honker_live", "_honker_dead", "_honkerx_dead_job", "_honkerx_done"}
	}
	return []string{"job", "dead", "done"}
}

// addEvent stores an event as any client may, and another in the topic "elsewhere".
func addEvent(t require.TestingT, db *honker.DB, topic string, key []byte, payload string) {
	exec(t, db, on(`INSERT INTO _honker_stream (topic, key, payload) VALUES ($1, CAST($2 AS TEXT), $3), ('elsewhere', 'a', '-1')`,
		`INSERT INTO event (created_at, topic, key, payload) VALUES (now(), $1, convert_from($2, 'UTF8'), $3), (now(), 'elsewhere', 'a', '-1')`),
		topic, key, payload)
}

// requireNoTriggers asserts that a file has no trigger of limits.
func requireNoTriggers(t require.TestingT, db *honker.DB) {
	if testkit.OnFile() {
		require.Empty(t, column[string](t, db, `SELECT name FROM sqlite_schema WHERE type = 'trigger' AND (name GLOB '_honkerx_key*' OR name IN ('_honkerx_gate', '_honkerx_rate'))`))
	}
}
