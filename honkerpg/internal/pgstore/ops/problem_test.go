//go:build unix

package ops_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/honkerpg/internal/pgstore"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/ops"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/honkerpg/internal/pgtest"
	"github.com/honker-go/honker/internal/row"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

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

func (b base) exec(t *testing.T, q row.Querier, query string, args ...any) {
	t.Helper()
	_, err := q.ExecContext(context.WithoutCancel(t.Context()), b.SQL(query), args...)
	require.NoError(t, err)
}

// begin begins a transaction that is rolled back at the end of the test, and returns the number of its session.
func (b base) begin(t *testing.T, o *sql.TxOptions) (tx *sql.Tx, pid int) {
	t.Helper()
	tx, err := b.BeginTx(context.Background(), o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	require.NoError(t, tx.QueryRowContext(t.Context(), `SELECT pg_backend_pid()`).Scan(&pid))
	return tx, pid
}

// at returns the troubles at a time.
func (b base) at(t *testing.T, now time.Time) row.Troubles {
	t.Helper()
	return troubles(t, b, b, now)
}

func troubles(t *testing.T, b base, q row.Querier, now time.Time) row.Troubles {
	t.Helper()
	found, err := ops.Problems{Schema: b.Schema}.Problems(t.Context(), q, row.ProblemAges{}, now)
	require.NoError(t, err)
	return found
}

// A session whose locks keep others waiting is a problem once they have waited for a second, but only if they use
// honker's tables.
func TestProblems_Blocked(t *testing.T) {
	b := open(t)
	b.exec(t, b, `INSERT INTO honker.job (queue, payload, run_at, created_at) VALUES ('mails', '{}', $1, $1)`, time.Now())
	b.exec(t, b, `CREATE TABLE honker.theirs (n int)`)
	b.exec(t, b, `ALTER TABLE honker.theirs SET SCHEMA public`)
	t.Cleanup(func() { b.exec(t, b, `DROP TABLE public.theirs`) })
	holder, pid := b.begin(t, nil)
	b.exec(t, holder, `UPDATE honker.job SET priority = 1`)
	b.exec(t, holder, `LOCK TABLE public.theirs`)
	ended := make(chan error, 2)
	for _, query := range []string{`UPDATE honker.job SET priority = 2`, `DELETE FROM public.theirs`} {
		go func() {
			_, err := b.ExecContext(context.Background(), b.SQL(query))
			ended <- err
		}()
	}
	waiting := func() (n int) {
		require.NoError(t, b.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_stat_activity a WHERE wait_event_type = 'Lock' AND $1 = ANY (pg_blocking_pids(pid))`, pid).Scan(&n))
		return n
	}
	require.Eventually(t, func() bool { return waiting() == 2 }, 10*time.Second, time.Millisecond)
	require.Empty(t, b.at(t, time.Now().Add(-time.Hour)).Blocked, "not before a second")
	found := b.at(t, time.Now().Add(time.Hour)).Blocked
	require.Len(t, found, 1)
	require.EqualValues(t, 1, found[0].N)
	require.Contains(t, found[0].By, fmt.Sprint("session ", pid))
	require.NoError(t, holder.Rollback())
	require.NoError(t, <-ended)
	require.NoError(t, <-ended)
	require.Empty(t, b.at(t, time.Now().Add(time.Hour)).Blocked)
}

// Deleted jobs that cannot be removed are a problem of the old snapshot that keeps them. Without one they are a problem of
// autovacuum.
func TestProblems_DeletedJobs(t *testing.T) {
	b := open(t)
	b.exec(t, b, `ALTER TABLE honker.job SET (autovacuum_enabled = off)`)
	reader, pid := b.begin(t, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	b.exec(t, b, `INSERT INTO honker.job (queue, payload, run_at, created_at) SELECT 'mails', '{}', $1, $1 FROM generate_series(1, 100001)`, time.Now())
	require.Nil(t, b.at(t, time.Now().Add(time.Hour)).Unvacuumed)
	b.exec(t, b, `DELETE FROM honker.job`)
	require.Eventually(t, func() bool { return b.at(t, time.Now()).Unvacuumed != nil }, time.Minute, 10*time.Millisecond, "the server counts with a delay")
	now := b.at(t, time.Now())
	require.Empty(t, now.Snapshots, "it is young")
	require.True(t, now.Unvacuumed.Off)
	b.exec(t, b, `ALTER TABLE honker.job RESET (autovacuum_enabled)`)
	later := b.at(t, time.Now().Add(11*time.Minute))
	require.Nil(t, later.Unvacuumed)
	require.NotEmpty(t, later.Snapshots)
	require.Contains(t, later.Snapshots[0].Of, fmt.Sprint("session ", pid))
	require.Greater(t, later.Snapshots[0].Dead, int64(100_000))
	require.Equal(t, "SELECT pg_backend_pid()", later.Snapshots[0].Query)
	require.NoError(t, reader.Rollback())
	later = b.at(t, time.Now().Add(11*time.Minute))
	require.Empty(t, later.Snapshots)
}
