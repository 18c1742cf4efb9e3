//go:build unix

package pgtest_test

import (
	"context"
	"crypto/rand"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/honkerpg/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// Each test gets a schema of its own, which is gone after the test.
func TestSchema_IsDropped(t *testing.T) {
	conn, err := pgx.Connect(t.Context(), pgtest.DSN(t))
	require.NoError(t, err)
	defer conn.Close(t.Context())
	there := func(name string) (found bool) {
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT to_regnamespace($1) IS NOT NULL`, pgx.Identifier{name}.Sanitize()).Scan(&found))
		return found
	}
	var name string
	t.Run("uses", func(t *testing.T) {
		name = pgtest.Schema(t)
		require.NotEqual(t, name, pgtest.Schema(t))
		_, err := conn.Exec(t.Context(), `CREATE SCHEMA `+pgx.Identifier{name}.Sanitize()+` CREATE TABLE x (n int)`)
		require.NoError(t, err)
		require.True(t, there(name))
	})
	require.False(t, there(name))
}

// A pooler in transaction mode gives the transactions of a connection different connections to the server, and refuses
// prepared statements. A pooler in session mode does neither.
func TestBouncer(t *testing.T) {
	for mode, settings := range map[string]string{"transaction": pgtest.RoundRobin, "session": pgtest.Sessions} {
		t.Run(mode, func(t *testing.T) {
			dsn := pgtest.BouncerWith(t, settings)
			require.Equal(t, dsn, pgtest.BouncerWith(t, settings), "the same pooler")
			var conns [2]*pgx.Conn
			for i := range conns {
				c, err := pgx.Connect(t.Context(), dsn)
				require.NoError(t, err)
				defer c.Close(context.Background())
				conns[i] = c
			}
			// Two transactions at once need two connections to the server, which then take turns.
			for _, c := range conns {
				tx, err := c.Begin(t.Context())
				require.NoError(t, err)
				defer tx.Rollback(context.Background())
			}
			for _, c := range conns {
				_, err := c.Exec(t.Context(), `ROLLBACK`)
				require.NoError(t, err)
			}
			backends, failed := map[uint32]bool{}, 0
			for range 4 {
				var pid uint32
				require.NoError(t, conns[0].QueryRow(t.Context(), `SELECT pg_backend_pid()`, pgx.QueryExecModeExec).Scan(&pid))
				backends[pid] = true
			}
			query := `SELECT $1 AS "` + rand.Text() + `"` // prepared by nobody before
			for range 4 {
				if _, err := conns[0].Exec(t.Context(), query, "x"); err != nil {
					failed++
				}
			}
			require.Equal(t, mode == "transaction", len(backends) > 1)
			require.Equal(t, mode == "transaction", failed > 0)
		})
	}
}

// A server of a test alone keeps its commits when it restarts, even without a shutdown.
func TestCluster_Restart(t *testing.T) {
	c := pgtest.Cluster(t)
	for i, mode := range []string{"fast", "immediate"} {
		conn, err := pgx.Connect(t.Context(), c.DSN())
		require.NoError(t, err)
		defer conn.Close(context.Background())
		_, err = conn.Exec(t.Context(), `CREATE TABLE IF NOT EXISTS x (n int); INSERT INTO x VALUES (1)`)
		require.NoError(t, err)
		require.NoError(t, c.Restart(mode))
		require.Error(t, conn.Ping(t.Context()), "the connection has ended")
		again, err := pgx.Connect(t.Context(), c.DSN())
		require.NoError(t, err)
		defer again.Close(context.Background())
		var n int
		require.NoError(t, again.QueryRow(t.Context(), `SELECT count(*) FROM x`).Scan(&n))
		require.Equal(t, i+1, n)
	}
	require.ErrorContains(t, c.Restart("none"), "none")
}

// A standby only accepts reads.
func TestCluster_Standby(t *testing.T) {
	c := pgtest.Cluster(t)
	require.NoError(t, c.Standby())
	conn, err := pgx.Connect(t.Context(), c.DSN())
	require.NoError(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), `SELECT 1`)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), `CREATE TABLE x (n int)`)
	require.ErrorContains(t, err, "read-only")
}

// A test process that panics leaves neither a server nor its files behind.
func TestServer_EndsWithItsProcess(t *testing.T) {
	const child = "HONKER_TEST_PGTEST_CHILD"
	if file := os.Getenv(child); file != "" {
		require.NoError(t, os.WriteFile(file, []byte(pgtest.DSN(t)+"\n"+pgtest.Bouncer(t)), 0o600))
		go panic("as planned")
		select {}
	}
	if os.Getenv("HONKER_TEST_POSTGRES") != "" {
		t.Skip("the server is not ours")
	}
	pgtest.Bouncer(t)
	file := t.TempDir() + "/dsn"
	run := exec.Command(os.Args[0], "-test.run", "^TestServer_EndsWithItsProcess$")
	run.Env = append(os.Environ(), child+"="+file)
	out, err := run.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "as planned")
	all, err := os.ReadFile(file)
	require.NoError(t, err)
	for dsn := range strings.Lines(string(all)) {
		config, err := pgx.ParseConfig(dsn)
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			_, err := os.Stat(config.Host)
			return os.IsNotExist(err)
		}, time.Minute, 50*time.Millisecond)
		_, err = pgx.ConnectConfig(t.Context(), config)
		require.Error(t, err)
	}
}

// A standby follows its primary, and takes over when the primary has ended. A commit that had waited for a synchronous
// standby is there.
func TestStandby(t *testing.T) {
	primary := pgtest.Cluster(t)
	standby := pgtest.Standby(t, primary, true)
	pgtest.Exec(t, primary.DSN(), `CREATE TABLE x (n int)`, `INSERT INTO x VALUES (1)`)
	require.NoError(t, primary.Crash())
	_, err := pgx.Connect(t.Context(), primary.DSN())
	require.Error(t, err)
	require.NoError(t, standby.Promote())
	conn, err := pgx.Connect(t.Context(), standby.DSN())
	require.NoError(t, err)
	defer conn.Close(context.Background())
	var n int
	require.NoError(t, conn.QueryRow(t.Context(), `INSERT INTO x SELECT n + 1 FROM x RETURNING n`).Scan(&n))
	require.Equal(t, 2, n)
}
