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

// Attach uses an existing pool of any SQLite driver. The caller keeps owning it, and
// keeps its settings: journal mode, synchronous, the size of the pool. Close does not
// close it.
//
// The application's own transactions meet honker's inside SQLite, by the pool's busy
// timeout; honker's statements are tried again for BusyTimeout. A pool without a busy timeout
// on a rollback journal, and one with a shared cache, get a warning in the log; a rollback journal alone, and a missing
// busy timeout alone, a line at Info. Commits
// through the pool are noticed as those of another process are. One connection is kept to
// watch for commits while there is a waiter, unless the pool has only one. A verb that finds
// all connections of the pool in use waits for one until ctx ends or BusyTimeout has passed
// ([ErrBusy]).
//
// The driver must have SQLite 3.51.3 or newer, or Attach returns [ErrUnsupported]: older ones can damage a
// write-ahead log that several connections share (https://sqlite.org/wal.html#walresetbug). So must every other
// program on the file, which Attach cannot see; Litestream has it from 0.5.17 on. On Windows, ncruces/go-sqlite3
// must be 0.35.3 or newer: older ones damage WAL files under load. Never attach a pool of another SQLite library to a
// file that this process also has open through [Open]: each would drop the other's locks.
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
	// The opening of a connection, and each read, may meet a lock.
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

// prepare finds out about the pool and its file, and brings the schema up to date.
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

// attached is the backend of a pool that belongs to the application. Its connections have no
// gate: writers meet inside SQLite, and honker's retry.
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

// Write implements engine.Backend. Nothing but this call tells of a commit through the pool.
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

// Begin implements engine.Backend. The pool may begin deferred, so the write lock is taken,
// and waited for, by a statement.
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
		return tx.Commit() // no reader is in its way
	}
	return sqlite.CommitAttached(tx, b.opts.BusyTimeout)
}

// Read implements engine.Backend.
func (b *attached) Read(ctx context.Context, f func(context.Context, engine.Querier) error) error {
	return b.lend(ctx, func(conn *sql.Conn) error {
		return sqlite.Retry(ctx, b.opts.BusyTimeout, func() error { return f(context.WithoutCancel(ctx), conn) })
	})
}

// lend runs f on a connection of the pool. The wait for it has an end: the caller's own
// transaction, of which honker does not know, may have the only one.
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

// Watch implements engine.Backend. Commits of this process are not counted: each is searched
// for as one of another process. CheckNow: the notice of a replaced file may be the last one
// there is, and must not find that a verb has looked a moment ago.
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
