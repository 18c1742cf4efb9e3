package honker

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/sqlite"
	"github.com/honker-go/honker/internal/store"
	"github.com/honker-go/honker/internal/wake"
	"github.com/honker-go/honker/internal/watch"
)

// Attach uses an existing pool of any SQLite driver. The pool still belongs to the caller and keeps its settings:
// journal mode, synchronous, size. Close does not close it.
//
// The application's transactions and honker's compete for the file's lock inside SQLite. The application's wait for the
// pool's busy timeout; honker's statements are retried for BusyTimeout. Attach logs a warning for a pool with a shared
// cache and for a pool without a busy timeout on a rollback journal. A rollback journal alone, or a missing busy
// timeout alone, is logged at Info.
//
// Commits through the pool are noticed in the same way as commits of another process. While there is a waiter, a
// connection of the pool is reserved to watch for commits, unless the pool has only one. A verb that finds all
// connections in use waits until ctx ends or BusyTimeout has passed ([ErrBusy]).
//
// The driver must include SQLite 3.51.3 or newer; otherwise Attach returns [ErrUnsupported]. Older versions can damage a
// write-ahead log that several connections share (https://sqlite.org/wal.html#walresetbug). The same applies to every
// other program that uses the file, which Attach cannot check; Litestream includes a fixed SQLite since 0.5.17. On
// Windows, ncruces/go-sqlite3 must be 0.35.3 or newer, because older versions damage WAL files under load. Never attach
// a pool of another SQLite library to a file that this process also has open through [Open]: each library would drop
// the other's locks.
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
		return nil, fmt.Errorf("%w: LegacyMessages needs connections of Open: those of an attached pool are the application's", ErrUnsupported)
	}
	if pool == nil {
		return nil, fmt.Errorf("%w: nil pool", ErrInvalid)
	}
	b := &attached{opts: o, pool: pool}
	// Opening a connection may meet a lock, and so may each read.
	if err := sqlite.Retry(ctx, o.BusyTimeout, func() error { return b.prepare(ctx) }); err != nil {
		return nil, err
	}
	warn(o, b.identity)
	for _, warning := range b.settings.Warnings() {
		o.Logger.Warn("honker: "+warning, "path", b.Name())
	}
	if hint := b.settings.Hint(); hint != "" {
		o.Logger.Info("honker: "+hint, "path", b.Name())
	}
	b.writer = sqlite.NewCommitter(sqlite.ForeignPool(pool), o.BusyTimeout)
	return newDB(o, b, sqliteStores), nil
}

// prepare reads the identity and the settings of the pool's file and brings its schema up to date.
func (b *attached) prepare(ctx context.Context) error {
	path, err := sqlite.MainFile(ctx, b.pool)
	if err != nil {
		return err
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return err
	}
	if b.identity, err = sqlite.NewIdentity(path); err != nil {
		return err
	}
	keepJournal := func(context.Context, sqlite.Querier) error { return nil }
	if err := prepare(ctx, b.pool, path, b.opts, keepJournal); err != nil {
		return err
	}
	b.settings, err = sqlite.SettingsOf(ctx, b.pool)
	return err
}

// attached is the backend of a pool that belongs to the application. It has no gate for writers: they wait inside
// SQLite, and honker's statements are retried.
type attached struct {
	opts     Options
	pool     *sql.DB
	identity *sqlite.Identity
	settings sqlite.PoolSettings
	writer   *sqlite.Committer
	watcher  wake.Watcher
}

var _ engine.Backend = (*attached)(nil)

// Name implements engine.Backend.
func (b *attached) Name() string { return b.identity.Path() }

// Write implements engine.Backend. It reports its own commit to the watcher, since nothing else would.
func (b *attached) Write(ctx context.Context, op engine.Op) error {
	if err := b.identity.Check(); err != nil {
		return err
	}
	if err := b.writer.Do(ctx, op); err != nil {
		return err
	}
	b.watcher.Committed()
	return nil
}

// Begin implements engine.Backend. The pool may begin transactions deferred, so a statement takes the write lock and
// is retried until the lock is free.
func (b *attached) Begin(ctx context.Context) (tx *sql.Tx, release func(), err error) {
	if err := b.identity.Check(); err != nil {
		return nil, nil, err
	}
	conn, err := sqlite.Borrow(ctx, b.pool, b.opts.BusyTimeout)
	if err != nil {
		return nil, nil, err
	}
	err = sqlite.Retry(ctx, b.opts.BusyTimeout, func() error {
		if tx, err = conn.BeginTx(ctx, nil); err != nil {
			return err
		}
		if err = store.TakeWriteLock(ctx, tx); err != nil {
			_ = tx.Rollback()
		}
		return err
	})
	if err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	began := time.Now()
	return tx, func() {
		_ = conn.Close()
		late(b.Name(), b.opts.Logger).Check(began)
	}, nil
}

// Commit implements engine.Backend.
func (b *attached) Commit(tx *sql.Tx) error {
	if b.settings.WAL {
		return tx.Commit() // readers do not block a commit
	}
	return sqlite.CommitAttached(tx, b.opts.BusyTimeout)
}

// Read implements engine.Backend.
func (b *attached) Read(ctx context.Context, f func(context.Context, engine.Querier) error) error {
	return b.lend(ctx, func(conn *sql.Conn) error {
		return sqlite.Retry(ctx, b.opts.BusyTimeout, func() error { return f(context.WithoutCancel(ctx), conn) })
	})
}

// lend runs f on a connection of the pool. The wait for a connection is bounded: the caller's own transaction, which
// honker cannot see, may hold the only one.
func (b *attached) lend(ctx context.Context, f func(conn *sql.Conn) error) error {
	conn, err := sqlite.Borrow(ctx, b.pool, b.opts.BusyTimeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	return f(conn)
}

// Looks implements engine.Backend.
func (b *attached) Looks() *sql.DB { return b.pool }

// SQL implements engine.Backend.
func (b *attached) SQL() *sql.DB { return b.pool }

// CheckIdentity implements engine.Backend.
func (b *attached) CheckIdentity() error { return b.identity.CheckNow() }

// CheckTx implements engine.Backend.
func (b *attached) CheckTx(ctx context.Context, tx engine.Querier, _ map[any]func()) (seen bool, err error) {
	if err := b.identity.Check(); err != nil {
		return false, err
	}
	_, err = sqlite.CheckOwner(ctx, tx, b.identity.Info(), nil)
	return false, err
}

// Check implements engine.Backend.
func (b *attached) Check(ctx context.Context) (broken []string, err error) {
	err = b.lend(ctx, func(conn *sql.Conn) (err error) {
		broken, err = store.Check(ctx, conn)
		return err
	})
	return broken, err
}

// Shrink implements engine.Backend.
func (b *attached) Shrink(ctx context.Context, limit int64) error {
	if !walExceeds(b.Name(), limit) {
		return nil
	}
	return b.lend(ctx, func(conn *sql.Conn) error { return sqlite.TruncateWAL(ctx, conn) })
}

// Backup implements engine.Backend.
func (b *attached) Backup(ctx context.Context, path string) error {
	return b.lend(ctx, func(conn *sql.Conn) error { return sqlite.VacuumInto(ctx, conn, path) })
}

// Vacuum implements engine.Backend.
func (b *attached) Vacuum(ctx context.Context) error { return sqlite.Vacuum(ctx, b.pool) }

// Watch implements engine.Backend. Commits of this process are not counted, so each of them is looked up like a commit
// of another process. The identity is checked with CheckNow, which ignores recent checks by a verb: the notice of a
// replaced file may be the last notice there is.
func (b *attached) Watch(events wake.Events) wake.Watcher {
	b.watcher = newWatcher(b.opts, events, watch.Config{
		Path:     b.Name(),
		Version:  sqlite.NewChange(b.pool),
		Identity: b.identity.CheckNow,
		Commits:  func() int64 { return 0 },
	})
	return b.watcher
}

// Close implements engine.Backend. The pool stays open.
func (b *attached) Close() error { return b.writer.Close() }
