//go:build honkerpg && unix

package testkit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"sync"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerpg"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/pgcluster"
	"github.com/honker-go/honker/internal/wake"
)

func init() { engine.Elsewhere = openSchema }

// dsnName is the environment variable with the server's connection string. Child processes use their parent's server.
const dsnName = "HONKER_TEST_POSTGRES"

// server is the server of this process.
var server struct {
	sync.Mutex
	started *pgcluster.Cluster // nil if the server was there before
	paths   map[string]string  // of the schemas in use, by name; nil before the first
}

// openSchema opens a schema of a PostgreSQL server in place of the file at path. The schema's name is derived from the
// path, so that processes of a test that open the same path share it. In a testing/synctest bubble, tests use the file.
// Tests can only be built with the tag honkerpg in the workspace of module honkerpg.
func openSchema(ctx context.Context, path string, options any) (any, error) {
	if wake.InBubble() {
		return nil, nil
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return (*honker.DB)(nil), err
	}
	sum := sha256.Sum256([]byte(abs))
	schema := "t_" + hex.EncodeToString(sum[:12])
	dsn, err := startServer()
	if err != nil {
		return (*honker.DB)(nil), err
	}
	db, err := honkerpg.Open(ctx, dsn+" pool_max_conns=6", &honkerpg.Options{Options: options.(honker.Options), Schema: schema})
	if err != nil {
		return db, err
	}
	return db, dropOld(ctx, db, schema, abs)
}

// startServer returns the connection string of the server. The first call starts it.
func startServer() (string, error) {
	server.Lock()
	defer server.Unlock()
	if server.paths == nil {
		if os.Getenv(dsnName) == "" {
			c, err := pgcluster.Start()
			if err != nil {
				return "", err
			}
			server.started = c
			if err := os.Setenv(dsnName, c.DSN()); err != nil {
				return "", err
			}
		}
		server.paths = map[string]string{}
	}
	return os.Getenv(dsnName), nil
}

// dropOld notes a schema and drops those whose tests have ended, which the removal of their folders shows.
func dropOld(ctx context.Context, db *honker.DB, schema, path string) error {
	server.Lock()
	defer server.Unlock()
	server.paths[schema] = path
	var errs error
	for name, path := range server.paths {
		if _, err := os.Stat(filepath.Dir(path)); !errors.Is(err, os.ErrNotExist) {
			continue
		}
		delete(server.paths, name)
		_, err := db.SQL().ExecContext(ctx, "DROP SCHEMA IF EXISTS "+name+" CASCADE")
		errs = errors.Join(errs, err)
	}
	return errs
}

// stopServer stops the server that this process has started.
func stopServer() error {
	server.Lock()
	defer server.Unlock()
	if server.started == nil {
		return nil
	}
	return server.started.Stop()
}
