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

// OpenShared is a fresh file that others work on as well, and a DB on it. What lies
// beside it is kept when the test fails. Tests watch whether it is written, so the DB writes
// nothing but what its verbs do.
func OpenShared(t testing.TB) (string, *honker.DB) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shared.db")
	db := honkertest.OpenFile(t, path, &honker.Options{NoTraffic: true})
	KeepOnFailure(t, filepath.Dir(path))
	return path, db
}

// OpenPool is an application's own pool. Its journal mode is the file's.
func OpenPool(t testing.TB, path string) *sql.DB {
	t.Helper()
	pool, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	return pool
}

// Attach attaches a pool of the application's.
func Attach(t testing.TB, path string) *honker.DB {
	t.Helper()
	db, err := honker.Attach(context.Background(), OpenPool(t, path), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) }) // before the pool
	return db
}

// MakeApplication makes a database that has nothing of honker's in it, and closes it.
func MakeApplication(t testing.TB, path string) {
	t.Helper()
	pool, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	pool.SetMaxOpenConns(1)
	ExecAll(t, pool, `PRAGMA page_size = 8192`, `PRAGMA user_version = 7`, `PRAGMA application_id = 99`,
		`CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)`, `INSERT INTO orders (item) VALUES ('tea')`)
	require.NoError(t, pool.Close())
}

// MakeFile makes a file with honker's schema, and closes it.
func MakeFile(t testing.TB, path string) {
	t.Helper()
	db, err := honker.Open(context.Background(), path, &honker.Options{NoFileNotices: true}) // also in a bubble
	require.NoError(t, err)
	require.NoError(t, db.Close())
}

// ListDir returns what is in dir, with the modes.
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

// FileSum tells whether a file was changed. No process may have it open: reading it drops
// the locks that this process holds on it.
func FileSum(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return fmt.Sprintf("%x", sha256.Sum256(b))
}
