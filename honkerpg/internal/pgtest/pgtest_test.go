//go:build unix

package pgtest_test

import (
	"os"
	"os/exec"
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

// A test process that panics leaves neither a server nor its files behind.
func TestServer_EndsWithItsProcess(t *testing.T) {
	const child = "HONKER_TEST_PGTEST_CHILD"
	if file := os.Getenv(child); file != "" {
		require.NoError(t, os.WriteFile(file, []byte(pgtest.DSN(t)), 0o600))
		go panic("as planned")
		select {}
	}
	if os.Getenv("HONKER_TEST_POSTGRES") != "" {
		t.Skip("the server is not ours")
	}
	pgtest.DSN(t)
	file := t.TempDir() + "/dsn"
	run := exec.Command(os.Args[0], "-test.run", "^TestServer_EndsWithItsProcess$")
	run.Env = append(os.Environ(), child+"="+file)
	out, err := run.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "as planned")
	dsn, err := os.ReadFile(file)
	require.NoError(t, err)
	config, err := pgx.ParseConfig(string(dsn))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := os.Stat(config.Host)
		return os.IsNotExist(err)
	}, time.Minute, 50*time.Millisecond)
	_, err = pgx.ConnectConfig(t.Context(), config)
	require.Error(t, err)
}
