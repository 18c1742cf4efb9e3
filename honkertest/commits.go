package honkertest

import (
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/honker-go/honker"
)

// FailCommits lets the next n commits of db fail with err; n below 0: all of them, until the function that is returned
// is called, or the test ends. Such a commit is rolled back by SQLite, as where the disk fails: what was to be
// committed has not happened, and the verb, or the Commit, returns an error that wraps err. So a handler of which the
// ack fails has run, and its job is not acked.
//
// All commits of this DB count: of verbs, several of which may share one and then fail together, of DB.Tx and DB.SQL,
// of the Work loops, and of the books that honker keeps now and then, such as which workers run. Where a Work runs,
// let all commits fail for a while instead of a number of them. Reads and rollbacks are no commits, and those of
// other processes go on. A later FailCommits or [DiskFull] takes the place of this one, and both take that of a
// commit hook which Options.OnConnect has set.
//
// The test fails now if err is nil, or if db was attached to a pool of another driver.
func FailCommits(t testing.TB, db *honker.DB, n int, err error) (end func()) {
	t.Helper()
	if err == nil {
		t.Fatalf("honkertest: fail commits: with which error? It is nil")
	}
	var failed atomic.Int64
	return refuseCommits(t, db, func() error {
		if n >= 0 && failed.Add(1) > int64(n) {
			return nil
		}
		return err
	})
}

// DiskFull lets the disk of db be full, until the function that is returned is called, or the test ends. Each commit
// fails then, also one that deletes, since a commit needs room in the write-ahead log: see [FailCommits]. The error
// is SQLite's own for it, "database or disk is full", code 13. Reads go on.
func DiskFull(t testing.TB, db *honker.DB) (end func()) {
	t.Helper()
	full, err := errFull()
	if err != nil {
		t.Fatalf("honkertest: disk full: %v", err)
	}
	return refuseCommits(t, db, func() error { return full })
}

// refuseCommits lets each commit of db ask fail, by what the driver of honker's connections has for it.
func refuseCommits(t testing.TB, db *honker.DB, fail func() error) (end func()) {
	t.Helper()
	driver, ours := db.SQL().Driver().(interface {
		RefuseCommits(fail func() error) (end func())
	})
	if !ours {
		t.Fatalf("honkertest: the commits of a pool of %T cannot be made to fail: take a DB of honkertest.Open, "+
			"or attach to sql.OpenDB of a honker.Connector", db.SQL().Driver())
	}
	end = driver.RefuseCommits(fail)
	t.Cleanup(end)
	return end
}

const sqliteFull = 13 // https://sqlite.org/rescode.html#full

// errFull asks SQLite for its error, by filling a database in memory that may have one page.
func errFull() (full, err error) {
	pool, err := sql.Open("sqlite", ":memory:") // the driver that honker brings along
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	_, full = pool.Exec(`PRAGMA max_page_count = 1; CREATE TABLE filled (x)`)
	var coded interface{ Code() int }
	if !errors.As(full, &coded) || coded.Code() != sqliteFull {
		return nil, fmt.Errorf("SQLite was to say that it is full, and says: %v", full)
	}
	return full, nil
}
