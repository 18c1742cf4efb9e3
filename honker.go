package honker

import (
	"context"
	"database/sql"
	"database/sql/driver"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/honker-go/honker/internal/sqlfunc"
	"github.com/honker-go/honker/internal/sqlite"
	"github.com/honker-go/honker/internal/store"
)

//go:embed schema.sql
var schema string

// functions are honker's SQL functions, on all connections of the process but attached
// ones and the watcher's.
var functions = sqlite.NewFunctions(sqlfunc.Functions(schema))

// Durability says what survives a power cut.
type Durability int

const (
	// Normal: a commit survives the death of any process. A power cut may take the
	// last commits, never the file's consistency.
	Normal Durability = iota
	// Full: a commit survives a power cut too, on a disk that tells the truth. Each
	// commit waits for the disk; concurrent plain verbs share commits.
	Full
)

// Options of a DB. The zero value of a field means its default.
type Options struct {
	Logger       *slog.Logger  // nil: slog.Default()
	Observer     *Observer     // nil: nobody watches
	Durability   Durability    // Normal (default): synchronous=NORMAL; Full: synchronous=FULL
	BusyTimeout  time.Duration // how long a writer waits for its turn; default 5s
	Readers      int           // read connections; default 8. SQL() may use one more, for a writer
	PollInterval time.Duration // how often to look for commits of other processes where the system gives no notice; default 1ms
	MaxPayload   int           // the largest payload in bytes; default 1 MiB

	NotificationTTL time.Duration // Maintain deletes notifications that are older; 0: none
	WALLimit        int64         // Maintain truncates a write-ahead log of more bytes; default 64 MiB; negative: never

	// OnConnect is called for each new connection of the DB, and of [Connector] and
	// [DB.SQL], after honker has set it up: for a pragma, a temporary table, an attached
	// file, a hook. Its error fails the connect. conn is the driver's own connection, a
	// driver.ExecerContext and driver.QueryerContext, and with modernc.org/sqlite a
	// sqlite.HookRegisterer: statements run on it at once, past the queue of writers and
	// unseen by those that wait for commits. So write nothing to the file there, use no
	// verb of the DB, and leave no transaction open. The connection that watches for
	// commits is left out. [Attach] ignores it: its pool has connections already.
	OnConnect func(ctx context.Context, conn driver.Conn) error

	// NoFileNotices polls instead of being told by the operating system that the file
	// was written. For filesystems without such notices, and for testing/synctest,
	// whose bubbles do not know of them: set a long PollInterval there, and open the DB
	// inside of the bubble.
	NoFileNotices bool
	// PosixLocks leaves the process on POSIX record locks. By default honker switches
	// the driver to Linux OFD locks before the first connection: POSIX locks vanish
	// when anybody in this process opens and closes the database file.
	PosixLocks bool
	// AnyFilesystem does not refuse network filesystems. Their locks and shared
	// memory lose data.
	AnyFilesystem bool
}

// withDefaults is the one place where defaults exist.
func (o *Options) withDefaults() (Options, error) {
	var out Options
	if o != nil {
		out = *o
	}
	if err := out.validate(); err != nil {
		return out, err
	}
	if out.Logger == nil {
		out.Logger = slog.Default()
	}
	if out.BusyTimeout == 0 {
		out.BusyTimeout = 5 * time.Second
	}
	if out.Readers == 0 {
		out.Readers = 8
	}
	if out.PollInterval == 0 {
		out.PollInterval = time.Millisecond
	}
	if out.MaxPayload == 0 {
		out.MaxPayload = 1 << 20
	}
	if out.WALLimit == 0 {
		out.WALLimit = 64 << 20
	}
	return out, nil
}

func (o *Options) validate() error {
	if o.Durability != Normal && o.Durability != Full {
		return fmt.Errorf("%w: Durability %d", ErrInvalid, o.Durability)
	}
	if o.Readers < 0 || o.MaxPayload < 0 {
		return fmt.Errorf("%w: negative Readers or MaxPayload", ErrInvalid)
	}
	return errors.Join(notNegative("BusyTimeout", o.BusyTimeout), notNegative("PollInterval", o.PollInterval),
		notNegative("NotificationTTL", o.NotificationTTL))
}

// DB is one SQLite file with its queues, notifications and results. It is safe for
// concurrent use. Open one per file and process, and Close it at the end.
type DB struct {
	opts     Options
	path     string
	identity *sqlite.Identity
	home     *sqlite.Connector // nil when attached
	pool     func() *sql.DB    // the application's, opened when it is asked for
	own      *sql.DB           // honker's reads and its writers; attached: the pool
	looks    *sql.DB           // the watcher's; attached: the pool
	writer   *sqlite.Committer
	hub      *hub
	takers   takers
	lines    lines
	sighted  sightings

	ctx     context.Context // ends with Close, and all loops with it
	cancel  context.CancelCauseFunc
	loops   sync.WaitGroup // Work and its like
	mu      sync.Mutex     // guards closing, and loops against it, and closed
	closing bool           // no loop begins any more
	closed  bool           // no verb is accepted any more: handlers that finish need theirs
}

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
	home, err := newConnector(path, o)
	if err != nil {
		return nil, err
	}
	db := newDB(o, home.Identity())
	db.home = home
	db.own = newPool(home, o.Readers+2) // and the committer's, and DB.Tx
	if err := bootstrap(ctx, db.own, home.Path(), o.BusyTimeout, sqlite.UseWAL); err != nil {
		_ = db.own.Close()
		return nil, err
	}
	db.looks = sql.OpenDB(home.Readers())
	db.pool = sync.OnceValue(func() *sql.DB { return newPool(home, o.Readers+1) })
	db.start(sqlite.OwnPool(db.own), home.CheckIdentity, home.Commits)
	home.OnCommit(db.hub.nudge)
	return db, nil
}

func newPool(c driver.Connector, conns int) *sql.DB {
	pool := sql.OpenDB(c)
	pool.SetMaxOpenConns(conns)
	pool.SetMaxIdleConns(conns)
	return pool
}

func newConnector(path string, o Options) (*sqlite.Connector, error) {
	return sqlite.NewConnector(path, sqlite.Config{
		Full:          o.Durability == Full,
		BusyTimeout:   o.BusyTimeout,
		PosixLocks:    o.PosixLocks,
		AnyFilesystem: o.AnyFilesystem,
		Functions:     functions,
		OnConnect:     o.OnConnect,
	})
}

// Attach uses an existing pool of any SQLite driver. The caller keeps owning it, and
// keeps its settings: journal mode, synchronous, the size of the pool. Close does not
// close it.
//
// The application's own transactions meet honker's inside SQLite, by the pool's busy
// timeout; commits through the pool are noticed as those of another process are. One
// connection is kept to watch for commits while somebody waits, unless the pool has
// only one. Never attach a pool of another SQLite library to a file that this process
// also has open through [Open]: each would drop the other's locks.
func Attach(ctx context.Context, pool *sql.DB, opts *Options) (*DB, error) {
	db, err := attach(ctx, pool, opts)
	return db, fail("attach", "", err)
}

func attach(ctx context.Context, pool *sql.DB, opts *Options) (*DB, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if pool == nil {
		return nil, fmt.Errorf("%w: nil pool", ErrInvalid)
	}
	path, err := sqlite.MainFile(ctx, pool)
	if err != nil {
		return nil, err
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return nil, err
	}
	identity, err := sqlite.NewIdentity(path)
	if err != nil {
		return nil, err
	}
	asItIs := func(context.Context, sqlite.Querier) error { return nil }
	if err := bootstrap(ctx, pool, path, o.BusyTimeout, asItIs); err != nil {
		return nil, err
	}
	db := newDB(o, identity)
	db.pool, db.own, db.looks = func() *sql.DB { return pool }, pool, pool
	none := func() int64 { return 0 }
	// CheckNow: the notice of a replaced file may be the last one there is, and must not
	// find that a verb has looked a moment ago.
	db.start(sqlite.ForeignPool(pool), identity.CheckNow, none)
	return db, nil
}

func newDB(o Options, identity *sqlite.Identity) *DB {
	path := identity.Path()
	for _, warning := range sqlite.Warnings(path, identity.Info()) {
		o.Logger.Warn("honker: "+warning, "path", path)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	return &DB{opts: o, path: path, identity: identity, ctx: ctx, cancel: cancel}
}

// start wires the rooms.
func (db *DB) start(source sqlite.Source, identity func() error, commits func() int64) {
	db.writer = sqlite.NewCommitter(source, db.opts.BusyTimeout)
	db.hub = newHub(db, identity, commits)
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
	return sqlite.Explain(writer.Do(ctx, write(func(ctx context.Context, q store.Querier, _ time.Time) error {
		return store.Bootstrap(ctx, q, schema)
	})), path)
}

// Connector returns connections to the file at path for a pool of the caller's own,
// say an ORM's: set up, gated and watched like those of [DB.SQL], and with its SQL
// functions. The schema is brought up to date by the first connection. nil opts means defaults.
func Connector(path string, opts *Options) (driver.Connector, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, fail("connector", path, err)
	}
	home, err := newConnector(path, o)
	if err != nil {
		return nil, fail("connector", path, err)
	}
	return &connector{Connector: home, limit: o.BusyTimeout}, nil
}

type connector struct {
	*sqlite.Connector
	limit time.Duration
	mu    sync.Mutex // guards ready
	ready bool
}

// Connect implements driver.Connector.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	if err := c.prepare(ctx); err != nil {
		return nil, fail("connect", c.Path(), err)
	}
	return c.Connector.Connect(ctx)
}

func (c *connector) prepare(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ready {
		return nil
	}
	pool := sql.OpenDB(c.Connector)
	defer pool.Close()
	err := bootstrap(ctx, pool, c.Path(), c.limit, sqlite.UseWAL)
	c.ready = err == nil
	return err
}

// SQL returns the pool for the application's own statements and transactions.
//
// BeginTx takes its turn among this process's writers and begins IMMEDIATE;
// &sql.TxOptions{ReadOnly: true} begins a deferred read snapshot instead, which refuses to
// write. Inside a transaction a statement is not interrupted by its ctx; the end of the ctx
// of BeginTx rolls the transaction back as a whole. Statements stay prepared from one use to the
// next. [DB.Close] closes the pool, unless it was attached.
//
// Its connections have honker's SQL functions, by the names and with the arguments and
// results of other bindings: notify, honker_bootstrap, honker_enqueue, _claim_batch, _ack,
// _ack_batch, _retry, _fail, _heartbeat, _cancel, _get_job, _sweep_expired,
// _queue_next_claim_at, _result_save, _result_get, _result_sweep, _stream_publish,
// _stream_read_since, _stream_save_offset, _stream_get_offset, _lock_acquire, _lock_renew,
// _lock_release, _rate_limit_try, _rate_limit_sweep, _scheduler_register, _unregister,
// _tick, _soonest, _pause, _resume, _list, _update, and honker_cron_next_after. They work
// in triggers too.
// Outside a transaction, a statement that calls one that writes is a transaction of its
// own. Inside one, a call that fails leaves nothing of itself; in the middle of a
// statement that writes, it may leave only a rollback to the transaction. A payload that
// is stored as a BLOB is no job for SQL: a claim moves it to the dead letters. An attached
// pool has the functions of its own driver.
func (db *DB) SQL() *sql.DB { return db.pool() }

// Close ends every wait and every loop, lets Work drain, and returns when every
// goroutine of the library has ended. Later calls do nothing. A handler must not call
// it: it would wait for itself.
func (db *DB) Close() error {
	db.mu.Lock()
	db.closing = true
	db.mu.Unlock()
	db.cancel(ErrClosed)
	db.loops.Wait()
	db.mu.Lock()
	db.closed = true
	db.mu.Unlock()
	errs := []error{db.hub.close(), db.writer.Close()}
	if db.home != nil {
		errs = append(errs, db.pool().Close(), db.looks.Close(), db.own.Close())
	}
	return fail("close", "", errors.Join(errs...))
}

// enter registers a loop that Close waits for. The returned ctx ends with Close too.
func (db *DB) enter(ctx context.Context) (context.Context, func(), error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closing {
		return ctx, nil, ErrClosed
	}
	db.loops.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(db.ctx, func() { cancel(ErrClosed) })
	return ctx, func() { stop(); cancel(nil); db.loops.Done() }, nil
}

// Check verifies the file: SQLite's integrity check, then honker's own invariants,
// such as that a job is either live or dead. It reads everything: for tests and
// operators. nil means sound; the error lists what is broken.
func (db *DB) Check(ctx context.Context) error {
	if db.isClosed() {
		return fail("check", db.path, ErrClosed)
	}
	broken, err := store.Check(ctx, db.own)
	if err == nil && len(broken) > 0 {
		err = fmt.Errorf("%d rules broken: %q", len(broken), broken)
	}
	return fail("check", db.path, err)
}
