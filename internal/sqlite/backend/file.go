package backend

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite"
	"github.com/honker-go/honker/internal/sqlite/store/schema"
	"github.com/honker-go/honker/internal/sqlite/watch"
	"github.com/honker-go/honker/internal/wake"
)

// File is the backend for a file opened by honker. All connections belong to honker, so they share a single write
// gate and every commit is reported.
type File struct {
	onDisk
	opts      Options
	connector *sqlite.Connector
	own       *sql.DB        // for reads, the committer, DB.Tx and the notifier
	reads     chan struct{}  // semaphore that allows Readers concurrent reads, leaving connections for the other uses
	userPool  func() *sql.DB // the application's pool, opened on first use
	writer    *sqlite.Committer
	version   *sqlite.OwnChange // the watcher's connection

	resting sync.Mutex // held while connections are closed; see rest
	closed  bool       // guarded by resting
}

var (
	_ engine.Backend = (*File)(nil)
	_ engine.File    = (*File)(nil)
)

// Open opens the file at path and brings its schema up to date. It creates the file if it does not exist. ctx applies
// only to the call to Open.
func Open(ctx context.Context, path string, o Options) (*File, error) {
	connector, err := newConnector(path, o)
	if err != nil {
		return nil, err
	}
	warn(o, connector.Identity())
	b := &File{
		onDisk: onDisk{identity: connector.Identity()}, opts: o, connector: connector, reads: make(chan struct{}, o.Readers),
	}
	b.lend = b.lendConn
	pooled := connector.Pooled(resters.opening)
	b.own = newPool(pooled, o.Readers+3) // plus connections for the committer, DB.Tx and the notifier
	if err := prepare(ctx, b.own, connector.Path(), o, sqlite.UseWAL); err != nil {
		_ = b.own.Close()
		return nil, err
	}
	if connector.SetUp(afterwards(o)...) {
		b.own.SetMaxIdleConns(-1) // close the connections opened before the setup
		b.own.SetMaxIdleConns(o.Readers + 3)
	}
	b.userPool = sync.OnceValue(func() *sql.DB {
		pool := newPool(pooled, o.Readers+1)
		pool.SetMaxOpenConns(0) // unlimited, since goroutines that need a second connection would wait for each other
		return pool
	})
	b.writer = sqlite.NewCommitter(sqlite.OwnPool(b.own), o.BusyTimeout)
	b.version = sqlite.NewOwnChange(connector.Readers())
	resters.add(b)
	return b, nil
}

func newPool(c driver.Connector, conns int) *sql.DB {
	pool := sql.OpenDB(c)
	pool.SetMaxOpenConns(conns)
	pool.SetMaxIdleConns(conns)
	return pool
}

func newConnector(path string, o Options) (*sqlite.Connector, error) {
	return sqlite.NewConnector(path, sqlite.Config{
		ReadOnly:      o.ReadOnly,
		IsWAL:         schema.IsWAL,
		Full:          o.Full,
		BusyTimeout:   o.BusyTimeout,
		PosixLocks:    o.PosixLocks,
		AnyFilesystem: o.AnyFilesystem,
		Functions:     functions,
		Late:          late(path, o.Logger),
		Holding: func() {
			o.Logger.Warn("honker: a transaction has run, or waited for another process, for over a second; other writers are waiting", "path", path)
		},
		Ended:     o.Ended,
		OnConnect: o.OnConnect,
	})
}

// SQL returns the application's pool.
func (b *File) SQL() *sql.DB { return b.userPool() }

// Looks returns the pool that the notifier uses for its queries.
func (b *File) Looks() *sql.DB { return b.own }

// Write implements engine.Backend.
func (b *File) Write(ctx context.Context, op engine.Op) error { return b.writer.Do(ctx, op) }

// Begin implements engine.Backend. It uses honker's own pool, because readers in the application's pool must not
// delay a writer that all others wait for. It enters the gate before it takes a connection, so that waiting writers
// occupy no connections.
func (b *File) Begin(ctx context.Context) (engine.Tx, error) {
	reserved, permit, err := b.connector.Reserve(ctx)
	if err != nil {
		return nil, err
	}
	tx, err := b.own.BeginTx(reserved, nil)
	if err != nil {
		permit.Release()
		return nil, err
	}
	return &fileTx{tx, permit.Release}, nil
}

// fileTx is a transaction started by File.Begin.
type fileTx struct {
	*sql.Tx
	release func()
}

// SQL implements engine.Tx.
func (t *fileTx) SQL() *sql.Tx { return t.Tx }

// Alive implements engine.Tx.
func (t *fileTx) Alive() error { return nil }

// Close implements engine.Tx.
func (t *fileTx) Close() {
	_ = t.Rollback() // does nothing after Commit
	t.release()
}

// Read implements engine.Backend.
func (b *File) Read(ctx context.Context, oneMoment bool, f func(context.Context, row.Querier) error) error {
	return b.lend(ctx, func(conn *sql.Conn) error {
		return b.connector.Reading(func() error { return read(context.WithoutCancel(ctx), conn, oneMoment, f) })
	})
}

// read runs f on conn, in a read transaction if f must see a single state of the database.
func read(ctx context.Context, conn *sql.Conn, oneMoment bool, f func(context.Context, row.Querier) error) error {
	if !oneMoment {
		return f(ctx, conn)
	}
	return sqlite.Snapshot(ctx, conn, func(ctx context.Context) error { return f(ctx, conn) })
}

// lendConn runs f on a connection. It blocks while Readers connections are in use. This keeps slow reads from using
// up all connections. DB.Tx would otherwise hold up all other writers while it waits for a connection.
func (b *File) lendConn(ctx context.Context, f func(conn *sql.Conn) error) error {
	select {
	case b.reads <- struct{}{}:
		defer func() { <-b.reads }()
	case <-ctx.Done():
		return ctx.Err()
	}
	conn, err := b.own.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return f(conn)
}

// CheckIdentity implements engine.File.
func (b *File) CheckIdentity() error { return b.connector.CheckIdentity() }

// CheckTx implements engine.Backend.
func (b *File) CheckTx(ctx context.Context, tx row.Querier, committed map[any]func()) (seen bool, err error) {
	return sqlite.CheckOwner(ctx, tx, b.identity.Info(), committed)
}

// Backup implements engine.File.
func (b *File) Backup(ctx context.Context, path string) error {
	return b.lend(ctx, func(conn *sql.Conn) error { return sqlite.Backup(ctx, conn, path) })
}

// Vacuum implements engine.File.
func (b *File) Vacuum(ctx context.Context) error { return sqlite.Vacuum(ctx, b.userPool()) }

// Watch implements engine.Backend.
func (b *File) Watch(events wake.Events) wake.Watcher {
	w := newWatcher(b.opts, events, watch.Config{
		Path:     b.Name(),
		Version:  b.version,
		Identity: b.connector.CheckIdentity,
		Commits:  b.connector.Commits,
	})
	b.connector.OnCommit(w.Committed)
	return w
}

// Close implements engine.Backend. The last connection that it closes is able to write, because the last connection
// copies the log into the file.
func (b *File) Close() error {
	resters.remove(b)
	b.resting.Lock()
	b.closed = true
	b.resting.Unlock()
	return errors.Join(b.writer.Close(), b.version.Close(), b.userPool().Close(), b.own.Close())
}

// Connector returns a connector for a pool that the caller creates. The first connection brings the schema up to
// date. wrap adds the operation and the path to connection errors.
func Connector(path string, o Options, wrap func(error) error) (driver.Connector, error) {
	c, err := newConnector(path, o)
	if err != nil {
		return nil, err
	}
	return &bootstrapping{Connector: c, opts: o, wrap: wrap}, nil
}

// bootstrapping is a connector that brings the schema up to date on its first connection.
type bootstrapping struct {
	*sqlite.Connector
	opts  Options
	wrap  func(error) error
	mu    sync.Mutex // guards ready
	ready bool
}

// Connect implements driver.Connector.
func (c *bootstrapping) Connect(ctx context.Context) (driver.Conn, error) {
	if err := c.prepare(ctx); err != nil {
		return nil, c.wrap(err)
	}
	return c.Connector.Connect(ctx)
}

func (c *bootstrapping) prepare(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ready {
		return nil
	}
	pool := sql.OpenDB(c.Connector)
	defer pool.Close()
	if err := prepare(ctx, pool, c.Path(), c.opts, sqlite.UseWAL); err != nil {
		return err
	}
	c.SetUp(afterwards(c.opts)...)
	c.ready = true
	return nil
}
