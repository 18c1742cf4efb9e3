package admin_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/internal/testkit"
)

// rowsOf returns the number of rows in one of honker's tables.
func rowsOf(t *testing.T, f *admin.FileInfo, table string) honker.Count {
	t.Helper()
	for _, info := range f.Tables {
		if info.Name == table {
			return info.Rows
		}
	}
	t.Fatalf("no table %q in %v", table, f.Tables)
	return honker.Count{}
}

// File describes an opened file: its sizes, its settings, and the row counts of honker's own
// tables.
func TestFile_Opened(t *testing.T) {
	testkit.FileOnly(t)
	ctx, db, q, _ := open(t)
	testkit.Enqueue(t, q, 1)
	testkit.Exec(t, db, `CREATE TABLE orders (id INTEGER)`)
	testkit.Exec(t, db, `PRAGMA application_id = 7`)
	testkit.Exec(t, db, `PRAGMA user_version = 3`)
	testkit.Exec(t, db, testkit.Numbers(10_001)+`INSERT INTO _honker_notifications (channel, payload) SELECT 'c', '1' FROM some`)
	testkit.Exec(t, db, testkit.Numbers(10_000)+`INSERT INTO _honker_results (job_id, value) SELECT n, '1' FROM some`)
	testkit.Exec(t, db, `DELETE FROM _honker_results WHERE job_id > 5`)
	f, err := admin.File(ctx, db)
	require.NoError(t, err)
	size, err := os.Stat(f.Path)
	require.NoError(t, err)
	require.Equal(t, size.Size(), f.Size)
	require.Positive(t, f.WAL)
	require.Positive(t, f.FreePages)
	require.Greater(t, f.Pages*f.PageSize, int64(100<<10))
	require.Equal(t, "wal", f.JournalMode)
	require.Equal(t, "normal", f.Synchronous)
	require.Regexp(t, `^3\.\d+`, f.SQLite)
	require.Positive(t, f.Schema)
	require.EqualValues(t, 7, f.ApplicationID)
	require.EqualValues(t, 3, f.UserVersion)
	require.Equal(t, honker.Count{N: 10_000, More: true}, rowsOf(t, f, "_honker_notifications"))
	require.Equal(t, honker.Count{N: 5}, rowsOf(t, f, "_honker_results"))
	require.Equal(t, honker.Count{N: 1}, rowsOf(t, f, "_honker_live"))
	for _, table := range f.Tables {
		require.NotEqual(t, "orders", table.Name)
	}
}

// File describes an attached pool in each journal mode, even with a single connection.
func TestFile_Attached(t *testing.T) {
	testkit.FileOnly(t)
	for _, journal := range []string{"wal", "delete", "truncate", "persist"} {
		t.Run(journal, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "app.db")
			testkit.MakeApplication(t, path)
			pool := testkit.OpenPool(t, path)
			pool.SetMaxOpenConns(1)
			testkit.ExecAll(t, pool, `PRAGMA journal_mode=`+journal, `PRAGMA synchronous=FULL`)
			db, err := honker.Attach(context.Background(), pool, nil)
			require.NoError(t, err)
			defer db.Close()
			f, err := admin.File(testkit.Context(t, testkit.Timeout), db)
			require.NoError(t, err)
			require.Equal(t, journal, f.JournalMode)
			require.Equal(t, "full", f.Synchronous)
			require.Equal(t, journal == "wal", f.WAL > 0)
			require.Equal(t, honker.Count{}, rowsOf(t, f, "_honker_live"))
		})
	}
}
