//go:build unix

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/honker-go/honker/internal/pgcluster"
)

// server is the PostgreSQL server of this process. It is nil until a test needs it, or if HONKER_TEST_POSTGRES
// names another.
var server struct {
	sync.Mutex
	cluster *pgcluster.Cluster
	err     error // a failed start is not repeated
}

// newDatabase creates a database for a test and returns its connection string. It skips the test if PostgreSQL is
// not installed, and fails it if CI is set.
func newDatabase(t *testing.T) string {
	t.Helper()
	dsn, err := startServer()
	switch {
	case errors.Is(err, pgcluster.ErrNoServer) && os.Getenv("CI") == "":
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
	name := "orders_" + strings.ToLower(rand.Text())
	asOwner(t, dsn, `CREATE DATABASE `+name)
	t.Cleanup(func() { asOwner(t, dsn, `DROP DATABASE `+name+` WITH (FORCE)`) })
	return dsn + " dbname=" + name
}

// asOwner runs a statement as the owner of the server.
func asOwner(t *testing.T, dsn, statement string) {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, statement); err != nil {
		t.Error(err)
	}
}

// startServer returns the connection string of the server. The first call starts it.
func startServer() (string, error) {
	if dsn := os.Getenv("HONKER_TEST_POSTGRES"); dsn != "" {
		return dsn, nil
	}
	server.Lock()
	defer server.Unlock()
	if server.cluster == nil && server.err == nil {
		server.cluster, server.err = pgcluster.Start()
	}
	if server.err != nil {
		return "", server.err
	}
	return server.cluster.DSN(), nil
}

// stopServer stops the server that this process has started.
func stopServer() error {
	server.Lock()
	defer server.Unlock()
	if server.cluster == nil {
		return nil
	}
	return server.cluster.Stop()
}
