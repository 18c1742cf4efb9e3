package testkit

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
)

// OpenShared creates a file for several processes and opens a DB on it. If the test fails, the file's directory is
// kept. Traffic statistics are off, because tests watch the file for writes.
func OpenShared(t testing.TB) (string, *honker.DB) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shared.db")
	db := honkertest.OpenFile(t, path, &honker.Options{NoTraffic: true})
	KeepOnFailure(t, filepath.Dir(path))
	return path, db
}

// openPool and attach replace the functions with these names on another database. Bubbles use the file.
var (
	openPool func(path string) (*sql.DB, error)
	attach   func(t testing.TB, path string, opts *honker.Options) *honker.DB
)

// OpenPool opens a pool as an application would. It does not set a journal mode.
func OpenPool(t testing.TB, path string) *sql.DB {
	t.Helper()
	var pool *sql.DB
	var err error
	if openPool != nil && !onFile() {
		pool, err = openPool(path)
	} else {
		pool, err = sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)")
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	return pool
}

// Attach opens a pool as an application would and attaches honker to it.
func Attach(t testing.TB, path string, opts *honker.Options) *honker.DB {
	t.Helper()
	if attach != nil && !onFile() {
		return attach(t, path, opts)
	}
	db, err := honker.Attach(context.Background(), OpenPool(t, path), opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) }) // runs before the pool is closed
	return db
}

// MakeApplication creates a database without honker's tables and closes it.
func MakeApplication(t testing.TB, path string) {
	t.Helper()
	pool, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	pool.SetMaxOpenConns(1)
	ExecAll(t, pool, `PRAGMA page_size = 8192`, `PRAGMA user_version = 7`, `PRAGMA application_id = 99`,
		`CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)`, `INSERT INTO orders (item) VALUES ('tea')`)
	require.NoError(t, pool.Close())
}

// MakeFile creates a file with honker's schema and closes it.
func MakeFile(t testing.TB, path string) {
	t.Helper()
	db, err := honker.Open(context.Background(), path, &honker.Options{NoFileNotices: true}) // NoFileNotices allows calls from within a bubble
	require.NoError(t, err)
	require.NoError(t, db.Close())
}

// HoldWriter keeps other connections from writing until release is called or the test ends. They can read.
func HoldWriter(t testing.TB, path string) (release func()) {
	t.Helper()
	conn, err := OpenPool(t, path).Conn(context.Background())
	require.NoError(t, err)
	_, err = conn.ExecContext(context.Background(), on(conn, holdWriter))
	require.NoError(t, err)
	release = func() { _, _ = conn.ExecContext(context.Background(), `ROLLBACK`); _ = conn.Close() }
	t.Cleanup(release)
	return release
}

// ListDir returns the entries of dir with their permissions.
func ListDir(t testing.TB, dir string) map[string]fs.FileMode {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	modes := make(map[string]fs.FileMode)
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		modes[e.Name()] = info.Mode().Perm()
	}
	return modes
}

// FileSum returns a checksum of a file. This process must not have the file open in SQLite, because reading it would
// drop the process's locks on it.
func FileSum(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return fmt.Sprintf("%x", sha256.Sum256(b))
}
