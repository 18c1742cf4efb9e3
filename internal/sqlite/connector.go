// Package sqlite connects to a SQLite file, without knowing its contents. It opens connections,
// serializes this process's writers, groups small writes into commits, and interprets SQLite's
// errors. It is the only package that imports the driver.
package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"modernc.org/sqlite"
)

// Config configures the connections to a file.
type Config struct {
	ReadOnly bool // write nothing, and if possible create no files
	// IsWAL reports whether a file is in WAL mode, according to its header. It is used with ReadOnly.
	IsWAL func(ctx context.Context, q row.Querier) (bool, error)

	Full          bool          // synchronous=FULL: commits survive a power failure
	BusyTimeout   time.Duration // maximum wait for the write lock
	PosixLocks    bool          // keep POSIX locks, which are per process
	AnyFilesystem bool          // allow network filesystems
	Functions     *Functions    // SQL functions of the connections; nil for none
	Late          Late          // called for transactions that held the write lock for a long time; may be nil
	Holding       func()        // called while such a transaction is running and others are waiting; may be nil

	// Ended is called for each transaction that held the write lock, after it has left the gate. It
	// may be nil.
	Ended func(wait, ran time.Duration, committed bool)

	// OnConnect is called with the driver's connection for each connection opened by Connect, but not for those
	// opened by Readers. If it returns an error, the connection fails.
	OnConnect func(ctx context.Context, conn driver.Conn) error
}

// Connector opens wrapped connections to a file. They share a write gate and report each commit.
type Connector struct {
	dsn       string
	cfg       Config
	identity  *Identity
	copied    *copied // for a file read as immutable; nil otherwise
	gate      gate
	yield     yield
	asked     time.Time // when the gate's holder started waiting for it; zero if cfg.Ended is nil
	writeback writeback
	pooled    pooled
	commits   atomic.Int64
	uses      atomic.Int64             // see Uses
	after     atomic.Pointer[[]string] // statements of SetUp; nil for none
	onCommit  atomic.Pointer[func()]
	refuse    atomic.Pointer[func() error] // called before each commit; nil to allow all commits
}

// NewConnector checks path and creates the file if needed. It does not open a connection yet.
func NewConnector(path string, cfg Config) (*Connector, error) {
	real, err := resolve(path, cfg)
	if err != nil {
		return nil, err
	}
	identity, err := NewIdentity(real)
	if err != nil {
		return nil, err
	}
	if !cfg.PosixLocks {
		// This fails if it is too late or not supported. In that case POSIX locks work as long as nothing else in
		// this process opens the file; honker itself never does.
		_, _ = sqlite.OFDLocking(true)
	}
	if cfg.Functions == nil {
		cfg.Functions = noFunctions
	}
	c := &Connector{dsn: dsn(real, "rw"), cfg: cfg, identity: identity}
	if cfg.ReadOnly {
		c.readOnly(real)
	}
	c.gate.holding = cfg.Holding
	if !cfg.Full && canStartWriteback {
		// With FULL, each commit waits for the disk anyway.
		c.writeback.log = real + "-wal"
	}
	return c, nil
}

// Path returns the absolute path of the file, with symbolic links resolved.
func (c *Connector) Path() string { return c.identity.Path() }

// Identity returns the identity of the opened file.
func (c *Connector) Identity() *Identity { return c.identity }

// CheckIdentity returns engine.ErrDatabaseReplaced if there is a different file at the path (see [Identity.Check]),
// or if a file read as immutable has changed.
func (c *Connector) CheckIdentity() error {
	if err := c.identity.Check(); err != nil || c.copied == nil {
		return err
	}
	return c.copied.check()
}

// OnCommit sets a function called after each commit on these connections. The function must not
// block.
func (c *Connector) OnCommit(f func()) { c.onCommit.Store(&f) }

// Commits returns the number of commits on these connections.
func (c *Connector) Commits() int64 { return c.commits.Load() }

// Uses returns a number that has grown since the last call if a connection was taken from a pool or a commit was made.
func (c *Connector) Uses() int64 { return c.uses.Load() + c.commits.Load() }

// committed is called by a connection after each commit, once it has left the gate.
func (c *Connector) committed() {
	n := c.commits.Add(1)
	if f := c.onCommit.Load(); f != nil {
		(*f)()
	}
	c.writeback.committed(n)
}

// Driver implements driver.Connector.
func (c *Connector) Driver() driver.Driver { return wrappedDriver{c} }

// SetUp sets the statements that Connect runs on each new connection. They must not write to the
// file. SetUp returns false and does nothing if there are no statements.
func (c *Connector) SetUp(statements ...string) bool {
	if len(statements) == 0 {
		return false
	}
	c.after.Store(&statements)
	return true
}

// Connect implements driver.Connector.
func (c *Connector) Connect(ctx context.Context) (driver.Conn, error) {
	synchronous := "NORMAL"
	if c.cfg.Full {
		synchronous = "FULL"
	}
	statements := []string{"PRAGMA synchronous=" + synchronous, "PRAGMA foreign_keys=ON"}
	if after := c.after.Load(); after != nil {
		statements = append(statements, *after...)
	}
	conn, err := c.connect(ctx, c.cfg.Functions, statements...)
	if err != nil {
		return nil, err
	}
	if err := conn.onConnect(ctx, c.cfg.OnConnect); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("OnConnect: %w", err)
	}
	return conn, nil
}

// Readers returns a connector for read-only connections. They need little memory: they have no SQL
// functions, and load the schema only when they read a table.
func (c *Connector) Readers() driver.Connector { return readers{c} }

type readers struct{ *Connector }

// Connect implements driver.Connector.
func (r readers) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := r.connect(ctx, noFunctions, "PRAGMA query_only=ON")
	if err != nil {
		return nil, err // a nil *conn would become a non-nil driver.Conn
	}
	return conn, nil
}

func (c *Connector) connect(ctx context.Context, functions *Functions, statements ...string) (*conn, error) {
	// Always check here, because a new connection must not reach a different file.
	if err := c.identity.CheckNow(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	conn, err := c.open(functions)
	if err != nil {
		return nil, c.explain(err)
	}
	if err := conn.setUp(ctx, statements); err != nil {
		_ = conn.Close()
		return nil, c.explain(err)
	}
	return conn, nil
}

// opening limits the connections that open at once. Opening one keeps a processor busy, so more than there are processors
// would only be open, and occupy memory, before they are used.
var opening = make(chan struct{}, runtime.NumCPU())

// openRaw opens a connection of the driver, which runs no statement and none of the application's code.
func openRaw(d driver.Driver, dsn string) (driver.Conn, error) {
	select {
	case opening <- struct{}{}:
		defer func() { <-opening }()
	case <-time.After(time.Second): // the filesystem of another file may hang
	}
	return d.Open(dsn)
}

// open opens a connection on its own driver, and wraps it.
func (c *Connector) open(functions *Functions) (*conn, error) {
	d, err := functions.take()
	if err != nil {
		return nil, err
	}
	raw, err := openRaw(d.driver, c.dsn)
	if err != nil {
		d.giveBack()
		return nil, err
	}
	full, ok := raw.(rawConn)
	if !ok {
		_ = raw.Close()
		d.giveBack()
		return nil, fmt.Errorf("%w: the driver's connection lacks a method that honker needs", engine.ErrUnsupported)
	}
	d.conn = &conn{rawConn: full, connector: c, driver: d}
	c.writeback.connected()
	return d.conn, nil
}

// wrappedDriver exists because database/sql asks connectors for their driver. Only Connector.Connect can open
// connections.
type wrappedDriver struct{ connector *Connector }

func (wrappedDriver) Open(string) (driver.Conn, error) {
	return nil, fmt.Errorf("%w: open connections through honker.Open or honker.Connector", engine.ErrUnsupported)
}

// enter waits for the write gate and checks that the file was not replaced. If ctx carries a
// Permit, the gate is already held.
func (c *Connector) enter(ctx context.Context) error {
	if c.cfg.ReadOnly {
		return engine.ErrReadOnly
	}
	if p, ok := ctx.Value(permitKey{}).(*Permit); ok && p.take(c) {
		return nil
	}
	asked := c.now()
	if err := c.gate.enter(ctx, c.cfg.BusyTimeout); err != nil {
		return err
	}
	c.asked = asked
	if err := c.identity.Check(); err != nil {
		c.gate.leave()
		return err
	}
	c.yield.before()
	return nil
}

// now returns the current time, or the zero time if cfg.Ended is nil and the time is not needed.
func (c *Connector) now() (now time.Time) {
	if c.cfg.Ended != nil {
		now = time.Now()
	}
	return now
}

// ended reports a transaction that has left the gate.
func (c *Connector) ended(wait time.Duration, since time.Time, committed bool) {
	if c.cfg.Ended != nil {
		c.cfg.Ended(wait, time.Since(since), committed)
	}
}

// Permit holds the write gate for a caller that has no connection yet, so that waiting writers do not occupy the
// pool's connections. With 32 goroutines writing in DB.Tx, a read takes 32 µs (p99 0.2 ms). Without permits, it waits
// 20 ms (p99 150 ms) for a connection. The permit is passed in the ctx, because database/sql doesn't pass anything
// else through.
type Permit struct {
	connector *Connector
	held      bool
}

type permitKey struct{}

// Reserve enters the gate. The next BEGIN IMMEDIATE with the returned ctx takes over the permit.
// The caller must always call Release, which frees the gate if no transaction has taken over the
// permit.
func (c *Connector) Reserve(ctx context.Context) (context.Context, *Permit, error) {
	if err := c.enter(ctx); err != nil {
		return ctx, nil, err
	}
	p := &Permit{connector: c, held: true}
	return context.WithValue(ctx, permitKey{}, p), p, nil
}

func (p *Permit) take(c *Connector) bool {
	if !p.held || p.connector != c {
		return false
	}
	p.held = false
	return true
}

// Release leaves the gate. It does nothing if a transaction has taken over the permit.
func (p *Permit) Release() {
	if p.held {
		p.held = false
		p.connector.gate.leave()
	}
}
