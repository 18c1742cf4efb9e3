package honker

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/sqlfunc"
	"github.com/honker-go/honker/internal/sqlite"
	"github.com/honker-go/honker/internal/store"
	"github.com/honker-go/honker/internal/wake"
	"github.com/honker-go/honker/internal/watch"
)

// functions contains honker's SQL functions. They are registered on all connections of the process except
// attached connections and that of the watcher. All files share a single table, because the driver never
// releases a registered function.
var functions = sqlite.NewFunctions(sqlfunc.Functions(schema))

// Open opens the file at path and brings its schema up to date. If the file does not exist, Open creates
// it, readable by its owner only. An existing application database keeps its contents, but its journal
// mode becomes WAL.
//
// path is a plain file name in which ?, # and % have no special meaning. ctx bounds only the call of Open. nil opts
// means defaults. Open returns [ErrUnsupported] for a file that cannot be used safely, and [ErrSchemaTooNew] for a
// file with the schema of a newer version.
func Open(ctx context.Context, path string, opts *Options) (*DB, error) {
	db, err := open(ctx, path, opts)
	return db, fail("open", path, err)
}

func open(ctx context.Context, path string, opts *Options) (*DB, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := o.refuseBubble(); err != nil {
		return nil, err
	}
	connector, err := newConnector(path, o)
	if err != nil {
		return nil, err
	}
	warn(o, connector.Identity())
	b := &opened{opts: o, connector: connector, reads: make(chan struct{}, o.Readers)}
	b.own = newPool(connector, o.Readers+3) // plus the connections of the committer, DB.Tx and the notifier
	if err := prepare(ctx, b.own, connector.Path(), o, sqlite.UseWAL); err != nil {
		_ = b.own.Close()
		return nil, err
	}
	if connector.SetUp(afterwards(o)...) {
		b.own.SetMaxIdleConns(-1) // close the connections opened before the setup
		b.own.SetMaxIdleConns(o.Readers + 3)
	}
	b.userPool = sync.OnceValue(func() *sql.DB {
		pool := newPool(connector, o.Readers+1)
		pool.SetMaxOpenConns(0) // unlimited, since goroutines that need a second connection would wait for each other
		return pool
	})
	b.writer = sqlite.NewCommitter(sqlite.OwnPool(b.own), o.BusyTimeout)
	return newDB(o, b, sqliteStores), nil
}

// afterwards returns the setup statements of connections that need the schema.
func afterwards(o Options) []string {
	if !o.LegacyMessages || o.ReadOnly {
		return nil
	}
	return store.LegacyMessages
}

// warn logs possible problems of a file that is opened nevertheless.
func warn(o Options, identity *sqlite.Identity) {
	for _, warning := range sqlite.Warnings(identity.Path(), identity.Info()) {
		o.Logger.Warn("honker: "+warning, "path", identity.Path())
	}
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
		IsWAL:         store.IsWAL,
		Full:          o.Durability == Full,
		BusyTimeout:   o.BusyTimeout,
		PosixLocks:    o.PosixLocks,
		AnyFilesystem: o.AnyFilesystem,
		Functions:     functions,
		Late:          late(path, o.Logger),
		Holding: func() {
			o.Logger.Warn("honker: others wait for a transaction that has run, or waited for another process, for a second", "path", path)
		},
		Ended:     o.Observer.ended(),
		OnConnect: o.OnConnect,
	})
}

// late returns a function that logs a transaction that has held up all other writers. Writers that gave up report
// that the file was busy, but cannot tell why.
func late(path string, log *slog.Logger) sqlite.Late {
	return func(held time.Duration, where string) {
		log.Warn("honker: a transaction has held the writer for long, and others waited", "path", path, "held", held, "where", where)
	}
}

// prepare brings the schema of the file up to date. If the file is opened read-only, it only checks the schema.
func prepare(ctx context.Context, pool *sql.DB, path string, o Options, journal func(context.Context, sqlite.Querier) error) error {
	if !o.ReadOnly {
		return bootstrap(ctx, pool, path, o.BusyTimeout, journal)
	}
	if err := sqlite.CheckVersion(ctx, pool); err != nil {
		return err
	}
	version, ours, err := store.Made(ctx, pool)
	var lacks error
	switch {
	case err != nil:
		return sqlite.Explain(err, path)
	case !ours:
		lacks = errors.New("it has no tables of honker")
	case version < store.Version:
		lacks = &OldSchemaError{Version: version, Current: store.Version}
	default:
		return nil
	}
	return fmt.Errorf("%w: %s cannot be opened to be read only: %w", ErrUnsupported, path, lacks)
}

// bootstrap brings the schema of the file up to date. It writes nothing if the schema is current. A file
// that must not be opened is rejected before anything is changed, including its journal mode.
func bootstrap(ctx context.Context, pool *sql.DB, path string, limit time.Duration, journal func(context.Context, sqlite.Querier) error) error {
	if err := sqlite.CheckVersion(ctx, pool); err != nil {
		return err
	}
	current, err := store.Current(ctx, pool)
	if err != nil {
		return sqlite.Explain(err, path)
	}
	if err := journal(ctx, pool); err != nil || current {
		return sqlite.Explain(err, path)
	}
	writer := sqlite.NewCommitter(sqlite.ForeignPool(pool), limit)
	defer writer.Close()
	return sqlite.Explain(writer.Do(ctx, engine.OpFunc(func(ctx context.Context, q store.Querier, _ time.Time) error {
		return store.Bootstrap(ctx, q, schema)
	})), path)
}

// opened is the backend of a file opened by honker. All connections belong to honker, so they share a
// single gate and every commit is reported.
type opened struct {
	opts      Options
	connector *sqlite.Connector
	own       *sql.DB        // for reads, the committer, DB.Tx and the notifier
	reads     chan struct{}  // semaphore of Readers reads, which leaves connections for the others
	userPool  func() *sql.DB // pool of the application, opened on first use
	writer    *sqlite.Committer
}

var _ engine.Backend = (*opened)(nil)

// Name implements engine.Backend.
func (b *opened) Name() string { return b.connector.Path() }

// Write implements engine.Backend.
func (b *opened) Write(ctx context.Context, op engine.Op) error { return b.writer.Do(ctx, op) }

// Begin implements engine.Backend. It uses honker's own pool, since readers in the application's pool must
// not delay a writer that holds up all others. It enters the gate before it takes a connection, so that
// waiting writers occupy no connections.
func (b *opened) Begin(ctx context.Context) (*sql.Tx, func(), error) {
	reserved, permit, err := b.connector.Reserve(ctx)
	if err != nil {
		return nil, nil, err
	}
	tx, err := b.own.BeginTx(reserved, nil)
	if err != nil {
		permit.Release()
		return nil, nil, err
	}
	return tx, permit.Release, nil
}

// Commit implements engine.Backend.
func (b *opened) Commit(tx *sql.Tx) error { return tx.Commit() }

// Read implements engine.Backend.
func (b *opened) Read(ctx context.Context, f func(context.Context, engine.Querier) error) error {
	return b.lend(ctx, func(conn *sql.Conn) error {
		return b.connector.Reading(func() error { return f(context.WithoutCancel(ctx), conn) })
	})
}

// lend runs f on a connection. It blocks while Readers connections are lent. Slow reads thus leave a connection for
// DB.Tx, which would otherwise hold up all other writers while it waits for a connection.
func (b *opened) lend(ctx context.Context, f func(conn *sql.Conn) error) error {
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

// Looks implements engine.Backend.
func (b *opened) Looks() *sql.DB { return b.own }

// SQL implements engine.Backend.
func (b *opened) SQL() *sql.DB { return b.userPool() }

// CheckIdentity implements engine.Backend.
func (b *opened) CheckIdentity() error { return b.connector.CheckIdentity() }

// CheckTx implements engine.Backend.
func (b *opened) CheckTx(ctx context.Context, tx engine.Querier, committed map[any]func()) (seen bool, err error) {
	return sqlite.CheckOwner(ctx, tx, b.connector.Identity().Info(), committed)
}

// Check implements engine.Backend.
func (b *opened) Check(ctx context.Context) (broken []string, err error) {
	err = b.lend(ctx, func(conn *sql.Conn) (err error) {
		broken, err = store.Check(ctx, conn)
		return err
	})
	return broken, err
}

// Shrink implements engine.Backend.
func (b *opened) Shrink(ctx context.Context, limit int64) error {
	if !walExceeds(b.Name(), limit) {
		return nil
	}
	return b.lend(ctx, func(conn *sql.Conn) error { return sqlite.TruncateWAL(ctx, conn) })
}

// Backup implements engine.Backend.
func (b *opened) Backup(ctx context.Context, path string) error {
	return b.lend(ctx, func(conn *sql.Conn) error { return sqlite.Backup(ctx, conn, path) })
}

// Vacuum implements engine.Backend.
func (b *opened) Vacuum(ctx context.Context) error { return sqlite.Vacuum(ctx, b.userPool()) }

// walExceeds reports whether the write-ahead log of the file at path is larger than limit bytes, after a
// burst of writes or because of a long read. A negative limit means no limit.
func walExceeds(path string, limit int64) bool {
	info, err := os.Stat(path + "-wal")
	return limit >= 0 && err == nil && info.Size() > limit
}

// Watch implements engine.Backend.
func (b *opened) Watch(events wake.Events) wake.Watcher {
	w := newWatcher(b.opts, events, watch.Config{
		Path:     b.Name(),
		Version:  sqlite.NewOwnChange(b.connector.Readers()),
		Identity: b.connector.CheckIdentity,
		Commits:  b.connector.Commits,
	})
	b.connector.OnCommit(w.Committed)
	return w
}

// newWatcher completes c with the settings that both backends share.
func newWatcher(o Options, events wake.Events, c watch.Config) *watch.Watcher {
	c.Poll, c.Notices, c.Logger = o.PollInterval, !o.NoFileNotices, o.Logger
	c.NoSignals = o.ReadOnly
	c.Untrusted = o.AnyFilesystem || sqlite.MayBeRemote(c.Path)
	c.Changed, c.Lost = events.Changed, events.Lost
	check := c.Identity
	c.Identity = func() error {
		if err := check(); engine.Final(err) {
			return err
		}
		return nil // a later check may find the replacement
	}
	return watch.New(c)
}

// Close implements engine.Backend. It closes a writing connection last, because the last connection copies
// the log into the file.
func (b *opened) Close() error {
	return errors.Join(b.writer.Close(), b.userPool().Close(), b.own.Close())
}

// Connector returns connections to the file at path for a pool of the caller, such as the pool of an ORM.
// The connections are set up, gated and watched like those of [DB.SQL] and have honker's SQL functions.
// The first connection brings the schema up to date. nil opts means defaults.
func Connector(path string, opts *Options) (driver.Connector, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, fail("connector", path, err)
	}
	c, err := newConnector(path, o)
	if err != nil {
		return nil, fail("connector", path, err)
	}
	return &bootstrapping{Connector: c, opts: o}, nil
}

// bootstrapping is a connector that brings the schema up to date on its first connection.
type bootstrapping struct {
	*sqlite.Connector
	opts  Options
	mu    sync.Mutex // guards ready
	ready bool
}

// Connect implements driver.Connector.
func (c *bootstrapping) Connect(ctx context.Context) (driver.Conn, error) {
	if err := c.prepare(ctx); err != nil {
		return nil, fail("connect", c.Path(), err)
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
