package admin_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// jobsIn checks the file at path and returns the number of jobs in it.
func jobsIn(t *testing.T, path string) int64 {
	t.Helper()
	db := honkertest.OpenFile(t, path, &honker.Options{ReadOnly: true})
	require.NoError(t, db.Check(t.Context()))
	stats, err := honker.NewQueue[int](db, "jobs", nil).Stats(t.Context())
	require.NoError(t, err)
	require.NoError(t, db.Close())
	return stats.Ready.N
}

// A backup is a consistent snapshot: a transaction that adds two jobs is either there in full or not at
// all.
func TestBackup_WhileWritten(t *testing.T) {
	testkit.FileOnly(t)
	dir := t.TempDir()
	db := honkertest.OpenFile(t, filepath.Join(dir, "app.db"), nil)
	q := honker.NewQueue[int](db, "jobs", nil)
	_, err := q.EnqueueMany(t.Context(), make([]int, 20_000)) // enough for more than a few steps
	require.NoError(t, err)
	for name, opts := range map[string]*honker.Options{"writer": nil, "reader": {ReadOnly: true}} {
		other := honkertest.OpenFile(t, filepath.Join(dir, "app.db"), opts)
		ctx, stop := context.WithCancel(t.Context())
		writes, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			for first := true; ctx.Err() == nil; {
				if _, err := q.EnqueueMany(ctx, []int{1, 2}); err == nil && first {
					close(writes)
					first = false
				}
			}
		}()
		<-writes
		to := filepath.Join(dir, name+".db")
		err := admin.Backup(t.Context(), other, to)
		stop()
		<-ended
		require.NoError(t, err, name)
		copied := jobsIn(t, to)
		require.GreaterOrEqual(t, copied, int64(20_000))
		require.Zero(t, copied%2)
		require.NoFileExists(t, to+".part")
	}
}

// Backup leaves an existing file at path alone and removes its own files after an error.
func TestBackup_Refused(t *testing.T) {
	testkit.FileOnly(t)
	dir := t.TempDir()
	db := honkertest.OpenFile(t, filepath.Join(dir, "app.db"), nil)
	to := filepath.Join(dir, "backup.db")
	require.NoError(t, os.WriteFile(to, []byte("mine"), 0o644))
	err := admin.Backup(t.Context(), db, to)
	require.ErrorIs(t, err, honker.ErrInvalid)
	require.ErrorIs(t, err, fs.ErrExist)
	require.Equal(t, "mine", string(must1(os.ReadFile(to))))
	require.ErrorIs(t, admin.Backup(t.Context(), db, filepath.Join(dir, "app.db")), fs.ErrExist)
	require.ErrorIs(t, admin.Backup(t.Context(), db, ""), honker.ErrInvalid)
	require.ErrorIs(t, admin.Backup(t.Context(), nil, "x"), honker.ErrInvalid)
	require.ErrorIs(t, admin.Backup(t.Context(), db, filepath.Join(dir, "none", "backup.db")), fs.ErrNotExist)

	ended, stop := context.WithCancel(t.Context())
	stop()
	err = admin.Backup(ended, db, filepath.Join(dir, "second.db"))
	require.True(t, errors.Is(err, context.Canceled), "%v", err)
	left := must1(filepath.Glob(filepath.Join(dir, "*.part*")))
	require.Empty(t, left)
	require.NoFileExists(t, filepath.Join(dir, "second.db"))

	require.NoError(t, os.WriteFile(filepath.Join(dir, "third.db.part"), []byte("of an earlier try"), 0o644))
	require.NoError(t, admin.Backup(t.Context(), db, filepath.Join(dir, "third.db")))
	require.Zero(t, jobsIn(t, filepath.Join(dir, "third.db")))
}

// Backup refuses names that SQLite and honker use next to the database. SQLite would delete such a file or
// read it as the log.
func TestBackup_Refused_NamesOfTheFile(t *testing.T) {
	testkit.FileOnly(t)
	dir, linked := t.TempDir(), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, linked); err != nil {
		linked = dir
	}
	path := filepath.Join(dir, "app.db.part")
	require.NoError(t, honkertest.OpenFile(t, path, nil).Close())
	db := honkertest.OpenFile(t, path, &honker.Options{ReadOnly: true}) // read-only, so no log takes up a name
	require.NoError(t, os.MkdirAll(path+"-wake", 0o700))
	for _, name := range []string{
		"app.db.part", "app.db.part-wal", "app.db.part-shm", "app.db.part-journal", "app.db.part-wake", "app.db.part-wake/copy.db",
		"app.db", // would be written as app.db.part
	} {
		for _, in := range []string{dir, linked} {
			before := must1(os.ReadFile(path))
			err := admin.Backup(t.Context(), db, filepath.Join(in, name))
			require.ErrorIs(t, err, honker.ErrInvalid, name)
			require.Equal(t, before, must1(os.ReadFile(path)), name)
		}
	}
	require.Empty(t, must1(os.ReadDir(path+"-wake")))
	require.NoError(t, admin.Backup(t.Context(), db, filepath.Join(dir, "other.db-wal")), "of another file")
	link := filepath.Join(dir, "alias.db")
	if os.Symlink(path, link) == nil {
		byLink := honkertest.OpenFile(t, link, &honker.Options{ReadOnly: true})
		require.ErrorIs(t, admin.Backup(t.Context(), byLink, path+"-wal"), honker.ErrInvalid)
	}
}

// Vacuum makes the file smaller without losing data.
func TestVacuum_FreePages(t *testing.T) {
	testkit.FileOnly(t)
	path := filepath.Join(t.TempDir(), "app.db")
	db := honkertest.OpenFile(t, path, nil)
	_, err := honker.NewQueue[int](db, "old", nil).EnqueueMany(t.Context(), make([]int, 20_000))
	require.NoError(t, err)
	_, err = honker.NewQueue[int](db, "jobs", nil).EnqueueMany(t.Context(), make([]int, 10))
	require.NoError(t, err)
	_, err = admin.Cancel(t.Context(), db, admin.JobFilter{Queues: []string{"old"}}, nil)
	require.NoError(t, err)
	before, err := admin.File(t.Context(), db)
	require.NoError(t, err)
	require.Positive(t, before.FreePages)
	require.NoError(t, admin.Vacuum(t.Context(), db))
	after, err := admin.File(t.Context(), db)
	require.NoError(t, err)
	require.Zero(t, after.FreePages)
	require.Less(t, after.Pages, before.Pages)
	require.Equal(t, after.Pages*after.PageSize, after.Size)
	require.Zero(t, after.WAL)
	require.NoError(t, db.Close())
	require.Equal(t, int64(10), jobsIn(t, path))

	reader := honkertest.OpenFile(t, path, &honker.Options{ReadOnly: true})
	require.ErrorIs(t, admin.Vacuum(t.Context(), reader), honker.ErrReadOnly)
	require.ErrorIs(t, admin.Vacuum(t.Context(), nil), honker.ErrInvalid)
}

// A read that is under way when Vacuum is done does not leave the file as large as before.
func TestVacuum_WaitsForReads(t *testing.T) {
	testkit.FileOnly(t)
	db := honkertest.OpenFile(t, filepath.Join(t.TempDir(), "app.db"), nil)
	_, err := db.SQL().Exec(`CREATE TABLE large (x); INSERT INTO large VALUES (zeroblob(1000000)); DROP TABLE large`)
	require.NoError(t, err)
	rows, err := db.SQL().Query(`SELECT 1 FROM sqlite_schema`)
	require.NoError(t, err)
	require.True(t, rows.Next())
	time.AfterFunc(100*time.Millisecond, func() { rows.Close() })
	require.NoError(t, admin.Vacuum(t.Context(), db))
	after, err := admin.File(t.Context(), db)
	require.NoError(t, err)
	require.Equal(t, after.Pages*after.PageSize, after.Size)
}

func must1[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
