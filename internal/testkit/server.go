//go:build honkerpg && unix

package testkit

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerpg"
	"github.com/honker-go/honker/internal/pgcluster"
	"github.com/honker-go/honker/internal/wake"
)

const (
	// dsnName is the environment variable with the server's connection string, as pairs key=value. Child processes use
	// their parent's server.
	dsnName = "HONKER_TEST_POSTGRES"

	// poolerName is the environment variable that lets all databases be used through PgBouncer in transaction mode. The
	// first process sets it to the pooler's connection string, for its child processes.
	poolerName = "HONKER_TEST_POOLER"

	// driverName is the name under which honkerpg registers its driver. This module does not require pgx.
	driverName = "pgx"

	// schema has honker's tables and the application's in each database.
	schema = "t"
)

// server is the server of this process.
var server servers

type servers struct {
	sync.Mutex
	started  *pgcluster.Cluster    // nil if the server was there before
	pooler   *pgcluster.Bouncer    // nil if there is none, or a parent has started it
	strategy string                // of CREATE DATABASE
	template string                // name of the database that the others are copies of; "" before the first
	paths    map[string]string     // of the databases that exist, by name
	opened   map[string]*honker.DB // the last DB of each database
}

// openDatabase opens a database of a PostgreSQL server in place of the file at path. In a testing/synctest bubble, tests
// use the file. Tests can only be built with the tag honkerpg in the workspace of module honkerpg.
func openDatabase(ctx context.Context, path string, options any) (any, error) {
	if onFile() {
		return nil, nil
	}
	name, err := server.make(path)
	if err != nil {
		return (*honker.DB)(nil), err
	}
	opts := optionsOf(name, options.(honker.Options))
	if wake.InBubble() {
		opts.NoListen, opts.ListenDSN = true, ""
	}
	db, err := honkerpg.Open(ctx, dsnOf(name)+" pool_max_conns=6", opts)
	if err == nil {
		server.Lock()
		defer server.Unlock()
		server.opened[name] = db
	}
	return db, err
}

// dsnOf returns the connection string of a database, through the pooler if there is one.
func dsnOf(name string) string {
	if dsn := os.Getenv(poolerName); dsn != "" {
		return dsn + " default_query_exec_mode=exec dbname=" + name
	}
	return directTo(name)
}

// directTo returns the connection string of a database without a pooler. The application's tables are in the schema of
// honker's.
func directTo(name string) string {
	return os.Getenv(dsnName) + " dbname=" + name + " search_path=" + schema
}

// optionsOf returns the options for a database.
func optionsOf(name string, o honker.Options) *honkerpg.Options {
	all := &honkerpg.Options{Options: o, Schema: schema}
	if os.Getenv(poolerName) != "" {
		all.Pooler, all.ListenDSN = true, directTo(name)
	}
	return all
}

// nameOf returns a name for a database. It is the same in each process of a test.
func nameOf(prefix, text string) string {
	sum := sha256.Sum256([]byte(text))
	return prefix + hex.EncodeToString(sum[:12])
}

// make returns the name of the database of a path. It creates the database unless it exists, and drops the databases of
// tests that have ended.
func (s *servers) make(path string) (name string, err error) {
	if path, err = filepath.Abs(path); err != nil {
		return "", err
	}
	name = nameOf("t_", path)
	s.Lock()
	defer s.Unlock()
	if s.paths[name] != "" {
		return name, nil
	}
	if err := s.start(); err != nil {
		return "", err
	}
	return name, onServer(func(ctx context.Context, conn *sql.Conn) error {
		if err := s.dropEnded(ctx, conn); err != nil {
			return err
		}
		// Another process of the test may have created the database.
		_, err := conn.ExecContext(ctx, `CREATE DATABASE `+name+` TEMPLATE `+s.template+s.strategy)
		if err == nil && os.Getenv(poolerName) != "" { // a pooler refuses the setting in a connection string
			_, err = conn.ExecContext(ctx, `ALTER DATABASE `+name+` SET search_path = `+schema)
		}
		if err == nil || isThere(err) {
			s.paths[name] = path
			return nil
		}
		return err
	})
}

// prepare is start for a process in whose bubbles the tests use the server.
func (s *servers) prepare() error {
	s.Lock()
	defer s.Unlock()
	return s.start()
}

// start starts the server and creates the template, unless it has done so before.
func (s *servers) start() error {
	if s.template != "" {
		return nil
	}
	if os.Getenv(dsnName) == "" {
		c, err := pgcluster.Start(settings()...)
		if err != nil {
			return err
		}
		s.started = c
		if err := os.Setenv(dsnName, c.DSN()); err != nil {
			return err
		}
	}
	if os.Getenv(poolerName) == "1" {
		if err := s.startPooler(); err != nil {
			return err
		}
	}
	text, err := honkerpg.Schema(schema)
	if err != nil {
		return err
	}
	s.paths, s.opened = map[string]string{}, map[string]*honker.DB{}
	s.template = nameOf("template_", text)
	return onServer(s.makeTemplate)
}

// startPooler starts a pooler before the server, whose connection string has a folder as its host and no password.
func (s *servers) startPooler() error {
	values := map[string]string{}
	for pair := range strings.FieldsSeq(os.Getenv(dsnName)) {
		key, value, _ := strings.Cut(pair, "=")
		values[key] = value
	}
	b, err := pgcluster.StartBouncer("host="+values["host"], "pool_mode = transaction", values["user"])
	if err != nil {
		return err
	}
	s.pooler = b
	return os.Setenv(poolerName, b.DSN()+" user="+values["user"])
}

// makeTemplate creates the template unless another process has.
func (s *servers) makeTemplate(ctx context.Context, conn *sql.Conn) error {
	// Before version 15, the only strategy is the copy of files. It is the faster of the two for a small database.
	if err := conn.QueryRowContext(ctx, `SELECT CASE WHEN current_setting('server_version_num')::int < 150000 THEN '' ELSE ' STRATEGY FILE_COPY' END`).
		Scan(&s.strategy); err != nil {
		return err
	}
	there := false
	if err := conn.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, s.template).Scan(&there); err != nil || there {
		return err
	}
	name := nameOf("new_", rand.Text())
	if _, err := conn.ExecContext(ctx, `CREATE DATABASE `+name); err != nil {
		return err
	}
	db, err := honkerpg.Open(ctx, directTo(name), &honkerpg.Options{Schema: schema})
	if err == nil {
		err = db.Close()
	}
	if err == nil {
		err = conn.QueryRowContext(ctx, sqlEndSessions, name).Scan(new(int))
	}
	if err == nil {
		_, err = conn.ExecContext(ctx, `ALTER DATABASE `+name+` RENAME TO `+s.template)
	}
	if isThere(err) {
		err = drop(ctx, conn, name)
	}
	return err
}

// sqlEndSessions ends the sessions in a database and waits for their end. A closed connection's session ends after its
// Close, and a database with sessions cannot be copied or renamed.
const sqlEndSessions = `SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity WHERE datname = $1`

// dropEnded drops the databases of tests that have ended, which the removal of their folders shows.
func (s *servers) dropEnded(ctx context.Context, conn *sql.Conn) (errs error) {
	for name, path := range s.paths {
		if _, err := os.Stat(filepath.Dir(path)); !errors.Is(err, os.ErrNotExist) {
			continue
		}
		delete(s.paths, name)
		delete(s.opened, name)
		errs = errors.Join(errs, drop(ctx, conn, name))
	}
	return errs
}

// drop drops a database. Sessions of closed connections may still be in it.
func drop(ctx context.Context, conn *sql.Conn, name string) error {
	_, err := conn.ExecContext(ctx, `DROP DATABASE IF EXISTS `+name+` WITH (FORCE)`)
	return err
}

// isThere reports whether a database was not created or renamed because another has its name.
func isThere(err error) bool {
	var failed interface{ SQLState() string }
	return errors.As(err, &failed) && (failed.SQLState() == "42P04" || failed.SQLState() == "23505")
}

// onServer runs f with a connection that is in none of the tests' databases.
func onServer(f func(context.Context, *sql.Conn) error) error {
	ctx := context.Background() // the databases outlast the test's context
	pool, err := sql.Open(driverName, os.Getenv(dsnName))
	if err != nil {
		return err
	}
	defer pool.Close()
	conn, err := pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return f(ctx, conn)
}

// open returns the DB that was opened last at path.
func (s *servers) open(path string) *honker.DB {
	name, err := s.make(path)
	if err != nil {
		return nil
	}
	s.Lock()
	defer s.Unlock()
	return s.opened[name]
}

// stopServer stops the server that this process has started, or drops the process's databases.
func stopServer() error {
	server.Lock()
	defer server.Unlock()
	if server.pooler != nil {
		if err := server.pooler.Stop(); err != nil {
			return err
		}
	}
	switch {
	case server.started != nil:
		return server.started.Stop()
	case len(server.paths) > 0:
		return onServer(server.dropEnded)
	}
	return nil
}
