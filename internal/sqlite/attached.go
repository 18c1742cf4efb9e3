package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// PoolSettings holds the settings of an application's pool that affect how honker works with the pool.
type PoolSettings struct {
	Waits       bool // statements have a busy timeout
	WAL         bool // readers and the writer don't block each other
	SharedCache bool // connections share a cache, which has table locks
}

// SettingsOf reads pool's settings. Per-connection settings are read from a single connection.
func SettingsOf(ctx context.Context, pool *sql.DB) (s PoolSettings, err error) {
	conn, err := pool.Conn(ctx)
	if err != nil {
		return s, err
	}
	defer conn.Close()
	var journal string
	var timeout int64
	if err := scanOne(ctx, conn, "PRAGMA journal_mode", &journal); err != nil {
		return s, err
	}
	if err := scanOne(ctx, conn, "PRAGMA busy_timeout", &timeout); err != nil {
		return s, err
	}
	s.WAL, s.Waits = journal == "wal", timeout > 0
	// Skip the check if it would have to wait for a second connection.
	if stats := pool.Stats(); stats.MaxOpenConnections == 0 || stats.InUse < stats.MaxOpenConnections {
		s.SharedCache, err = sharesCache(ctx, conn, pool)
	}
	return s, err
}

// sharesCache reports whether two connections of pool share a cache. SQLite has no query for this, so it changes
// the cache size of conn and checks whether the size of the other connection changes too.
func sharesCache(ctx context.Context, conn *sql.Conn, pool *sql.DB) (shared bool, err error) {
	other, err := pool.Conn(ctx)
	if err != nil {
		return false, err
	}
	defer other.Close()
	const size = "PRAGMA cache_size"
	var before, theirs, after int64
	if err := errors.Join(scanOne(ctx, conn, size, &before), scanOne(ctx, other, size, &theirs)); err != nil || before != theirs {
		return false, err
	}
	if _, err := conn.ExecContext(ctx, fmt.Sprintf("%s = %d", size, before-1)); err != nil {
		return false, err
	}
	err = scanOne(ctx, other, size, &after)
	_, restored := conn.ExecContext(context.WithoutCancel(ctx), fmt.Sprintf("%s = %d", size, before))
	return after != theirs, errors.Join(err, restored)
}

// Warnings describes problems with settings that honker can still work with.
func (s PoolSettings) Warnings() (all []string) {
	if !s.Waits && !s.WAL {
		all = append(all, "the pool has a rollback journal and no busy timeout: its own statements fail with "+
			"\"database is locked\" beside any writer; set busy_timeout, or journal_mode WAL")
	}
	if s.SharedCache {
		all = append(all, "the connections of the pool share a cache (cache=shared): statements fail with "+
			"\"database table is locked\" and commits may be noticed late; open the pool without it")
	}
	return all
}

// Hint returns a suggestion for better settings, or "" if there is none. It omits settings covered by Warnings.
func (s PoolSettings) Hint() string {
	switch {
	case s.Waits && !s.WAL:
		return "the database uses a rollback journal: a commit takes several times as long as with a write-ahead log, " +
			"and waits for readers; set journal_mode=WAL in the pool's DSN"
	case s.WAL && !s.Waits:
		return "the pool has no busy timeout: its own statements fail with \"database is locked\" while another " +
			"connection writes; set busy_timeout in the pool's DSN"
	}
	return ""
}

// CommitAttached commits tx, which may belong to any driver. With a rollback journal, COMMIT fails while another
// connection is reading, so CommitAttached retries it for up to limit. It runs COMMIT as a statement, because
// database/sql abandons a transaction after the first call to Commit.
func CommitAttached(tx *sql.Tx, limit time.Duration) error {
	ctx := context.Background()
	err := Retry(ctx, limit, func() error {
		_, err := tx.ExecContext(ctx, "COMMIT")
		return err
	})
	if errors.Is(err, sql.ErrTxDone) {
		return tx.Commit() // returns the actual error
	}
	if err != nil {
		return err
	}
	// database/sql expects Commit to end a transaction. The original is already committed, so give Commit an empty
	// transaction to end.
	if _, err := tx.ExecContext(ctx, "BEGIN"); err == nil {
		_ = tx.Commit()
	}
	return nil
}
