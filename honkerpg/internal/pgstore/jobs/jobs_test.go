//go:build unix

package jobs_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/honkerpg/internal/pgstore"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/jobs"
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
	schema  pgsql.Schema
	jobs    jobs.Jobs
	batches jobs.Batches
}

func open(t *testing.T) base {
	t.Helper()
	config, err := pgx.ParseConfig(pgtest.DSN(t))
	require.NoError(t, err)
	schema, db := pgsql.Schema(pgtest.Schema(t)), stdlib.OpenDB(*config)
	db.SetMaxIdleConns(16)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	require.NoError(t, pgstore.Bootstrap(t.Context(), db, schema))
	return base{db, schema, jobs.Jobs{Schema: schema}, jobs.Batches{Schema: schema}}
}

// begin begins a transaction, as an application does.
func (b base) begin(t *testing.T) *sql.Tx {
	t.Helper()
	tx, err := b.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// exec runs a statement and returns the number of rows that it has changed.
func (b base) exec(q row.Querier, query string, args ...any) (int, error) {
	return pgsql.Affected(context.Background(), q, b.schema.SQL(query), args...)
}

// insert adds a job to queue "q" and returns its id.
func (b base) insert(q row.Querier, u *row.Unique, l *row.Links) (row.Inserted, error) {
	return b.jobs.Insert(context.Background(), q, &row.Insert{Queue: "q", Payloads: []string{`{}`}, MaxAttempts: 3, Unique: u, Links: l}, start)
}

// mustInsert is insert in a test's goroutine.
func (b base) mustInsert(t *testing.T, q row.Querier, u *row.Unique, l *row.Links) int64 {
	t.Helper()
	out, err := b.insert(q, u, l)
	require.NoError(t, err)
	return out.IDs[0]
}

// end deletes jobs as an ack does: it leaves tokens for those that others depend on.
func (b base) end(q row.Querier, ids ...int64) error {
	_, err := b.exec(q, `WITH gone AS (DELETE FROM honker.job WHERE id IN (SELECT id FROM honker.job WHERE id = ANY ($1) ORDER BY id FOR UPDATE)
  RETURNING id, awaited, batch)
INSERT INTO honker.token (parent, batch) SELECT id, NULL FROM gone WHERE awaited UNION ALL SELECT NULL, batch FROM gone WHERE batch IS NOT NULL`, ids)
	return err
}

// die moves jobs to the dead letters.
func (b base) die(q row.Querier, ids ...int64) error {
	_, err := b.exec(q, `INSERT INTO honker.dead (id, run_at, created_at, died_at, priority, attempts, max_attempts, batch, queue, payload)
SELECT id, run_at, created_at, created_at, priority, attempts, max_attempts, batch, queue, payload FROM honker.job WHERE id = ANY ($1)`, ids)
	if err != nil {
		return err
	}
	return b.end(q, ids...)
}

// claim marks up to n jobs that wait as running, and returns them.
func (b base) claim(q row.Querier, n int) ([]int64, error) {
	return pgsql.IDs(context.Background(), q, b.schema.SQL(`UPDATE honker.job SET state = 1, attempts = attempts + 1, worker = 'w', lease_until = $1
WHERE id IN (SELECT id FROM honker.job WHERE state = 0 ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED) RETURNING id`), start.Add(time.Hour), n)
}

func (b base) resolve() error {
	return jobs.Resolve(context.Background(), b, b.schema, start)
}

// state returns the state of a live job.
func (b base) state(t *testing.T, id int64) (state string) {
	t.Helper()
	require.NoError(t, b.resolve())
	j, _, err := b.jobs.Find(t.Context(), b, id, "")
	require.NoError(t, err)
	return j.State
}
