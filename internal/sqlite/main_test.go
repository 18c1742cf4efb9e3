package sqlite

import (
	"context"
	"database/sql"
	"flag"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var seedFlag = flag.Uint64("seed", 0, "draw what a failed run has drawn")

// seed returns the run's seed, and prints it if the test fails. It doesn't determine how goroutines are scheduled.
func seed(t testing.TB) uint64 {
	t.Helper()
	s := *seedFlag
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("repeat with -seed=%d", s)
	return s
}

// upTo returns a random duration below d.
func upTo(luck *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(luck.Int64N(int64(d)))
}

// patient is the timeout for tests that hang. It is far longer than any expected wait.
const patient = time.Minute

// newPool returns a connector and its pool, on a file with a table t(id, v).
func newPool(t testing.TB, path string, cfg Config) (*Connector, *sql.DB) {
	t.Helper()
	if cfg.BusyTimeout == 0 {
		cfg.BusyTimeout = 5 * time.Second
	}
	c, err := NewConnector(path, cfg)
	require.NoError(t, err)
	pool := sql.OpenDB(c)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	perform(t, pool, `CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, v INTEGER UNIQUE)`)
	return c, pool
}

// foreign returns a pool that uses the driver without our wrapper.
func foreign(t testing.TB, path string) *sql.DB {
	t.Helper()
	pool, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	return pool
}

func file(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "x.db")
}

func perform(t testing.TB, q row.Querier, statements ...string) {
	t.Helper()
	for _, s := range statements {
		_, err := q.ExecContext(context.Background(), s)
		require.NoError(t, err, s)
	}
}

// numbers returns the first column of query.
func numbers(t testing.TB, q row.Querier, query string) (out []int64) {
	t.Helper()
	rows, err := q.QueryContext(context.Background(), query)
	require.NoError(t, err, query)
	defer rows.Close()
	for rows.Next() {
		var n int64
		require.NoError(t, rows.Scan(&n))
		out = append(out, n)
	}
	require.NoError(t, rows.Err())
	return out
}

// values returns the values in the table.
func values(t testing.TB, q row.Querier) []int64 {
	t.Helper()
	return numbers(t, q, `SELECT v FROM t ORDER BY v`)
}

// borrow takes a connection from pool, until it is closed or the test ends.
func borrow(t testing.TB, pool *sql.DB) *sql.Conn {
	t.Helper()
	conn, err := pool.Conn(context.Background())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// free reports whether a writer could enter the gate now.
func free(c *Connector) bool {
	if !c.gate.tryEnter() {
		return false
	}
	c.gate.leave()
	return true
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for deadline := time.Now().Add(patient); !ok(); <-look.C {
		if time.Now().After(deadline) {
			t.Fatalf("still not: %s", what)
		}
	}
}

// ends returns the value received from c, and fails the test if none arrives in time.
func ends[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patient):
		t.Fatalf("did not end: %s", what)
		panic("unreachable")
	}
}

// later runs f in a goroutine, and returns a channel with its result.
func later[T any](f func() T) <-chan T {
	c := make(chan T, 1)
	go func() { c <- f() }()
	return c
}
