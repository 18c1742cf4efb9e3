//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerpg"
	"github.com/honker-go/honker/internal/pgcluster"
)

// server is the server of the tests, started by the first that needs it. It ends with the process.
var server = sync.OnceValues(func() (string, error) {
	if dsn := os.Getenv("HONKER_TEST_POSTGRES"); dsn != "" {
		return dsn, nil
	}
	c, err := pgcluster.Start()
	if err != nil {
		return "", err
	}
	stopServer = c.Stop
	return c.DSN(), nil
})

// schemas counts the schemas of the tests.
var schemas atomic.Int64

// onServer returns a person whose commands use a schema of the server, and the connection string.
func onServer(t *testing.T) (p *person, dsn string) {
	t.Helper()
	dsn, err := server()
	if errors.Is(err, pgcluster.ErrNoServer) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	require.NoError(t, err)
	schema := fmt.Sprintf("cmd_%d_%d", os.Getpid(), schemas.Add(1))
	return &person{t: t, env: map[string]string{dsnVariable: dsn, schemaVariable: schema}}, dsn
}

// variable matches the parts of an output that differ between two runs: times, spans and names of processes.
var variable = regexp.MustCompile(`(\d{4}-\d\d-\d\d[T ])?\d\d:\d\d(:\d\d(\.\d+)?)?Z?|(\bin )?\b(\d+(\.\d+)?(h|ms|m|µs|s) ?)+\b(ago)?|\bnow\b|[^"= \t]*-\d+-[A-Z0-9]{10}|  +`)

// The commands for queues, jobs, dead letters, streams, schedules and locks print the same for a file and for a server, in
// all formats, and have the same exit codes.
func TestPostgres_LikeAFile(t *testing.T) {
	inServer, _ := onServer(t)
	likeAFile(t, inServer)
}

// likeAFile runs the same commands on a new file and as inServer, which is on a schema that does not exist.
func likeAFile(t *testing.T, inServer *person) {
	require.Zero(t, inServer.run("upgrade", "--yes").code)
	path := filepath.Join(t.TempDir(), "app.db")
	require.NoError(t, open(t, path).Close())
	inFile := &person{t: t, env: map[string]string{fileVariable: path}}
	same := func(args ...string) {
		t.Helper()
		want, got := inFile.run(args...), inServer.run(args...)
		mask := func(s said) said {
			s.out, s.err = variable.ReplaceAllString(s.out, "X"), variable.ReplaceAllString(s.err, "X")
			s.out = strings.ReplaceAll(s.out, strconv.Quote(path), `""`)
			return s
		}
		require.Equal(t, mask(want), mask(got), "honker %s", strings.Join(args, " "))
	}
	same("enqueue", "emails", `{"to": "ann"}`, "--priority", "3")
	same("enqueue", "emails", `{"to": "bob"}`, "--delay", "2h", "--unique", "bob")
	same("enqueue", "emails", `{"to": "eve"}`, "--unique", "bob")
	same("enqueue", "emails", `{`)
	same("enqueue", "reports", "1", "--max-attempts", "1")
	same("work", "reports", "--once", "--", "sh", "-c", "echo bad >&2; exit 1")
	same("work", "emails", "--once", "--", "sh", "-c", `test -n "$HONKER_JOB_ID" && echo '"sent"'`)
	same("job", "wait", "1", "--for", "1m")
	same("job", "wait", "2", "--for", "1ms")
	same("job", "wait", "99")
	same("job", "cancel", "99", "--yes")
	same("queue", "pause", "emails", "--reason", "mail server is down")
	same("stream", "publish", "orders", `{"id": 1}`)
	same("notify", "news", `"hello"`)
	same("schedule", "add", "nightly", "reports", "0 2 * * *", `{}`)
	same("schedule", "pause", "nightly")
	same("queue", "limits", "emails", "--running", "3")
	for _, words := range []string{"queue show", "queue pause", "jobs --queue", "job show", "job cancel", "stream tail", "schedule pause", "lock break", "listen", "work"} {
		same(append(append([]string{"__complete"}, strings.Fields(words)...), "")...)
	}
	for _, args := range [][]string{
		{"status", "--fail-on", "none"}, {"queues"}, {"queue", "show", "emails"}, {"jobs"}, {"jobs", "--queue", "emails", "--phase", "waiting"}, {"job", "show", "2"},
		{"job", "why", "2"}, {"dead"}, {"dead", "groups"}, {"streams"}, {"stream", "read", "orders"}, {"consumers"}, {"groups"}, {"schedules"}, {"schedule", "show", "nightly"},
		{"locks"}, {"limits"}, {"batches"}, {"presences"}, {"check"}, {"queue", "keys", "emails"}, {"workers"}, {"stream", "tail", "orders"}, {"stream", "show", "orders"}, {"queue", "why", "emails"},
		{"job", "logs", "2"}, {"jobs", "--why"}, {"relay", "partitions"}, {"relays"}, {"actors"}, {"schedule", "next", "nightly"},
	} {
		for _, format := range []string{"table", "tsv", "json", "jsonl"} {
			same(append(args, "-o", format)...)
		}
	}
	same("dead", "requeue", "--all", "--dry-run")
	same("dead", "requeue", "--all", "--yes")
	same("queue", "resume", "emails")
	same("job", "cancel", "2", "--yes")
	same("jobs", "--count")
	same("schedule", "trigger", "nightly")
	same("schedule", "rm", "nightly", "--yes")
	same("consumer", "seek", "orders", "mailer", "end", "--yes")
	same("queue", "retention", "emails", "--done", "1h")
	same("stream", "retention", "orders", "--max-age", "1h")
	same("dead", "export")
	same("completion", "bash")
	same("maintain", "--once", "-q") // a server keeps the row of a unique key until then
	same("lock", "run", "l", "--", "sh", "-c", `test -n "$HONKER_LOCK_TOKEN"`)
	same("status", "--fail-on", "none")
}

// A command that needs a file says so, and names a substitute.
func TestPostgres_FileCommands(t *testing.T) {
	p, _ := onServer(t)
	require.Zero(t, p.run("upgrade", "--yes").code)
	for command, instead := range map[string]string{"backup " + filepath.Join(t.TempDir(), "copy.db"): "pg_dump", "vacuum": "autovacuum"} {
		got := p.run(strings.Fields(command)...)
		require.Equal(t, codeRefused, got.code, command)
		require.Contains(t, got.err, instead)
		require.Empty(t, got.out)
	}
	got := p.run("schema")
	require.Zero(t, got.code)
	require.Contains(t, got.out, "CREATE TABLE "+strconv.Quote(p.env[schemaVariable])+".job")
	got = p.run("top", "--once")
	require.Zero(t, got.code, got.err)
	require.Contains(t, got.out, p.env[schemaVariable])
	got = p.run("metrics")
	require.Zero(t, got.code, got.err)
	require.Contains(t, got.out, "honker_")
}

// Only upgrade makes a schema.
func TestPostgres_Upgrade(t *testing.T) {
	p, _ := onServer(t)
	for _, command := range []string{"status", "enqueue q 1", "maintain --once", "upgrade"} {
		got := p.run(strings.Fields(command)...)
		require.NotZero(t, got.code, command)
		require.Empty(t, got.out)
	}
	got := p.run("status")
	require.Equal(t, codeRefused, got.code)
	require.Contains(t, got.err, "try: honker upgrade\n")
	got = p.run("upgrade", "--dry-run", "-o", "json")
	require.Equal(t, codeWouldChange, got.code, got.err)
	var u upgraded
	require.NoError(t, json.Unmarshal([]byte(got.out), &u))
	require.Zero(t, u.From)
	require.Positive(t, u.To)
	require.False(t, u.Changed)
	require.Equal(t, codeRefused, p.run("status").code)
	got = p.run("upgrade", "--yes", "-o", "json")
	require.Zero(t, got.code, got.err)
	require.NoError(t, json.Unmarshal([]byte(got.out), &u))
	require.True(t, u.Changed)
	require.Zero(t, p.run("status").code)
	got = p.run("upgrade", "--dry-run")
	require.Zero(t, got.code, got.err)
}

// A connection string that cannot be used is reported without its password, and in time.
func TestPostgres_Refused(t *testing.T) {
	p, dsn := onServer(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // never answers
	require.NoError(t, err)
	defer silent.Close()
	port := silent.Addr().(*net.TCPAddr).Port
	for name, c := range map[string]struct {
		dsn  string
		code int
		want string
	}{
		"none":        {"postgres://ann:s3cret@db:port/app", codeUsage, "DSN"},
		"no database": {dsn + " dbname=nowhere password=s3cret", codeUsage, "nowhere"},
		"no server":   {"postgres://ann:s3cret@127.0.0.1:1/app?sslmode=disable", codeRefused, "127.0.0.1"},
		"no answer":   {fmt.Sprintf("postgres://ann:s3cret@127.0.0.1:%d/app?sslmode=disable", port), codeRefused, "has not answered within 500ms"},
	} {
		for _, command := range []string{"status", "enqueue q 1", "doctor"} {
			got := p.run(append(strings.Fields(command), "-d", c.dsn, "--timeout", "500ms")...)
			require.Equal(t, c.code, got.code, "%s: %s", name, got.err)
			require.Contains(t, got.err, c.want, name)
			require.NotContains(t, got.err+got.out, "s3cret", name)
		}
	}
	got := p.run("status", "-d", dsn, "-f", "app.db")
	require.Equal(t, codeUsage, got.code)
	require.Contains(t, got.err, "use one of -f and -d")
	p.env[fileVariable] = "app.db"
	got = p.run("status")
	require.Equal(t, codeUsage, got.code)
	require.Contains(t, got.err, "unset one of $HONKER_FILE and $HONKER_DSN")
}

// A command with -d suggests commands without the connection string, which may have a password.
func TestPostgres_Suggestions(t *testing.T) {
	p, dsn := onServer(t)
	schema := p.env[schemaVariable]
	require.Zero(t, p.run("upgrade", "--yes").code)
	p.env = nil
	got := p.run("job", "show", "7", "-d", dsn+" password=s3cret", "--schema", schema)
	require.Equal(t, codeNo, got.code)
	require.Contains(t, got.err, "honker -d DSN --schema "+schema+" jobs")
	require.NotContains(t, got.err, "s3cret")
}

// A job that a program enqueues on the server is worked on at once, because commits wake the command.
func TestPostgres_Work_Woken(t *testing.T) {
	p, dsn := onServer(t)
	require.Zero(t, p.run("upgrade", "--yes").code)
	db, err := honkerpg.Open(t.Context(), dsn, &honkerpg.Options{Schema: p.env[schemaVariable],
		Options: honker.Options{Logger: slog.New(slog.DiscardHandler)}})
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	done := make(chan said, 1)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { done <- p.runCtx(ctx, "work", "q", "--", "sh", "-c", "echo 5") }()
	q := honker.NewQueue[int](db, "q", nil)
	for range 2 {
		id, err := q.Enqueue(t.Context(), 1)
		require.NoError(t, err)
		result, err := honker.WaitResult[int](t.Context(), db, id)
		require.NoError(t, err)
		require.Equal(t, 5, result)
	}
	stop()
	select {
	case got := <-done:
		require.Zero(t, got.code, got.err)
	case <-time.After(time.Minute):
		t.Fatal("work has not ended")
	}
}
