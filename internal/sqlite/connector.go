package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"
)

// Config says how the connections of one file are opened.
type Config struct {
	Full          bool          // synchronous=FULL: a commit survives a power cut
	BusyTimeout   time.Duration // how long a writer waits for its turn
	PosixLocks    bool          // leave the process on POSIX locks
	AnyFilesystem bool          // do not refuse network filesystems
	Functions     *Functions    // SQL functions of the connections; nil: none
}

// Connector opens wrapped connections to one file. They share one write gate and
// report each commit.
type Connector struct {
	path, dsn string
	cfg       Config
	gate      gate
	identity  os.FileInfo
	checked   atomic.Int64 // when the identity was last compared, unix nanoseconds
	replaced  atomic.Bool
	commits   atomic.Int64
	onCommit  atomic.Pointer[func()]
}

// NewConnector checks path, creates the file if need be, and opens nothing yet.
func NewConnector(path string, cfg Config) (*Connector, error) {
	real, err := resolve(path, cfg.AnyFilesystem)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(real)
	if err != nil {
		return nil, err
	}
	if !cfg.PosixLocks {
		// Too late or not available: POSIX locks hold as long as nobody else in
		// this process opens the file, which is what honker itself keeps to.
		_, _ = sqlite.OFDLocking(true)
	}
	if cfg.Functions == nil {
		cfg.Functions = noFunctions
	}
	return &Connector{path: real, dsn: dsn(real), cfg: cfg, identity: info}, nil
}

// Path is the absolute path of the file, links resolved.
func (c *Connector) Path() string { return c.path }

// OnCommit sets what is called after each commit through one of the connections.
// It must not block.
func (c *Connector) OnCommit(f func()) { c.onCommit.Store(&f) }

// Commits counts the commits through these connections.
func (c *Connector) Commits() int64 { return c.commits.Load() }

func (c *Connector) committed() {
	c.commits.Add(1)
	if f := c.onCommit.Load(); f != nil {
		(*f)()
	}
}

// Driver implements driver.Connector.
func (c *Connector) Driver() driver.Driver { return wrappedDriver{} }

// Connect implements driver.Connector.
func (c *Connector) Connect(ctx context.Context) (driver.Conn, error) {
	synchronous := "NORMAL"
	if c.cfg.Full {
		synchronous = "FULL"
	}
	return c.connect(ctx, c.cfg.Functions, "PRAGMA synchronous="+synchronous, "PRAGMA foreign_keys=ON")
}

// Readers returns a connector of connections that cannot write. They are small: without
// SQL functions and, until they read a table, without the schema.
func (c *Connector) Readers() driver.Connector { return readers{c} }

type readers struct{ *Connector }

// Connect implements driver.Connector.
func (r readers) Connect(ctx context.Context) (driver.Conn, error) {
	return r.connect(ctx, noFunctions, "PRAGMA query_only=ON")
}

func (c *Connector) connect(ctx context.Context, functions *Functions, pragmas ...string) (driver.Conn, error) {
	c.checked.Store(0) // look now: a connection must not reach another file
	if err := c.CheckIdentity(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	conn, err := c.open(functions)
	if err != nil {
		return nil, c.explain(err)
	}
	if err := conn.setUp(ctx, pragmas); err != nil {
		_ = conn.Close()
		return nil, c.explain(err)
	}
	return conn, nil
}

func (c *Connector) open(functions *Functions) (*conn, error) {
	s, err := functions.take()
	if err != nil {
		return nil, err
	}
	raw, err := s.open(c.dsn)
	if err != nil {
		s.giveBack()
		return nil, err
	}
	full, ok := raw.(rawConn)
	if !ok {
		_ = raw.Close()
		s.giveBack()
		return nil, fmt.Errorf("%w: the driver's connection lacks a method that honker needs", ErrUnsupported)
	}
	s.conn = &conn{rawConn: full, home: c, socket: s}
	if !c.cfg.Full {
		s.conn.back.log = c.path + "-wal"
	}
	return s.conn, nil
}

// explain adds to an engine's error on opening what the reader has to know.
func (c *Connector) explain(err error) error {
	switch {
	case IsReadOnly(err):
		return fmt.Errorf("%w: %s is read-only: %w", ErrUnsupported, c.path, err)
	case IsNotADB(err):
		return fmt.Errorf("%w: %s is not a SQLite database: %w", ErrUnsupported, c.path, err)
	}
	return err
}

const identityEvery = 100 * time.Millisecond

// CheckIdentity compares the file at the path with the one that was opened, at
// most every 100 ms. A connection goes on writing to the old file without an
// error when somebody has renamed another one over it.
func (c *Connector) CheckIdentity() error {
	now := time.Now().UnixNano()
	last := c.checked.Load()
	if now-last >= int64(identityEvery) && c.checked.CompareAndSwap(last, now) {
		info, err := os.Stat(c.path)
		if err != nil || !os.SameFile(info, c.identity) {
			c.replaced.Store(true)
		}
	}
	if c.replaced.Load() {
		return fmt.Errorf("%w: %s", ErrReplaced, c.path)
	}
	return nil
}

// wrappedDriver exists because database/sql asks a connector for its driver;
// connections come from Connector.Connect alone.
type wrappedDriver struct{}

func (wrappedDriver) Open(string) (driver.Conn, error) {
	return nil, fmt.Errorf("%w: open connections through honker.Open or honker.Connector", ErrUnsupported)
}

// Identity is the file that was opened, for os.SameFile.
func (c *Connector) Identity() os.FileInfo { return c.identity }

// enter waits for the write gate and looks whether the file is still the one that
// was opened. A permit in ctx has been waited for already.
func (c *Connector) enter(ctx context.Context) error {
	if p, ok := ctx.Value(permitKey{}).(*Permit); ok && p.take(c) {
		return nil
	}
	if err := c.gate.enter(ctx, c.cfg.BusyTimeout); err != nil {
		return err
	}
	if err := c.CheckIdentity(); err != nil {
		c.gate.leave()
		return err
	}
	return nil
}

// Permit is the write gate, entered before there is a connection to write on: so
// that writers who wait do not sit on the pool's connections.
type Permit struct {
	home *Connector
	held bool
}

type permitKey struct{}

// Reserve enters the gate. The next BEGIN IMMEDIATE under the returned ctx takes it
// over; Release gives it back if none did.
func (c *Connector) Reserve(ctx context.Context) (context.Context, *Permit, error) {
	if err := c.enter(ctx); err != nil {
		return ctx, nil, err
	}
	p := &Permit{home: c, held: true}
	return context.WithValue(ctx, permitKey{}, p), p, nil
}

func (p *Permit) take(c *Connector) bool {
	taken := p.held && p.home == c
	if taken {
		p.held = false
	}
	return taken
}

// Release is a no-op once a transaction has taken the permit over.
func (p *Permit) Release() {
	if p.held {
		p.held = false
		p.home.gate.leave()
	}
}
