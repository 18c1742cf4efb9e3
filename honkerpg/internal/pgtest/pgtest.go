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
	switch {
	case errors.Is(running.err, pgcluster.ErrNoServer) && os.Getenv("CI") == "":
		t.Skip(running.err)
	case running.err != nil:
		t.Fatal(running.err)
	}
	return running.cluster.DSN()
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

// stop stops the server of this process, if a test has started it.
func stop() error {
	running.Lock()
	defer running.Unlock()
	if running.cluster == nil {
		return nil
	}
	return running.cluster.Stop()
}
