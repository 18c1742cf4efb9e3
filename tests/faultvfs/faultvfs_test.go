//go:build unix

package faultvfs_test

import (
	"database/sql"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"modernc.org/sqlite"

	"github.com/honker-go/honker/tests/faultvfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a database on its own Disk.
func open(t *testing.T, pragmas string) (*faultvfs.Disk, *sql.DB) {
	t.Helper()
	dir := t.TempDir()
	disk, err := faultvfs.New(dir)
	require.NoError(t, err)
	db, err := sql.Open("sqlite", filepath.Join(dir, "a.db")+"?_pragma=journal_mode(wal)"+pragmas)
	require.NoError(t, err)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() {
		require.NoError(t, db.Close())
		disk.Remove()
	})
	_, err = db.Exec(`CREATE TABLE t (n)`)
	require.NoError(t, err)
	return disk, db
}

// left collects the row counts that a power cut may leave now, from a sample of 60 images. -1 means
// that the table does not exist.
func left(t *testing.T, disk *faultvfs.Disk, db *sql.DB) map[int]bool {
	t.Helper()
	var images []faultvfs.Image
	disk.Cut(func() bool { return len(images) == 0 }, func(m faultvfs.Image) { images = append(images, m) })
	_, err := db.Exec(`DELETE FROM t`) // the power cut happens before its first write
	require.NoError(t, err)
	require.Len(t, images, 1)
	found := map[int]bool{}
	for seed := range uint64(60) {
		dir := t.TempDir()
		require.NoError(t, images[0].Write(dir, rand.New(rand.NewPCG(seed, 0))))
		found[count(t, filepath.Join(dir, "a.db"))] = true
	}
	return found
}

func count(t *testing.T, path string) int {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	defer db.Close()
	n := -1
	_ = db.QueryRow(`SELECT count(*) FROM t`).Scan(&n)
	return n
}

// A power cut keeps all synced commits.
func TestFaultVFS_Cut_KeepsSynced(t *testing.T) {
	disk, db := open(t, "&_pragma=synchronous(full)")
	for range 5 {
		_, err := db.Exec(`INSERT INTO t VALUES (1)`)
		require.NoError(t, err)
	}
	require.Equal(t, map[int]bool{5: true}, left(t, disk, db))
}

// A power cut may lose unsynced commits.
func TestFaultVFS_Cut_TakesUnsynced(t *testing.T) {
	disk, db := open(t, "&_pragma=synchronous(normal)")
	for range 5 {
		_, err := db.Exec(`INSERT INTO t VALUES (1)`)
		require.NoError(t, err)
	}
	found := left(t, disk, db)
	require.True(t, found[5], "all may survive: %v", found)
	require.Greater(t, len(found), 3, "and less: %v", found)
}

// The Plan decides which calls fail and with which code. Other calls succeed.
func TestFaultVFS_PlannedFailure(t *testing.T) {
	disk, db := open(t, "&_pragma=synchronous(full)")
	codes := map[faultvfs.Kind]int{}
	for _, kind := range []faultvfs.Kind{faultvfs.Write, faultvfs.Sync} {
		disk.Fail(func(c faultvfs.Call) int32 {
			if c.Kind == kind {
				return kind.Code()
			}
			return 0
		})
		_, err := db.Exec(`INSERT INTO t VALUES (1)`)
		var failed *sqlite.Error
		require.ErrorAs(t, err, &failed)
		codes[kind] = failed.Code()
		disk.Fail(nil)
		_, err = db.Exec(`INSERT INTO t VALUES (1)`)
		require.NoError(t, err)
	}
	require.Equal(t, map[faultvfs.Kind]int{faultvfs.Write: 778, faultvfs.Sync: 1034}, codes)
}

// Clock changes the time that SQLite reads.
func TestFaultVFS_Clock(t *testing.T) {
	_, db := open(t, "")
	defer faultvfs.Clock(0)
	for _, d := range []time.Duration{0, time.Hour, -24 * time.Hour} {
		faultvfs.Clock(d)
		var at int64
		require.NoError(t, db.QueryRow(`SELECT unixepoch()`).Scan(&at))
		require.WithinDuration(t, time.Now().Add(d), time.Unix(at, 0), 5*time.Second)
	}
}

// Files outside of the Disk are not affected.
func TestFaultVFS_OtherFiles(t *testing.T) {
	disk, _ := open(t, "")
	disk.Fail(func(faultvfs.Call) int32 { return faultvfs.Full })
	defer disk.Fail(nil)
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "b.db"))
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Exec(`CREATE TABLE t (n)`)
	require.NoError(t, err)
}
