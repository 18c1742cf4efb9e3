//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/pgcluster"
)

// administer runs statements on a database of the server.
func administer(t *testing.T, dsn string, statements ...string) {
	t.Helper()
	psql, err := pgcluster.Program("psql")
	require.NoError(t, err)
	args := []string{"-d", dsn, "-q", "-v", "ON_ERROR_STOP=1"}
	for _, s := range statements {
		args = append(args, "-c", s)
	}
	out, err := exec.CommandContext(t.Context(), psql, args...).CombinedOutput()
	require.NoError(t, err, string(out))
}

// A change of the schema may take longer than the server may take to answer.
func TestPostgres_Upgrade_Slow(t *testing.T) {
	p, dsn := onServer(t)
	name := p.env[schemaVariable] + "_slow"
	administer(t, dsn, "CREATE DATABASE "+name)
	defer administer(t, dsn, "DROP DATABASE "+name)
	p.env[dsnVariable] += " dbname=" + name
	administer(t, p.env[dsnVariable], "CREATE FUNCTION nap() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(4); END'",
		"CREATE EVENT TRIGGER nap ON ddl_command_end WHEN TAG IN ('CREATE SCHEMA') EXECUTE FUNCTION nap()")
	got := p.run("upgrade", "--yes", "--timeout", "3s")
	require.Zero(t, got.code, got.err)
	got = p.run("status")
	require.Zero(t, got.code, got.err)
}

// A standby serves the commands that read. The others refuse it, name the primary, and change nothing.
func TestPostgres_Standby(t *testing.T) {
	if os.Getenv("HONKER_TEST_POSTGRES") != "" {
		t.Skip("starts servers of its own")
	}
	onServer(t) // skips the test if there is no PostgreSQL
	primary, err := pgcluster.Start()
	require.NoError(t, err)
	defer func() { require.NoError(t, primary.Stop()) }()
	p := &person{t: t, env: map[string]string{dsnVariable: primary.DSN()}}
	require.Zero(t, p.run("upgrade", "--yes").code)
	require.Zero(t, p.run("enqueue", "q", "1").code)
	standby, err := primary.StartStandby() // a copy, which has both commits
	require.NoError(t, err)
	defer func() { require.NoError(t, standby.Stop()) }()
	before := p.run("jobs", "-o", "json")
	require.Zero(t, before.code, before.err)
	p.env[dsnVariable] = standby.DSN()
	for _, command := range []string{"status", "doctor", "check", "queues", "job show 1", "top --once", "metrics", "schedules"} {
		got := p.run(strings.Fields(command)...)
		require.Zero(t, got.code, "%s: %s", command, got.err)
	}
	for _, command := range []string{"work q --once -- true", "enqueue q 2", "job cancel 1 --yes", "queue pause q", "maintain --once", "lock run l -- true"} {
		got := p.run(strings.Fields(command)...)
		require.Equal(t, codeRefused, got.code, command)
		require.Empty(t, got.out, command)
		require.Contains(t, got.err, "the server is a standby", command)
		require.Contains(t, got.err, "try: the same with the DSN of the primary\n", command)
	}
	p.env[dsnVariable] = primary.DSN()
	require.Equal(t, before, p.run("jobs", "-o", "json"))
}

// A password that the server refuses is a wrong command line, and is not printed.
func TestPostgres_WrongPassword(t *testing.T) {
	address := refusing(t)
	p := &person{t: t, env: map[string]string{dsnVariable: fmt.Sprintf("postgres://ann:s3cret@%s/app?sslmode=disable", address)}}
	for _, command := range []string{"status", "enqueue q 1", "work q --once -- true", "upgrade --yes", "doctor"} {
		got := p.run(strings.Fields(command)...)
		require.Equal(t, codeUsage, got.code, "%s: %s", command, got.err)
		require.Empty(t, got.out, command)
		require.Contains(t, got.err, "correct its user, password or database")
		require.NotContains(t, got.err, "s3cret")
	}
}

// refusing returns the address of a server that refuses each password.
func refusing(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	fields := "SFATAL\x00VFATAL\x00C28P01\x00Mpassword authentication failed for user \"ann\"\x00\x00"
	refusal := append([]byte{'E', 0, 0, 0, byte(len(fields) + 4)}, fields...)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			size := make([]byte, 4)
			if _, err := io.ReadFull(conn, size); err == nil { // the startup message, of less than 64 KiB
				_, _ = io.CopyN(io.Discard, conn, int64(size[2])<<8+int64(size[3])-4)
				_, _ = conn.Write(refusal)
			}
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		<-done
	})
	return l.Addr().String()
}

// A message that another process sends through the server is printed by listen.
func TestPostgres_Listen(t *testing.T) {
	p, _ := onServer(t)
	require.Zero(t, p.run("upgrade", "--yes").code)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	done := make(chan said, 1)
	go func() { done <- p.runCtx(ctx, "listen", "news", "--limit", "1") }()
	sender := &person{t: t, env: p.env}
	for n := 0; ; n++ { // messages from before listen began are not printed
		require.Zero(t, sender.run("notify", "news", `"hello"`).code)
		select {
		case got := <-done:
			require.Zero(t, got.code, got.err)
			require.Contains(t, got.out, "hello")
			return
		default:
		}
	}
}
