package honkertest

import (
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/honker-go/honker"
)

// FailCommits makes the next n commits on db fail with err. If n is negative, all commits fail
// until end is called or the test ends. SQLite rolls back a failed commit, as it does on a disk
// error: nothing is written, and the honker method or Commit returns an error that wraps err. If a
// job's ack fails, its handler has run but the job is not acked.
//
// Every commit on db counts, whether it comes from a honker method, from DB.Tx or DB.SQL, from a
// Work loop, or from honker's occasional bookkeeping, such as the list of running workers. Several
// concurrent calls may share a commit and then fail together. While a Work loop is running, prefer
// a negative n to an exact number. Reads, rollbacks and other processes' commits are not affected.
// A later call to FailCommits or [DiskFull] replaces this fault. Both replace any commit hook set
// by Options.OnConnect.
//
// FailCommits calls t.Fatal if err is nil, if db is on a server, or if db is attached to a pool that
// uses another driver.
func FailCommits(t testing.TB, db *honker.DB, n int, err error) (end func()) {
	t.Helper()
	requireFile(t, db, "FailCommits")
	if err == nil {
		t.Fatalf("honkertest: FailCommits: err must not be nil")
	}
	var failed atomic.Int64
	return refuseCommits(t, db, func() error {
		if n >= 0 && failed.Add(1) > int64(n) {
			return nil
		}
		return err
	})
}

// DiskFull simulates a full disk for db until end is called or the test ends. Every commit fails,
// even for a DELETE, because commits need space in the write-ahead log (see [FailCommits]). The
// error is SQLite's "database or disk is full", code 13. Reads are not affected.
// DiskFull calls t.Fatal if db is on a server.
func DiskFull(t testing.TB, db *honker.DB) (end func()) {
	t.Helper()
	requireFile(t, db, "DiskFull")
	full, err := errFull()
	if err != nil {
		t.Fatalf("honkertest: disk full: %v", err)
	}
	return refuseCommits(t, db, func() error { return full })
}

// refuseCommits installs fail in db's driver. A commit fails if fail returns an error.
func refuseCommits(t testing.TB, db *honker.DB, fail func() error) (end func()) {
	t.Helper()
	driver, ours := db.SQL().Driver().(interface {
		RefuseCommits(fail func() error) (end func())
	})
	if !ours {
		t.Fatalf("honkertest: commits of a pool of %T cannot be made to fail: use a DB from honkertest.Open, "+
			"or attach to sql.OpenDB of a honker.Connector", db.SQL().Driver())
	}
	end = driver.RefuseCommits(fail)
	t.Cleanup(end)
	return end
}

const sqliteFull = 13 // https://sqlite.org/rescode.html#full

// errFull returns SQLite's error for a full disk. It triggers the error with an in-memory database
// that is limited to a single page.
func errFull() (full, err error) {
	pool, err := sql.Open("sqlite", ":memory:") // registered by honker
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	_, full = pool.Exec(`PRAGMA max_page_count = 1; CREATE TABLE filled (x)`)
	var coded interface{ Code() int }
	if !errors.As(full, &coded) || coded.Code() != sqliteFull {
		return nil, fmt.Errorf("SQLite did not report a full database: %v", full)
	}
	return full, nil
}
