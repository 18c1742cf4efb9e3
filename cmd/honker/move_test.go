//go:build unix

package main

import (
	"database/sql"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerpg"
	"github.com/honker-go/honker/internal/pgcluster"
	"github.com/honker-go/honker/internal/testkit"
)

// newMove returns a person in an empty directory, and the DSN of a new server.
func newMove(t *testing.T) (s *person, dsn string) {
	t.Helper()
	server, err := pgcluster.Start()
	if errors.Is(err, pgcluster.ErrNoServer) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	t.Chdir(t.TempDir())
	return &person{t: t}, server.DSN()
}

// A file moves to a server. A dry run counts and writes nothing, and a second move finds nothing more.
func TestMove(t *testing.T) {
	s, dsn := newMove(t)
	madeBy(t, "app.db")
	for range 3 {
		require.Zero(t, s.run("enqueue", "mails", `{"to":"ann"}`, "-f", "app.db").code)
	}
	require.Zero(t, s.run("enqueue", "reports", "1", "-f", "app.db").code)
	dry := s.run("move", "app.db", dsn, "--dry-run")
	require.Equal(t, codeWouldChange, dry.code, dry.err)
	require.Contains(t, dry.out, "4\t0\t0\t0\t0\t0\t0\t0\t0")

	some := s.run("move", "app.db", dsn, "--queue", "mails", "--once")
	require.Zero(t, some.code, some.err)
	require.Contains(t, some.out, "3\t0\t0\t0\t0\t0\t0\t0\t1")
	require.Contains(t, some.err, "pass 1: moved 3 jobs, 0 events")
	require.Contains(t, s.run("move", "app.db", dsn).out, "1\t0\t0\t0\t0\t0\t0\t0\t")
	again := s.run("move", "app.db", dsn)
	require.Contains(t, again.out, "0\t0\t0\t0\t0\t0\t0\t0\t1")
	require.Zero(t, again.code)

	madeBy(t, "newer.db", makeNewer)
	sum := testkit.FileSum(t, "newer.db")
	for text, args := range map[string][]string{
		"the file is being moved to another database or schema": {"move", "app.db", dsn, "--schema", "other"},
		"no such file":     {"move", "no.db", dsn},
		"without -f":       {"move", "app.db", dsn, "-f", "app.db"},
		"move needs a DSN": {"move", "app.db"},
		"named twice":      {"move", "app.db", dsn, "-d", dsn},
		"failed to parse":  {"move", "app.db", "postgres://%"},
		"the queue name":   {"move", "app.db", dsn, "--queue", "\x00"},
		"newer than":       {"move", "newer.db", dsn},
	} {
		got := s.run(args...)
		require.NotZero(t, got.code, args)
		require.Contains(t, got.err, text)
	}
	require.Equal(t, sum, testkit.FileSum(t, "newer.db"))
}

// probe returns a pool of the server. Its schema is not the one that a move leads to.
func probe(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := honkerpg.Open(t.Context(), dsn, &honkerpg.Options{Schema: "probe"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db.SQL()
}

// A dry run makes no schema, and a role that may only read can do it. It refuses a schema that the move would refuse.
func TestMove_DryRun(t *testing.T) {
	s, dsn := newMove(t)
	madeBy(t, "app.db")
	require.Zero(t, s.run("enqueue", "mails", "1", "-f", "app.db").code)
	sum := testkit.FileSum(t, "app.db")
	pool := probe(t, dsn)

	dry := s.run("move", "app.db", dsn, "--dry-run")
	require.Equal(t, codeWouldChange, dry.code, dry.err)
	require.Contains(t, dry.out, "1\t0\t0\t0\t0\t0\t0\t0\t0")
	require.Contains(t, dry.err, "the schema has no tables of honker: the move makes them")
	there := false
	require.NoError(t, pool.QueryRowContext(t.Context(), `SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'honker')`).Scan(&there))
	require.False(t, there)

	require.Zero(t, s.run("upgrade", "-d", dsn, "--yes").code)
	_, err := pool.ExecContext(t.Context(), `CREATE ROLE reader LOGIN; GRANT USAGE ON SCHEMA honker TO reader;
GRANT SELECT ON ALL TABLES IN SCHEMA honker TO reader`)
	require.NoError(t, err)
	reader := strings.Replace(dsn, "user=honker", "user=reader", 1)
	dry = s.run("move", "app.db", reader, "--dry-run")
	require.Equal(t, codeWouldChange, dry.code, dry.err)
	require.Contains(t, dry.out, "1\t0\t0\t0\t0\t0\t0\t0\t0")
	require.Equal(t, codeRefused, s.run("move", "app.db", reader).code)

	require.Zero(t, s.run("enqueue", "mails", "2", "-d", dsn).code)
	for _, args := range [][]string{{"--dry-run"}, {}, {"--once"}} {
		got := s.run(append([]string{"move", "app.db", dsn}, args...)...)
		require.Equal(t, codeUsage, got.code, got.err)
		require.Contains(t, got.err, "the schema has jobs or events of its own")
	}
	require.Equal(t, sum, testkit.FileSum(t, "app.db"))
	require.Equal(t, codeWouldChange, s.run("move", "app.db", dsn, "--dry-run", "--into-used").code)
}

// A move is refused from a copy of the file, from a server, and beside another move. Neither database has changed then.
func TestMove_Refused(t *testing.T) {
	s, dsn := newMove(t)
	madeBy(t, "app.db")
	require.Zero(t, s.run("enqueue", "mails", "1", "-f", "app.db").code)
	require.Zero(t, s.run("move", "app.db", dsn).code)
	require.Zero(t, s.run("enqueue", "mails", "2", "-f", "app.db").code)
	require.Zero(t, s.run("backup", "copy.db", "-f", "app.db").code)
	require.Zero(t, s.run("move", "app.db", dsn).code)
	counts := func() string {
		return s.run("ls", "-d", dsn).out + s.run("ls", "-f", "app.db").out + s.run("ls", "-f", "copy.db").out
	}
	before := counts()
	refused := func(code int, text string, args ...string) {
		t.Helper()
		got := s.run(args...)
		require.Equal(t, code, got.code, got.err)
		require.Contains(t, got.err, text)
		require.Equal(t, before, counts())
	}
	refused(codeUsage, "it is a copy from before the move", "move", "copy.db", dsn)
	refused(codeUsage, "no such file", "move", dsn, "app.db")
	refused(codeUsage, "failed to parse", "move", "app.db", "app.db")

	require.Zero(t, s.run("enqueue", "mails", "3", "-f", "app.db").code)
	db := open(t, "app.db")
	jobs, err := honker.NewQueue[int](db, "mails", nil).Claim(t.Context(), "w", 1) // keeps the first move waiting
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	first := make(chan said)
	go func() { first <- s.run("move", "app.db", dsn) }()
	holds := probe(t, dsn)
	require.Eventually(t, func() bool {
		held := false
		err := holds.QueryRowContext(t.Context(), `SELECT holds_until > now() FROM honker.move`).Scan(&held)
		return err == nil && held
	}, time.Minute, 10*time.Millisecond)
	before = counts()
	refused(codeRefused, "another process moves this file", "move", "app.db", dsn)
	require.NoError(t, jobs[0].Ack(t.Context()))
	require.NoError(t, db.Close())
	require.Zero(t, (<-first).code)
}
