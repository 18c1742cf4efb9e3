//go:build unix

// Package pgtest runs tests on a PostgreSQL server, each with a schema of its own.
//
// The server is the server of HONKER_TEST_POSTGRES, which holds a connection string. Without it, a test process
// starts a throwaway cluster on a Unix socket when its first test asks for it, and stops the cluster at its end.
package pgtest

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/honker-go/honker/internal/pgcluster"
)

// running is the cluster of this process. It is nil until a test needs it.
var running struct {
	sync.Mutex
	cluster *pgcluster.Cluster
	err     error // a failed start is not repeated for each test
}

// bouncers are the poolers of this process, by their settings.
var bouncers struct {
	sync.Mutex
	running map[string]*pgcluster.Bouncer
}

// Main runs the tests of a package, stops the server that they have started, and fails if goroutines are left.
func Main(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := stop(); err != nil {
			fmt.Fprintln(os.Stderr, "pgtest:", err)
			code = max(code, 1)
		}
		os.Exit(code)
	}))
}

// DSN returns the connection string of the server. It skips the test if PostgreSQL is not installed, and fails
// it if CI is set.
func DSN(t testing.TB) string {
	t.Helper()
	if dsn := os.Getenv("HONKER_TEST_POSTGRES"); dsn != "" {
		return dsn
	}
	running.Lock()
	defer running.Unlock()
	if running.cluster == nil && running.err == nil {
		running.cluster, running.err = pgcluster.Start()
	}
	need(t, running.err)
	return running.cluster.DSN()
}

// Cluster starts a server for a test alone, which may restart it. Its commits are safe before they are acknowledged.
func Cluster(t testing.TB) *pgcluster.Cluster {
	t.Helper()
	c, err := pgcluster.Start()
	need(t, err)
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	Exec(t, c.DSN(), `ALTER SYSTEM SET synchronous_commit = on`, `SELECT pg_reload_conf()`)
	return c
}

// Standby starts a standby of a server of [Cluster]. A commit on the primary waits for a synchronous standby.
func Standby(t testing.TB, primary *pgcluster.Cluster, synchronous bool) *pgcluster.Cluster {
	t.Helper()
	c, err := primary.StartStandby()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	if synchronous { // not before: the standby would copy the setting, and then wait for a standby itself
		Exec(t, primary.DSN(), `ALTER SYSTEM SET synchronous_standby_names = '`+pgcluster.StandbyName+`'`, `SELECT pg_reload_conf()`)
	}
	return c
}

// Exec runs statements on a server, each by itself.
func Exec(t testing.TB, dsn string, statements ...string) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, s := range statements {
		if _, err := conn.Exec(context.Background(), s); err != nil {
			t.Fatal(err)
		}
	}
}

// Settings of PgBouncer.
const (
	// RoundRobin gives each transaction of a connection another server connection, so that a test notices whatever
	// needs a session.
	RoundRobin = "pool_mode = transaction\nserver_round_robin = 1"
	// LastUsed gives a transaction the server connection that was used last. This is PgBouncer's default.
	LastUsed = "pool_mode = transaction"
	// Sessions gives each connection a server connection.
	Sessions = "pool_mode = session"
)

// Bouncer returns the connection string of a PgBouncer with [RoundRobin], which is in front of the server of DSN. It
// skips the test if PgBouncer is not installed, and fails it if CI is set.
func Bouncer(t testing.TB) string { t.Helper(); return BouncerWith(t, RoundRobin) }

// BouncerWith is Bouncer with other settings.
func BouncerWith(t testing.TB, settings string) string {
	t.Helper()
	config, err := pgx.ParseConfig(DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	bouncers.Lock()
	defer bouncers.Unlock()
	b := bouncers.running[settings]
	if b == nil {
		// A quote within a value is doubled.
		quote := func(v string) string { return "'" + strings.ReplaceAll(v, "'", "''") + "'" }
		target := fmt.Sprintf("host=%s port=%d", quote(config.Host), config.Port)
		if config.Password != "" {
			target += fmt.Sprintf(" user=%s password=%s", quote(config.User), quote(config.Password))
		}
		b, err = pgcluster.StartBouncer(target, settings, config.User)
		need(t, err)
		if bouncers.running == nil {
			bouncers.running = map[string]*pgcluster.Bouncer{}
		}
		bouncers.running[settings] = b
	}
	return b.DSN() + " user=" + config.User + " dbname=" + config.Database
}

// need ends a test whose server has not started. A program that is not installed skips it, unless CI is set.
func need(t testing.TB, err error) {
	t.Helper()
	missing := errors.Is(err, pgcluster.ErrNoServer) || errors.Is(err, pgcluster.ErrNoBouncer)
	switch {
	case missing && os.Getenv("CI") == "":
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
}

// Schema returns the name of a schema that does not exist. Whatever the test creates in it is dropped at the
// end of the test.
func Schema(t testing.TB) string {
	t.Helper()
	dsn, name := DSN(t), "honker_test_"+rand.Text()
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), dsn)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close(context.Background())
		if _, err := conn.Exec(context.Background(), `DROP SCHEMA IF EXISTS `+pgx.Identifier{name}.Sanitize()+` CASCADE`); err != nil {
			t.Error(err)
		}
	})
	return name
}

// stop stops the poolers and the server of this process, if a test has started them.
func stop() error {
	bouncers.Lock()
	defer bouncers.Unlock()
	running.Lock()
	defer running.Unlock()
	var errs error
	for _, b := range bouncers.running {
		errs = errors.Join(errs, b.Stop())
	}
	if running.cluster != nil {
		errs = errors.Join(errs, running.cluster.Stop())
	}
	return errs
}
