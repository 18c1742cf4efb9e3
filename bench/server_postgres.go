//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/honker-go/honker/internal/pgcluster"
)

// postgresSettings undo the settings of a server for tests, so that the server is as initdb makes it. The exceptions are
// the number of connections and an extension that counts statements.
var postgresSettings = []string{
	"fsync = on", "full_page_writes = on", "synchronous_commit = on", "shared_buffers = 128MB",
	"max_connections = 400", "shared_preload_libraries = pg_stat_statements",
}

// postgresServer is the server of this process, on which each turn has a database of its own.
var postgresServer struct {
	sync.Mutex
	cluster   *pgcluster.Cluster
	databases int
}

// postgresVersion returns the version of the installed server, or "" if there is none.
var postgresVersion = sync.OnceValue(pgcluster.Version)

// stopPostgres stops the server if one was started.
func stopPostgres() error {
	s := &postgresServer
	s.Lock()
	defer s.Unlock()
	if s.cluster == nil {
		return nil
	}
	err := s.cluster.Stop()
	s.cluster = nil
	return err
}

// postgresDSN returns the connection string of the database for path. A file next to path keeps the string for the other
// processes of a turn. Without the file, the database is made.
func postgresDSN(ctx context.Context, path string, d Durability) (dsn string, made bool, err error) {
	kept := path + ".dsn"
	if text, err := os.ReadFile(kept); err == nil {
		return string(text), false, nil
	}
	if dsn, err = newPostgres(ctx, d); err != nil {
		return "", false, err
	}
	return dsn, true, os.WriteFile(kept, []byte(dsn), 0o600)
}

// newPostgres creates a database, and starts the server before the first.
func newPostgres(ctx context.Context, d Durability) (dsn string, err error) {
	s := &postgresServer
	s.Lock()
	defer s.Unlock()
	if s.cluster == nil {
		if s.cluster, err = pgcluster.Start(postgresSettings...); err != nil {
			return "", err
		}
	}
	conn, err := pgx.Connect(ctx, s.cluster.DSN())
	if err != nil {
		return "", err
	}
	s.databases++
	name := fmt.Sprintf("bench_%d", s.databases)
	for _, sql := range []string{"CREATE DATABASE " + name, "ALTER DATABASE " + name + " SET " + string(d)} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return "", errors.Join(err, conn.Close(ctx))
		}
	}
	return s.cluster.DSN() + " dbname=" + name, conn.Close(ctx)
}

// dropPostgres drops the database of dsn, so that its vacuums and checkpoints do not disturb the next turn.
func dropPostgres(ctx context.Context, dsn string) error {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return err
	}
	name := config.Database
	config.Database = "postgres"
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)")
	return errors.Join(err, conn.Close(ctx))
}
