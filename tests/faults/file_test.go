//go:build unix

package faults_test

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

func init() { children["cautious writer"] = tryToWrite }

// tryToWrite prints the error of Open, or the error of Claim if both Claim and Enqueue fail.
func tryToWrite() {
	a := testkit.ChildArgs[testkit.Task]()
	db, err := honker.Open(testkit.ChildContext(), a.Path, nil)
	if err == nil {
		q := honker.NewQueue[int](db, "jobs", nil)
		_, claimed := q.Claim(testkit.ChildContext(), "w", 1)
		_, enqueued := q.Enqueue(testkit.ChildContext(), 99)
		if claimed != nil && enqueued != nil {
			err = claimed
		}
		testkit.Must(db.Close())
	}
	testkit.Say("error:", err)
}

// openToBreak opens a DB that the test will damage. It is not checked at the end of the test.
func openToBreak(t *testing.T, path string) *honker.DB {
	t.Helper()
	db, err := honker.Open(context.Background(), path, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// After the file was truncated, each verb returns an error. None treats the file as an empty
// database.
func TestDB_FileTruncated(t *testing.T) {
	for name, size := range map[string]int64{"to nothing": 0, "to a part": 5000} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "file.db")
			db := openToBreak(t, path)
			ctx := testkit.Context(t, testkit.Timeout)
			q := honker.NewQueue[string](db, "jobs", nil)
			for range 50 {
				testkit.Enqueue(t, q, strings.Repeat("x", 1000))
			}
			testkit.ExecAll(t, db.SQL(), `PRAGMA wal_checkpoint(TRUNCATE)`)
			require.NoError(t, os.Truncate(path, size))
			_, err := q.Claim(ctx, "w", 10)
			require.ErrorContains(t, err, `honker: claim "jobs": `)
			require.Error(t, db.Check(ctx))
			_, err = honker.NewStream[int](db, "events", nil).Publish(ctx, 1)
			require.Error(t, err)
			require.Error(t, testkit.LastError(q.Jobs(ctx, "w")))
		})
	}
}

// An emptied file loses no data while the log contains all of its pages, because they are written
// back.
func TestDB_FileEmptied(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file.db")
	db := openToBreak(t, path)
	id := testkit.Enqueue(t, honker.NewQueue[int](db, "jobs", nil), 1)
	require.NoError(t, os.Truncate(path, 0))
	require.NoError(t, db.Close())
	db = honkertest.OpenFile(t, path, nil)
	require.Equal(t, id, testkit.ClaimOne(t, honker.NewQueue[int](db, "jobs", nil)).ID)
}

// After the log was deleted, a process that had it open still sees all of its data. Other processes
// get an error and cannot read or write a different state.
func TestDB_LogDeleted(t *testing.T) {
	for name, written := range map[string]bool{"with all that there is": false, "when it was written back": true} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "file.db")
			db, err := honker.Open(context.Background(), path, nil)
			require.NoError(t, err)
			q := honker.NewQueue[int](db, "jobs", nil)
			testkit.Enqueue(t, q, 1)
			if written {
				testkit.ExecAll(t, db.SQL(), `PRAGMA wal_checkpoint(TRUNCATE)`)
			}
			require.NoError(t, os.Remove(path+"-wal"))
			testkit.Enqueue(t, q, 2)
			other := testkit.StartChild(t, "cautious writer", testkit.Task{Path: path})
			require.Contains(t, other.Line(testkit.Timeout), "I/O error")
			require.NoError(t, db.Close())
			db = honkertest.OpenFile(t, path, nil)
			require.EqualValues(t, 2, testkit.QueryInt(t, db.SQL(), testkit.CountJobs))
		})
	}
}

// Opening a name that is too long for the system returns an error and creates no file.
func TestDB_Open_NameTooLong(t *testing.T) {
	dir := t.TempDir()
	for name, path := range map[string]string{
		"a part": filepath.Join(dir, strings.Repeat("n", 256)),
		"all":    filepath.Join(dir, strings.Repeat(strings.Repeat("n", 255)+"/", 16), "file.db"),
	} {
		_, err := honker.Open(context.Background(), path, nil)
		require.ErrorIs(t, err, syscall.ENAMETOOLONG, name)
	}
	require.Empty(t, testkit.ListDir(t, dir))
}

// If the name of the log would be too long, opening the database fails, rather than a later write.
func TestDB_Open_NoRoomForLogName(t *testing.T) {
	_, err := honker.Open(context.Background(), filepath.Join(t.TempDir(), strings.Repeat("n", 255)), nil)
	require.Error(t, err)
}

// A file may have unknown columns, tables, indexes and triggers, added by a newer version or by the
// application.
func TestDB_Open_UnknownObjects(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file.db")
	testkit.MakeFile(t, path)
	testkit.ExecAll(t, testkit.OpenPool(t, path),
		`ALTER TABLE _honker_live ADD COLUMN color TEXT DEFAULT 'red'`,
		`ALTER TABLE _honker_stream ADD COLUMN color TEXT`,
		`ALTER TABLE _honkerx_meta ADD COLUMN color TEXT`,
		`CREATE TABLE seen (job INTEGER)`, `CREATE INDEX by_color ON _honker_live(color)`,
		`CREATE TRIGGER see AFTER INSERT ON _honker_live BEGIN INSERT INTO seen VALUES (NEW.id); END`)
	db := honkertest.OpenFile(t, path, nil)
	testkit.UseAll(t, db, testkit.OpenPool(t, path))
	q := honker.NewQueue[int](db, "others", nil)
	id := testkit.Enqueue(t, q, 1)
	require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM seen WHERE job = ?`, id))
	require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live WHERE id = ? AND color = 'red'`, id))
	require.NoError(t, testkit.ClaimOne(t, q).Ack(context.Background()))
}

// Opening a file with two hard links logs a warning, because each name would have its own log. It
// is allowed, since usually only one of the names is used.
func TestDB_Open_HardLinkWarns(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file.db")
	log := new(testkit.Log)
	openAndClose := func() {
		db, err := honker.Open(context.Background(), path, &honker.Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
		require.NoError(t, err)
		require.NoError(t, db.Close())
	}
	openAndClose()
	require.Zero(t, log.Times("WARN"))
	require.NoError(t, os.Link(path, filepath.Join(dir, "other.db")))
	openAndClose()
	require.Equal(t, 1, log.Times("the file has 2 names"))
}

// Restoring a backup over an open file resets its ids and offsets. Readers with a position in
// memory must then return an error rather than wait for ids that have passed, and must save
// nothing. When restarted, they continue from the backup. A group has its position in the file and
// continues without a restart.
func TestDB_BackupRestored(t *testing.T) {
	path, backup := filepath.Join(t.TempDir(), "file.db"), filepath.Join(t.TempDir(), "backup.db")
	db, other := honkertest.OpenFile(t, path, nil), honkertest.OpenFile(t, path, nil)
	ctx := testkit.Context(t, time.Minute)
	s := honker.NewStream[int](db, "s", nil)
	publish := func(n int) {
		for i := range n {
			testkit.Publish(t, honker.NewStream[int](other, "s", nil), i)
			_, err := other.Notify(ctx, "c", i)
			require.NoError(t, err)
		}
	}
	var heard [4]atomic.Int64
	ended := make(chan error, 3)
	read := func(i int, all iter.Seq2[*honker.Event[int], error]) {
		for _, err := range all {
			if err != nil {
				ended <- err
				return
			}
			heard[i].Add(1)
		}
	}
	_, err := s.SaveOffset(ctx, "consumer", 0)
	require.NoError(t, err)
	m, err := s.Group("g", nil).Join(ctx, "m")
	require.NoError(t, err)
	publish(50)
	testkit.Exec(t, db, `VACUUM INTO ?`, backup)

	var all sync.WaitGroup
	defer all.Wait()
	groupCtx, leave := context.WithCancel(ctx)
	defer leave()
	l, err := db.Listen(ctx, "c")
	require.NoError(t, err)
	all.Go(func() { read(0, s.Subscribe(ctx, "consumer", nil)) })
	all.Go(func() { read(1, s.Tail(ctx, honker.Beginning, nil)) })
	all.Go(func() {
		for _, err := range l.All(ctx) {
			if err != nil {
				ended <- err
				return
			}
			heard[2].Add(1)
		}
	})
	all.Go(func() {
		for d, err := range m.All(groupCtx) {
			if err == nil && d.Ack(ctx) == nil {
				heard[3].Add(1)
			}
		}
	})
	publish(50)
	testkit.Eventually(t, testkit.Timeout, "all have heard all", func() bool {
		return heard[0].Load() == 100 && heard[1].Load() == 100 && heard[2].Load() == 50 && heard[3].Load() == 100
	})

	restore(t, path, backup)
	publish(10)
	for range 3 {
		require.ErrorIs(t, testkit.Within(ctx, ended, testkit.Timeout), honker.ErrDatabaseReplaced)
	}
	testkit.Eventually(t, testkit.Timeout, "the group goes on with the backup", func() bool {
		return testkit.GroupInfo(t, s.Group("g", nil)).LowWater == 60
	})
	offset, err := s.Offset(ctx, "consumer")
	require.NoError(t, err)
	require.LessOrEqual(t, offset, int64(50), "an offset of before the restore was saved")
	for e, err := range s.Subscribe(ctx, "consumer", nil) {
		require.NoError(t, err)
		if e.Offset == 60 {
			break
		}
	}
}

// restore copies a backup over the pages of an open file, like the .restore command of the sqlite3
// shell.
func restore(t *testing.T, path, backup string) {
	t.Helper()
	conn, err := testkit.OpenPool(t, path).Conn(context.Background())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.Raw(func(c any) error {
		b, err := c.(interface {
			NewRestore(string) (*sqlite.Backup, error)
		}).NewRestore(backup)
		if err != nil {
			return err
		}
		_, err = b.Step(-1)
		return errors.Join(err, b.Finish())
	}))
}
