package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// oldest is the first SQLite version in which a WAL reset that races with another connection cannot corrupt
// the WAL, https://sqlite.org/wal.html#walresetbug.
var oldest = [3]int{3, 51, 3}

// CheckVersion rejects SQLite versions with this bug, since honker always has several connections to a
// WAL.
func CheckVersion(ctx context.Context, q row.Querier) error {
	var version string
	if err := scanOne(ctx, q, "SELECT sqlite_version()", &version); err != nil {
		return err
	}
	if older(version, oldest) {
		return fmt.Errorf("%w: SQLite %s can corrupt a WAL that several connections share; %d.%d.%d or newer is needed",
			engine.ErrUnsupported, version, oldest[0], oldest[1], oldest[2])
	}
	return nil
}

func older(version string, than [3]int) bool {
	for i, part := range strings.SplitN(version, ".", 3) {
		n, err := strconv.Atoi(part)
		if err != nil || n != than[i] {
			return err != nil || n < than[i]
		}
	}
	return false
}

// UseWAL switches the file to write-ahead logging, in which readers and the writer don't block each other. The
// setting is persistent.
func UseWAL(ctx context.Context, q row.Querier) error {
	var mode string
	if err := scanOne(ctx, q, "PRAGMA journal_mode=WAL", &mode); err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("%w: the file stays in journal mode %s", engine.ErrUnsupported, mode)
	}
	return nil
}

// TruncateWAL copies the WAL into the database file and truncates it. If a reader still needs the WAL, it
// reports false, because waiting would block all writers.
func TruncateWAL(ctx context.Context, conn *sql.Conn) (done bool, err error) {
	var timeout, busy, frames, copied, ignored int64
	if err := scanOne(ctx, conn, "PRAGMA busy_timeout", &timeout); err != nil {
		return false, err
	}
	ctx = context.WithoutCancel(ctx) // the timeout must be restored
	if err := scanOne(ctx, conn, "PRAGMA busy_timeout = 0", &ignored); err != nil {
		return false, err
	}
	err = scanOne(ctx, conn, "PRAGMA wal_checkpoint(TRUNCATE)", &busy, &frames, &copied)
	err = errors.Join(err, scanOne(ctx, conn, fmt.Sprintf("PRAGMA busy_timeout = %d", timeout), &ignored))
	return busy == 0 && err == nil, err
}

func scanOne(ctx context.Context, q row.Querier, query string, dest ...any) error {
	rows, err := q.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	if !rows.Next() {
		return errors.Join(rows.Err(), sql.ErrNoRows)
	}
	if err := rows.Scan(dest...); err != nil {
		return err
	}
	return rows.Close()
}

// ShrinkMemory frees the cached pages of a connection. A connection that has made honker's tables holds 400 KiB of them.
const ShrinkMemory = "PRAGMA shrink_memory"

const dataVersion = "PRAGMA data_version"

// Change detects commits on other connections. PRAGMA data_version changes with each commit on another connection,
// but not with commits on the same connection or with rollbacks. Its value is specific to a connection, so Change
// keeps using the same connection.
type Change struct {
	pool *sql.DB
	conn *sql.Conn
	lent bool // the pool has a single connection, which is returned after each call
}

// NewChange returns a Change that uses a connection of pool.
func NewChange(pool *sql.DB) *Change {
	return &Change{pool: pool, lent: pool.Stats().MaxOpenConnections == 1}
}

// Version returns a different value than the last call if there was a commit in between. It waits for a connection
// until ctx ends. After an error, the value may change without a commit.
func (v *Change) Version(ctx context.Context) (version int64, err error) {
	if v.conn == nil {
		if v.conn, err = v.pool.Conn(ctx); err != nil {
			return 0, err
		}
	}
	ctx = context.WithoutCancel(ctx) // ctx applies only to the wait: an interrupt could break the connection
	err = scanOne(ctx, v.conn, dataVersion, &version)
	if err == nil && v.lent {
		// All of this process's commits go through this connection, and its data_version does not count
		// them.
		var own int64
		err = scanOne(ctx, v.conn, "SELECT total_changes()", &own)
		version += own
	}
	switch {
	case v.lent:
		_ = v.Close()
	case err != nil && !IsBusy(err):
		v.discard()
	}
	return version, err
}

// discard makes the pool close the connection instead of reusing it.
func (v *Change) discard() {
	_ = v.conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = v.Close()
}

// Close returns the connection to the pool.
func (v *Change) Close() error {
	if v.conn == nil {
		return nil
	}
	err := v.conn.Close()
	v.conn = nil
	return err
}

// OwnChange is a Change with its own connection outside a pool. It avoids the goroutine that database/sql
// starts for each pool. Its methods may be called at any time.
type OwnChange struct {
	connector driver.Connector
	mu        sync.Mutex // guards conn
	conn      driver.Conn
}

// NewOwnChange returns an OwnChange for c. The first call of Version opens the connection.
func NewOwnChange(c driver.Connector) *OwnChange { return &OwnChange{connector: c} }

// Version is like Change.Version.
func (v *OwnChange) Version(ctx context.Context) (version int64, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.conn == nil {
		if v.conn, err = v.connector.Connect(ctx); err != nil {
			return 0, err
		}
	}
	version, err = v.read(context.WithoutCancel(ctx))
	if err != nil && !IsBusy(err) {
		_ = v.closeLocked()
	}
	return version, err
}

func (v *OwnChange) read(ctx context.Context) (int64, error) {
	rows, err := v.conn.(driver.QueryerContext).QueryContext(ctx, dataVersion, nil)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	var row [1]driver.Value
	if err := rows.Next(row[:]); err != nil {
		return 0, err
	}
	version, _ := row[0].(int64)
	return version, nil
}

// Close closes the connection. A later call of Version opens a new connection.
func (v *OwnChange) Close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.closeLocked()
}

func (v *OwnChange) closeLocked() error {
	if v.conn == nil {
		return nil
	}
	err := v.conn.Close()
	v.conn = nil
	return err
}
