package backend

import (
	"context"
	"database/sql"
	"path/filepath"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
	"github.com/honker-go/honker/internal/sqlite/watch"
	"github.com/honker-go/honker/internal/wake"
)

// Pool is the backend for a pool that belongs to the application. It has no write gate: writers wait inside SQLite,
// and honker's statements are retried.
type Pool struct {
	onDisk
	opts     Options
	pool     *sql.DB
	settings sqlite.PoolSettings
	writer   *sqlite.Committer
	watcher  wake.Watcher
}

var (
	_ engine.Backend = (*Pool)(nil)
	_ engine.File    = (*Pool)(nil)
)

// Attach returns a backend that uses pool, and brings the schema of pool's file up to date. The caller still owns the
// pool. ctx applies only to the call to Attach.
func Attach(ctx context.Context, pool *sql.DB, o Options) (*Pool, error) {
	b := &Pool{opts: o, pool: pool}
	b.lend = b.lendConn
	// Opening a connection may run into a lock, as may each read.
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
	return b, nil
}

// prepare reads the file's identity and the pool's settings, and brings the file's schema up to
// date.
func (b *Pool) prepare(ctx context.Context) error {
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
	keepJournal := func(context.Context, row.Querier) error { return nil }
	if err := prepare(ctx, b.pool, path, b.opts, keepJournal); err != nil {
		return err
	}
	b.settings, err = sqlite.SettingsOf(ctx, b.pool)
	return err
}

// SQL returns the application's pool.
func (b *Pool) SQL() *sql.DB { return b.pool }

// Looks returns the pool that the notifier uses for its queries.
func (b *Pool) Looks() *sql.DB { return b.pool }

// Write implements engine.Backend. It reports its own commit to the watcher, because nothing else will.
func (b *Pool) Write(ctx context.Context, op engine.Op) error {
	if err := b.identity.Check(); err != nil {
		return err
	}
	if err := b.writer.Do(ctx, op); err != nil {
		return err
	}
	b.watcher.Committed()
	return nil
}

// Begin implements engine.Backend. The pool's transactions may be deferred, so Begin runs a statement that takes the
// write lock, and retries it until the lock is free.
func (b *Pool) Begin(ctx context.Context) (engine.Tx, error) {
	if err := b.identity.Check(); err != nil {
		return nil, err
	}
	conn, err := sqlite.Borrow(ctx, b.pool, b.opts.BusyTimeout)
	if err != nil {
		return nil, err
	}
	var tx *sql.Tx
	err = sqlite.Retry(ctx, b.opts.BusyTimeout, func() error {
		if tx, err = conn.BeginTx(ctx, nil); err != nil {
			return err
		}
		if err = rows.TakeWriteLock(ctx, tx); err != nil {
			_ = tx.Rollback()
		}
		return err
	})
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return &poolTx{Tx: tx, backend: b, conn: conn, began: time.Now()}, nil
}

// poolTx is a transaction started by Pool.Begin.
type poolTx struct {
	*sql.Tx
	backend *Pool
	conn    *sql.Conn
	began   time.Time
}

// SQL implements engine.Tx.
func (t *poolTx) SQL() *sql.Tx { return t.Tx }

// Alive implements engine.Tx.
func (t *poolTx) Alive() error { return nil }

// Commit implements engine.Tx.
func (t *poolTx) Commit() error {
	if t.backend.settings.WAL {
		return t.Tx.Commit() // readers don't block a commit
	}
	return sqlite.CommitAttached(t.Tx, t.backend.opts.BusyTimeout)
}

// Close implements engine.Tx.
func (t *poolTx) Close() {
	_ = t.Rollback() // does nothing after Commit
	_ = t.conn.Close()
	late(t.backend.Name(), t.backend.opts.Logger).Check(t.began)
}

// Read implements engine.Backend.
func (b *Pool) Read(ctx context.Context, oneMoment bool, f func(context.Context, row.Querier) error) error {
	return b.lend(ctx, func(conn *sql.Conn) error {
		return sqlite.Retry(ctx, b.opts.BusyTimeout, func() error { return read(context.WithoutCancel(ctx), conn, oneMoment, f) })
	})
}

// lendConn runs f on one of the pool's connections. The wait for a connection has a time limit: the caller's own
// transaction, which honker can't see, may hold the only connection.
func (b *Pool) lendConn(ctx context.Context, f func(conn *sql.Conn) error) error {
	conn, err := sqlite.Borrow(ctx, b.pool, b.opts.BusyTimeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	return f(conn)
}

// CheckIdentity implements engine.File.
func (b *Pool) CheckIdentity() error { return b.identity.CheckNow() }

// CheckTx implements engine.Backend.
func (b *Pool) CheckTx(ctx context.Context, tx row.Querier, _ map[any]func()) (seen bool, err error) {
	if err := b.identity.Check(); err != nil {
		return false, err
	}
	_, err = sqlite.CheckOwner(ctx, tx, b.identity.Info(), nil)
	return false, err
}

// Backup implements engine.File.
func (b *Pool) Backup(ctx context.Context, path string) error {
	return b.lend(ctx, func(conn *sql.Conn) error { return sqlite.VacuumInto(ctx, conn, path) })
}

// Vacuum implements engine.File.
func (b *Pool) Vacuum(ctx context.Context) error { return sqlite.Vacuum(ctx, b.pool) }

// Watch implements engine.Backend. It doesn't count this process's commits, so the watcher treats them like commits by
// other processes. It checks the identity with CheckNow, which always looks at the file, even if a verb has just
// checked: the event for a replaced file may be the last event there is.
func (b *Pool) Watch(events wake.Events) wake.Watcher {
	b.watcher = newWatcher(b.opts, events, watch.Config{
		Path:     b.Name(),
		Version:  sqlite.NewChange(b.pool),
		Identity: b.identity.CheckNow,
		Commits:  func() int64 { return 0 },
	})
	return b.watcher
}

// Close implements engine.Backend. The pool stays open.
func (b *Pool) Close() error { return b.writer.Close() }
