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

// functions are honker's SQL functions, on all connections of the process but attached
// ones and the watcher's. One table serves all files, since the driver keeps for ever what
// was registered with it.
var functions = sqlite.NewFunctions(sqlfunc.Functions(schema))

// Open opens the file at path, creates it readable by its owner if there is none,
// and brings it to this version's schema. An existing application database keeps
// all that is in it; its journal mode becomes WAL.
//
// path is a plain path: ?, # and % are part of the name. ctx bounds the opening
// only. nil opts means defaults. Open refuses with [ErrUnsupported] what cannot be
// safe, and with [ErrSchemaTooNew] what a newer version wrote.
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
	b.own = newPool(connector, o.Readers+3) // and the committer's, DB.Tx's and the notifier's
	if err := prepare(ctx, b.own, connector.Path(), o, sqlite.UseWAL); err != nil {
		_ = b.own.Close()
		return nil, err
	}
	if connector.SetUp(afterwards(o)...) {
		b.own.SetMaxIdleConns(-1) // closes those that were opened before
		b.own.SetMaxIdleConns(o.Readers + 3)
	}
	b.userPool = sync.OnceValue(func() *sql.DB {
		pool := newPool(connector, o.Readers+1)
		pool.SetMaxOpenConns(0) // goroutines that ask for a second one would wait for each other
		return pool
	})
	b.writer = sqlite.NewCommitter(sqlite.OwnPool(b.own), o.BusyTimeout)
	return newDB(o, b, sqliteStores), nil
}

// afterwards are the statements of each connection that need the schema.
func afterwards(o Options) []string {
	if !o.LegacyMessages || o.ReadOnly {
		return nil
	}
	return store.LegacyMessages
}

// warn logs what may go wrong with a file that is used all the same.
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

// late logs a transaction that has held up all other writers: each of those that gave up has
// logged, or returned, that it was busy, and does not know why.
func late(path string, log *slog.Logger) sqlite.Late {
	return func(held time.Duration, where string) {
		log.Warn("honker: a transaction has held the writer for long, and others waited", "path", path, "held", held, "where", where)
	}
}

// prepare brings the file to this version's schema, or finds out that it has it, where nothing is to be
// written.
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

// bootstrap brings the file to this version's schema, without a write when it is
// there. What may not be opened is refused before anything is changed, its journal
// mode included.
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

// opened is the backend of a file that honker has opened: all its connections are
// honker's, so they share one gate, and each commit is reported.
type opened struct {
	opts      Options
	connector *sqlite.Connector
	own       *sql.DB        // honker's reads, its committer, DB.Tx, and the notifier's looks
	reads     chan struct{}  // one value for each read: never more than Readers, so the others find a connection
	userPool  func() *sql.DB // the application's, opened when it is asked for
	writer    *sqlite.Committer
}

var _ engine.Backend = (*opened)(nil)

// Name implements engine.Backend.
func (b *opened) Name() string { return b.connector.Path() }

// Write implements engine.Backend.
func (b *opened) Write(ctx context.Context, op engine.Op) error { return b.writer.Do(ctx, op) }

// Begin implements engine.Backend. It uses honker's pool and not the application's: readers
// there must not hold up a writer that holds up all others. The gate is entered before
// there is a connection, so that writers that wait occupy none.
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

// lend runs f on a connection, waiting until fewer than Readers are lent. So slow reads leave
// one to DB.Tx, which holds up all other writers while it waits for it.
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

// walExceeds reports that the log of the file at path has grown beyond limit bytes, by a burst
// of writes or a reader that stayed for long. A negative limit is none.
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

// newWatcher adds to c what both backends have in common.
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
		return nil // the next look may find it out
	}
	return watch.New(c)
}

// Close implements engine.Backend. The last connection to close is a writer's: it copies the
// log into the file.
func (b *opened) Close() error {
	return errors.Join(b.writer.Close(), b.userPool().Close(), b.own.Close())
}

// Connector returns connections to the file at path for a pool of the caller's own,
// say an ORM's: set up, gated and watched like those of [DB.SQL], and with its SQL
// functions. The schema is brought up to date by the first connection. nil opts means defaults.
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
