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
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerpg"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/pgcluster"
	"github.com/honker-go/honker/internal/wake"
)

func init() {
	engine.Elsewhere, watchSchema = openSchema, watchDump
	CountJobs = `SELECT (SELECT count(*) FROM job) + (SELECT count(*) FROM dead)`
	CountQueue = `SELECT count(*) FROM job WHERE queue = $1`
	LockExpiry = `SELECT coalesce((SELECT extract(epoch FROM expires_at)::bigint FROM lock WHERE name = $1), 0)`
	CountAllowed = `SELECT coalesce(sum(count), 0)::bigint FROM rate`
	expireClaim = `UPDATE job SET lease_until = clock_timestamp() - interval '1 second' WHERE id = $1`
	makeDue = `UPDATE job SET run_at = clock_timestamp() WHERE id = $1`
	getLeader = `SELECT owner, extract(epoch FROM expires_at)::bigint FROM lock WHERE name = 'honker-scheduler'`
	getSchedule = `SELECT name, queue, spec, payload, priority, extract(epoch FROM expires)::bigint, max_attempts,
  extract(epoch FROM next_at)::bigint, enabled::int, 'texttexttexttext' FROM schedule WHERE name = $1`
	setNextFire = `UPDATE schedule SET next_at = to_timestamp($1::bigint) WHERE name = $2`
	addWorker = `INSERT INTO worker (worker, queue, host, boot, pid_space, pid, pid_start, version, slots, since, seen_at)
VALUES ($1, $2, 'far', '', '', 0, 0, '', $3, to_timestamp($4::bigint / 1000.0), to_timestamp($4::bigint / 1000.0))`
	// The processes' rows change while nothing else does.
	listTables = `SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema() AND table_name <> 'process' ORDER BY 1`
}

// watchDump is WatchFile for a schema.
func watchDump(t testing.TB, path string) func(what string) {
	t.Helper()
	db := server.open(path)
	require.NotNil(t, db, "open the DB first")
	before := Dump(t, db.SQL())
	return func(what string) {
		t.Helper()
		require.Equal(t, before, Dump(t, db.SQL()), "%s has written", what)
	}
}

// dsnName is the environment variable with the server's connection string. Child processes use their parent's server.
const dsnName = "HONKER_TEST_POSTGRES"

// server is the server of this process.
var server servers

type servers struct {
	sync.Mutex
	started *pgcluster.Cluster    // nil if the server was there before
	paths   map[string]string     // of the schemas in use, by name; nil before the first
	opened  map[string]*honker.DB // the last DB of each path
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
	// The application's tables are in the same schema.
	db, err := honkerpg.Open(ctx, dsn+" pool_max_conns=6 search_path="+schema, &honkerpg.Options{Options: options.(honker.Options), Schema: schema})
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
		server.paths, server.opened = map[string]string{}, map[string]*honker.DB{}
	}
	return os.Getenv(dsnName), nil
}

// dropOld notes a schema and drops those whose tests have ended, which the removal of their folders shows.
func dropOld(ctx context.Context, db *honker.DB, schema, path string) error {
	server.Lock()
	defer server.Unlock()
	server.paths[schema], server.opened[path] = path, db
	var errs error
	for name, path := range server.paths {
		if _, err := os.Stat(filepath.Dir(path)); !errors.Is(err, os.ErrNotExist) {
			continue
		}
		delete(server.paths, name)
		delete(server.opened, path)
		_, err := db.SQL().ExecContext(ctx, "DROP SCHEMA IF EXISTS "+name+" CASCADE")
		errs = errors.Join(errs, err)
	}
	return errs
}

// open returns the DB that was opened last at path.
func (s *servers) open(path string) *honker.DB {
	s.Lock()
	defer s.Unlock()
	return s.opened[path]
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
