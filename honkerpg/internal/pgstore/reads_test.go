//go:build unix

package pgstore_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/honkerpg/internal/pgstore"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/honkerpg/internal/pgtest"
	"github.com/honker-go/honker/internal/row"
)

// start is the time of all statements.
var start = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// long returns a schema with 100,000 jobs in the queues "mails", "keyed" and "rare". The server's statistics are of the
// empty tables.
func long(t *testing.T) (pgsql.Schema, *sql.DB) {
	t.Helper()
	schema, db := pgsql.Schema(pgtest.Schema(t)), pool(t)
	require.NoError(t, pgstore.Bootstrap(t.Context(), db, schema))
	exec := func(query string, args ...any) {
		_, err := db.ExecContext(t.Context(), schema.SQL(query), args...)
		require.NoError(t, err)
	}
	for _, table := range []string{"job", "dead", "edge", "place", "token"} {
		exec(`ANALYZE honker.` + table)
	}
	exec(`ALTER TABLE honker.job SET (autovacuum_enabled = off)`)
	exec(`INSERT INTO honker.job (queue, payload, priority, run_at, created_at, batch, key, state)
SELECT CASE WHEN n % 1000 = 0 THEN 'rare' WHEN n % 5 = 0 THEN 'keyed' ELSE 'mails' END, '{}', n % 3, $1::timestamptz + n % 7 * interval '1 hour', $1,
  nullif(n % 1000, n % 10), CASE WHEN n % 5 = 0 AND n % 1000 > 0 THEN (n % 100)::text END, CASE WHEN n % 5 = 0 AND n % 1000 > 0 AND n % 3 > 0 THEN 2 ELSE 0 END
FROM generate_series(1, 100000) n`, start.Add(-3*time.Hour))
	exec(`INSERT INTO honker.dead (id, run_at, created_at, died_at, priority, attempts, max_attempts, queue, payload)
SELECT n, $1, $1, $1::timestamptz + n % 100 * interval '1 second', 0, 3, 3, CASE WHEN n % 2 = 0 THEN 'mails' ELSE 'rare' END, '{}' FROM generate_series(100001, 120000) n`, start)
	return schema, db
}

// reads returns the number of rows of a table that f reads through indexes, and through scans of the whole table.
func reads(t *testing.T, db *sql.DB, schema pgsql.Schema, table string, f func(ctx context.Context, q row.Querier) error) (indexed, scanned int) {
	t.Helper()
	return readsIn(t, db, schema, table, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}, f)
}

// readsIn is reads for a kind of transaction, which it rolls back.
func readsIn(t *testing.T, db *sql.DB, schema pgsql.Schema, table string, opts *sql.TxOptions, f func(ctx context.Context, q row.Querier) error) (indexed, scanned int) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), opts)
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback()) }()
	count := func() (indexed, scanned int) {
		err := tx.QueryRowContext(t.Context(), `SELECT coalesce(max(idx_tup_fetch), 0), coalesce(max(seq_tup_read), 0) FROM pg_stat_xact_user_tables
WHERE schemaname = $1 AND relname = $2`, string(schema), table).Scan(&indexed, &scanned)
		require.NoError(t, err)
		return indexed, scanned
	}
	indexedBefore, scannedBefore := count() // of transactions that the server has not added up yet
	require.NoError(t, f(t.Context(), tx))
	indexed, scanned = count()
	return indexed - indexedBefore, scanned - scannedBefore
}

// A page of a long table reads a page, even if the server's statistics are of the empty table.
func TestLists_ReadPages(t *testing.T) {
	schema, db := long(t)
	read := func(table string, f func(ctx context.Context, q row.Querier) error) (indexed, scanned int) {
		t.Helper()
		return reads(t, db, schema, table, f)
	}
	all, page := pgstore.Stores(schema).Operators, 50
	live := []row.Phase{row.PhaseReady, row.PhaseScheduled}
	for name, r := range map[string]row.ListRequest{
		"newest":           {Order: row.NewestFirst},
		"newest, later":    {Order: row.NewestFirst, After: &row.Place{ID: 50_000}},
		"oldest":           {Order: row.OldestFirst, JobSelect: row.JobSelect{Phases: live}},
		"oldest, filtered": {Order: row.OldestFirst, JobSelect: row.JobSelect{Phases: live, Error: "x", Where: map[string]string{`$."a"`: "1"}}},
		"ids":              {Order: row.NewestFirst, JobSelect: row.JobSelect{IDs: []int64{3, 5, 70_000}}},
		"batch":            {Order: row.NewestFirst, JobSelect: row.JobSelect{Batch: 500}},
		"turns":            {Order: row.ClaimOrder, JobSelect: row.JobSelect{Queues: []string{"mails"}, Phases: live}},
		"turns, later":     {Order: row.ClaimOrder, JobSelect: row.JobSelect{Queues: []string{"mails"}, Phases: live}, After: &row.Place{ID: 50_000, A: row.SortKey{N: 1}, B: row.SortKey{N: start.UnixMicro()}}},
		"rare, sorted":     {Order: row.NewestFirst, JobSelect: row.JobSelect{Queues: []string{"rare"}, Phases: live}, Sorted: page, Plan: row.ListPlan{Sorted: true, Looks: 2}},
		"last deaths":      {Order: row.LastDiedFirst, JobSelect: row.JobSelect{Phases: []row.Phase{row.PhaseDead}}},
		"deaths of queues": {Order: row.LastDiedFirst, JobSelect: row.JobSelect{Queues: []string{"rare", "mails"}, Phases: []row.Phase{row.PhaseDead}}},
	} {
		r.Limit = page
		for range 7 { // the server has chosen a plan for all values by then, if it may
			for _, table := range []string{"job", "dead"} {
				indexed, scanned := read(table, func(ctx context.Context, q row.Querier) error {
					_, err := all.Scan(ctx, q, r, start)
					return err
				})
				require.Zero(t, scanned, name)
				require.LessOrEqual(t, indexed, 6*page, name)
			}
		}
	}
	for name, c := range map[string]struct {
		s    row.JobSelect
		most int
	}{
		"counts":       {row.JobSelect{Phases: row.StatsPhases}, 20_000},
		"of a queue":   {row.JobSelect{Queues: []string{"rare"}, Phases: row.StatsPhases}, 500},
		"of no queue":  {row.JobSelect{Queues: []string{"none"}}, 10},
		"of one phase": {row.JobSelect{Queues: []string{"mails"}, Phases: []row.Phase{row.PhaseExpired}}, 10},
	} {
		indexed, scanned := read("job", func(ctx context.Context, q row.Querier) error {
			_, _, err := all.Counts(ctx, q, c.s, 1000, start)
			return err
		})
		require.Zero(t, scanned, name)
		require.LessOrEqual(t, indexed, c.most, name)
	}
	require.Eventually(t, func() bool { // a transaction of the server, such as autovacuum's, can be in the way
		_, err := db.ExecContext(t.Context(), schema.SQL(`VACUUM honker.job`))
		require.NoError(t, err)
		var done bool
		err = db.QueryRowContext(t.Context(), schema.SQL(`SELECT relallvisible = relpages FROM pg_class WHERE oid = 'honker.job'::regclass`)).Scan(&done)
		require.NoError(t, err)
		return done
	}, time.Minute, 50*time.Millisecond)
	indexed, scanned := read("job", func(ctx context.Context, q row.Querier) error {
		_, _, err := all.Counts(ctx, q, row.JobSelect{Phases: row.StatsPhases}, 1_000_000, start)
		return err
	})
	require.Zero(t, indexed+scanned, "counts of jobs that may run read indexes")
	indexed, scanned = read("job", func(ctx context.Context, q row.Querier) error {
		_, err := all.Heads(ctx, q, nil, start)
		return err
	})
	require.Zero(t, scanned)
	require.LessOrEqual(t, indexed, 100)
}

// An explanation reads a few thousand jobs at most, whatever the limits of their queue. A search for problems reads up to
// 10,000 jobs, and as many dead ones of each queue.
func TestExplain_ReadsLittle(t *testing.T) {
	schema, db := long(t)
	stores := pgstore.Stores(schema)
	ask := row.ExplainRequest{MaxAhead: 1000, MaxJobs: 100}
	explain := func(ids ...int64) func(context.Context, row.Querier) error {
		return func(ctx context.Context, q row.Querier) error {
			_, err := stores.Operators.Explain(ctx, q, ids, ask, start)
			return err
		}
	}
	queue := func(ctx context.Context, q row.Querier) error {
		_, err := stores.Operators.ExplainQueue(ctx, q, "keyed", ask, start)
		return err
	}
	problems := func(ctx context.Context, q row.Querier) error {
		_, err := stores.Problems.Problems(ctx, q, row.ProblemAges{Death: time.Hour, Pause: time.Hour}, start)
		return err
	}
	for _, limits := range []row.QueueLimits{{}, {Running: 10}, {PerKey: 2}, {InOrder: true}, {KeyRate: row.StartRate{N: 1, Per: time.Minute, Burst: 2}}} {
		_, err := stores.Limits.Set(t.Context(), db, "keyed", limits)
		require.NoError(t, err)
		for name, look := range map[string]struct {
			do         func(context.Context, row.Querier) error
			jobs, dead int
		}{
			"held jobs":  {explain(99_995, 50_005, 5), 5000, 0},
			"other jobs": {explain(99_999, 1, 100_001), 5000, 1},
			"a queue":    {queue, 6000, 0},
			"problems":   {problems, 10_100, 20_100},
		} {
			for table, most := range map[string]int{"job": look.jobs, "dead": look.dead} {
				indexed, scanned := reads(t, db, schema, table, look.do)
				require.Zero(t, scanned, "%s with %+v", name, limits)
				require.LessOrEqual(t, indexed, most, "%s with %+v", name, limits)
			}
		}
	}
}
