//go:build unix

package pgbackend_test

import (
	"database/sql"
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/honkerpg/internal/pgtest"
)

// bloated is a queue whose jobs were claimed and deleted under a snapshot that keeps all their rows.
type bloated struct {
	*testing.T
	schema pgsql.Schema
	conn   *sql.Conn // the worker
	start  time.Time
	now    time.Time // of the claims
}

// finished is how many jobs have left dead rows.
const finished = 100_000

func newBloated(t *testing.T) *bloated {
	t.Helper()
	schema := pgsql.Schema(pgtest.Schema(t))
	open(t, schema, nil)
	config, err := pgx.ParseConfig(pgtest.DSN(t))
	require.NoError(t, err)
	pool := stdlib.OpenDB(*config)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	old, err := pool.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	require.NoError(t, err)
	t.Cleanup(func() { _ = old.Rollback() })
	_, err = old.ExecContext(t.Context(), `SELECT 1`) // takes the snapshot
	require.NoError(t, err)
	conn, err := pool.Conn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	b := &bloated{T: t, schema: schema, conn: conn, start: time.Now().Truncate(time.Second)}
	b.now = b.start.Add(time.Minute)
	b.add(finished, b.start)
	b.exec(`UPDATE honker.job SET state = 1, worker = 'w', attempts = 1, lease_until = $1`, b.start.Add(time.Second))
	b.exec(`DELETE FROM honker.job`)
	b.exec(`VACUUM honker.job`)
	return b
}

func (b *bloated) exec(query string, args ...any) {
	b.Helper()
	_, err := b.conn.ExecContext(b.Context(), b.schema.SQL(query), args...)
	require.NoError(b, err)
}

// add adds n jobs that are due at a time.
func (b *bloated) add(n int, at time.Time) {
	b.Helper()
	b.exec(`INSERT INTO honker.job (queue, payload, run_at, created_at) SELECT 'q', '{}', $1, $1 FROM generate_series(1, $2)`, at, n)
}

// sqlClaim is a claim of ten jobs as a worker makes it.
const sqlClaim = `SELECT what, id FROM honker.step('w', $1, '{}', NULL, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}',
  '{}', '{}', '{q}', '{0}', '{1}', $2, 10)`

// sqlNaiveClaim is a claim without marks.
const sqlNaiveClaim = `WITH due AS MATERIALIZED (SELECT id FROM honker.job WHERE queue = 'q' AND state = 0 AND priority = 0 AND run_at <= $1
  ORDER BY run_at, id LIMIT 10 FOR UPDATE SKIP LOCKED)
UPDATE honker.job SET state = 1, worker = 'w', attempts = attempts + 1, lease_until = $2 WHERE id IN (SELECT id FROM due) RETURNING id`

// buffers runs a claim and returns how many buffers it has read or found, and how many rows it has returned.
func (b *bloated) buffers(claim string) (buffers, rows int) {
	b.Helper()
	var text string
	query := b.schema.SQL(`EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ` + claim)
	require.NoError(b, b.conn.QueryRowContext(b.Context(), query, b.now, b.now.Add(time.Minute)).Scan(&text))
	var plans []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
			Rows int `json:"Actual Rows"`
		}
	}
	require.NoError(b, json.Unmarshal([]byte(text), &plans))
	return plans[0].Plan.Hit + plans[0].Plan.Read, plans[0].Plan.Rows
}

// Claims under an old snapshot walk over the rows of finished jobs once, and then begin at a mark.
func TestClaimUnderOldSnapshot(t *testing.T) {
	b := newBloated(t)
	b.add(1000, b.start.Add(time.Second))
	const most = 600 // buffers; ten jobs are read and written, each with its indexes
	first, n := b.buffers(sqlClaim)
	require.Equal(t, 10, n)
	require.Greater(t, first, most, "the first claim walks over the rows")
	for range 5 {
		got, n := b.buffers(sqlClaim)
		require.Equal(t, 10, n)
		require.Less(t, got, most)
		t.Logf("buffers of a claim at a mark: %d", got)
	}
	naive, n := b.buffers(sqlNaiveClaim)
	require.Equal(t, 10, n)
	t.Logf("buffers of a claim: the first %d, without a mark %d", first, naive)
	require.Greater(t, naive, most, "a claim without a mark walks over the rows each time")
}

// A job that was given back below a mark is claimed once there is nothing above it, whatever the mark.
func TestClaimBelowMark(t *testing.T) {
	b := newBloated(t)
	b.add(25, b.start.Add(time.Second))
	_, n := b.buffers(sqlClaim)
	require.Equal(t, 10, n)
	b.exec(`UPDATE honker.job SET state = 0, worker = NULL, attempts = attempts - 1 WHERE state = 1`)
	for _, want := range []int{10, 5, 10} {
		_, n := b.buffers(sqlClaim)
		require.Equal(t, want, n)
	}
	b.now = b.now.Add(2 * time.Minute)
	_, n = b.buffers(sqlClaim)
	require.Equal(t, 10, n, "claims that lapse are found")
}

// sqlState is a look at the state of a queue as the notifier makes it.
const sqlState = `SELECT ready FROM honker.state_of('q', true, false, $1) WHERE $2::timestamptz IS NOT NULL`

// sqlShares divides a claim of ten jobs between two queues.
const sqlShares = `SELECT unnest(honker.shares('{q,r}', '{0,0}', '{1,1}', NULL, $1, 10)) WHERE $2::timestamptz IS NOT NULL`

// Looks at the state of a queue, and claims from several queues, begin at the mark of the connection's claims.
func TestLooksUnderOldSnapshot(t *testing.T) {
	b := newBloated(t)
	b.add(1000, b.start.Add(time.Second))
	const most = 600
	naive := make(map[string]int)
	for _, look := range []string{sqlState, sqlShares} {
		naive[look], _ = b.buffers(look)
		require.Greater(t, naive[look], most, "without a mark it walks over the rows")
	}
	claim, _ := b.buffers(sqlClaim)
	require.Greater(t, claim, most)
	for look, before := range naive {
		got, n := b.buffers(look)
		require.Positive(t, n)
		require.Less(t, got, most)
		t.Logf("buffers without a mark %d, with a mark %d", before, got)
	}
}
