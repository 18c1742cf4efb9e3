//go:build unix

package lists_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/honkerpg/internal/pgstore"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/lists"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/honkerpg/internal/pgtest"
	"github.com/honker-go/honker/internal/row"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// start is the time of all statements.
var start = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// base is a database with honker's schema.
type base struct {
	*sql.DB
	pgsql.Schema
}

func open(t *testing.T) base {
	t.Helper()
	config, err := pgx.ParseConfig(pgtest.DSN(t))
	require.NoError(t, err)
	b := base{stdlib.OpenDB(*config), pgsql.Schema(pgtest.Schema(t))}
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	require.NoError(t, pgstore.Bootstrap(t.Context(), b.DB, b.Schema))
	return b
}

func (b base) exec(t *testing.T, query string, args ...any) {
	t.Helper()
	_, err := b.ExecContext(t.Context(), b.SQL(query), args...)
	require.NoError(t, err)
}

// reads returns the number of rows of a table that f reads through indexes, and through scans of the whole table.
func (b base) reads(t *testing.T, table string, f func(ctx context.Context, q row.Querier) error) (indexed, scanned int) {
	t.Helper()
	tx, err := b.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback()) }()
	count := func() (indexed, scanned int) {
		err := tx.QueryRowContext(t.Context(), `SELECT coalesce(max(idx_tup_fetch), 0), coalesce(max(seq_tup_read), 0) FROM pg_stat_xact_user_tables
WHERE schemaname = $1 AND relname = $2`, string(b.Schema), table).Scan(&indexed, &scanned)
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
	b := open(t)
	b.exec(t, `ANALYZE honker.job`)
	b.exec(t, `ANALYZE honker.dead`)
	b.exec(t, `ALTER TABLE honker.job SET (autovacuum_enabled = off)`)
	b.exec(t, `INSERT INTO honker.job (queue, payload, priority, run_at, created_at, batch) SELECT CASE WHEN n % 1000 = 0 THEN 'rare' ELSE 'mails' END,
  '{}', n % 3, $1::timestamptz + n % 7 * interval '1 hour', $1, nullif(n % 1000, n % 10) FROM generate_series(1, 100000) n`, start.Add(-3*time.Hour))
	b.exec(t, `INSERT INTO honker.dead (id, run_at, created_at, died_at, priority, attempts, max_attempts, queue, payload)
SELECT n, $1, $1, $1::timestamptz + n % 100 * interval '1 second', 0, 3, 3, CASE WHEN n % 2 = 0 THEN 'mails' ELSE 'rare' END, '{}' FROM generate_series(100001, 120000) n`, start)
	all, page := lists.Operators{Schema: b.Schema}, 50
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
				indexed, scanned := b.reads(t, table, func(ctx context.Context, q row.Querier) error {
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
		indexed, scanned := b.reads(t, "job", func(ctx context.Context, q row.Querier) error {
			_, _, err := all.Counts(ctx, q, c.s, 1000, start)
			return err
		})
		require.Zero(t, scanned, name)
		require.LessOrEqual(t, indexed, c.most, name)
	}
	indexed, scanned := b.reads(t, "job", func(ctx context.Context, q row.Querier) error {
		_, err := all.Heads(ctx, q, nil, start)
		return err
	})
	require.Zero(t, scanned)
	require.LessOrEqual(t, indexed, 100)
}
