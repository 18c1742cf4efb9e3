package honker

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/honker-go/honker/internal/sqlite/backend"
)

// Attach returns a DB that uses an existing pool from any SQLite driver. The caller still owns the pool, which keeps
// its settings: journal mode, synchronous level and size. Close does not close the pool.
//
// The application's transactions and honker's compete for the file's lock inside SQLite. The application waits
// for the pool's busy timeout, and honker retries its statements for BusyTimeout. Attach logs a warning if the
// pool uses a shared cache, or if it has no busy timeout and the file uses a rollback journal. A rollback
// journal alone, or a missing busy timeout alone, is logged at Info.
//
// Commits made through the pool are detected the same way as commits by other processes. While a goroutine waits, one
// connection of the pool is reserved to watch for commits, unless the pool has only one. If all connections are in
// use, a verb waits until ctx ends or until BusyTimeout has passed, and then returns [ErrBusy].
//
// The driver must include SQLite 3.51.3 or newer; otherwise Attach returns [ErrUnsupported]. Older versions can damage
// a write-ahead log that several connections share (https://sqlite.org/wal.html#walresetbug). The same applies to every
// other program that uses the file, which Attach cannot check; Litestream includes a fixed SQLite since 0.5.17. On
// Windows, ncruces/go-sqlite3 must be 0.35.3 or newer, because older versions damage WAL files under load. If this
// process also has the file open through [Open], never attach a pool that uses a different SQLite library: each library
// would drop the other's locks.
func Attach(ctx context.Context, pool *sql.DB, opts *Options) (*DB, error) {
	db, err := attach(ctx, pool, opts)
	return db, fail("attach", "", err)
}

func attach(ctx context.Context, pool *sql.DB, opts *Options) (*DB, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := o.refuseBubble(); err != nil {
		return nil, err
	}
	if o.LegacyMessages {
		return nil, fmt.Errorf("%w: LegacyMessages requires Open: the connections of an attached pool belong to the application", ErrUnsupported)
	}
	if pool == nil {
		return nil, fmt.Errorf("%w: nil pool", ErrInvalid)
	}
	b, err := backend.Attach(ctx, pool, o.sqlite())
	if err != nil {
		return nil, err
	}
	return newDB(o, b, backend.Stores(), b.SQL, b.Looks()), nil
}
