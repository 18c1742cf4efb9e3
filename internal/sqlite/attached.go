package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// PoolSettings are what an application has chosen for its pool, as far as honker works
// differently with it.
type PoolSettings struct {
	Waits       bool // the pool's statements wait for locks
	WAL         bool // readers and the writer do not wait for each other
	SharedCache bool // its connections are one to SQLite
}

// SettingsOf asks pool. What is set for each connection is that of one of them.
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
	// Not where the question would have to wait for a second connection.
	if stats := pool.Stats(); stats.MaxOpenConnections == 0 || stats.InUse < stats.MaxOpenConnections {
		s.SharedCache, err = sharesCache(ctx, conn, pool)
	}
	return s, err
}

// sharesCache reports that the size of conn's cache is also that of another connection's, which
// SQLite does not tell otherwise.
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

// Warnings says what goes wrong with a pool that is used all the same.
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

// Hint returns a setting of the pool that would serve the application better, and how to change it; "": none. What
// Warnings names is left out.
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

// CommitAttached commits tx, of any driver. With a rollback journal a COMMIT fails while another
// connection reads: it is tried again for as long as limit, by its text, since database/sql
// forgets a transaction with its first Commit.
func CommitAttached(tx *sql.Tx, limit time.Duration) error {
	ctx := context.Background()
	err := Retry(ctx, limit, func() error {
		_, err := tx.ExecContext(ctx, "COMMIT")
		return err
	})
	if errors.Is(err, sql.ErrTxDone) {
		return tx.Commit() // which knows why
	}
	if err != nil {
		return err
	}
	// database/sql has still to end one: an empty one, since the transaction is committed.
	if _, err := tx.ExecContext(ctx, "BEGIN"); err == nil {
		_ = tx.Commit()
	}
	return nil
}
