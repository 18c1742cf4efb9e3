package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strings"

	"modernc.org/sqlite"
)

// rawConn is the driver's connection. It is embedded, so that callers of
// sql.Conn.Raw find the driver's own methods: backup, hooks, serialize.
type rawConn interface {
	driver.Conn
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
	sqlite.FileControl
	sqlite.HookRegisterer
	IsReadOnly(schema string) (bool, error)
	Serialize() ([]byte, error)
	Deserialize([]byte) error
	NewBackup(dst string) (*sqlite.Backup, error)
	NewRestore(src string) (*sqlite.Backup, error)
}

// conn adds to the driver's connection what honker promises to everybody who
// writes through it: the gate, a transaction that stays one, statements that stay
// prepared, and word of each commit. database/sql uses it from one goroutine at a
// time.
type conn struct {
	rawConn
	home  *Connector
	cache cache
	tx    transaction
	back  writeback

	socket   *socket
	queriers []*sql.Conn // of functions, by depth
	depth    int         // functions that run now, one inside of another
	cause    error       // the last function's, of which SQLite has only the text
}

// setUp touches nothing that outlives the connection.
func (c *conn) setUp(ctx context.Context, pragmas []string) error {
	inMemory := "PRAGMA temp_store=MEMORY" // what a statement may have to undo, and to sort
	for _, pragma := range append(pragmas, inMemory) {
		// Not through the gate: whoever opens a connection to read must not wait for
		// a writer.
		err := Retry(ctx, c.home.cfg.BusyTimeout, func() error {
			_, err := c.rawConn.ExecContext(context.Background(), pragma, nil)
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", strings.ToLower(pragma), err)
		}
	}
	readOnly, err := c.IsReadOnly("main")
	if err == nil && readOnly {
		err = fmt.Errorf("%w: %s is read-only", ErrUnsupported, c.home.path)
	}
	return err
}

// PrepareContext implements driver.ConnPrepareContext.
func (c *conn) PrepareContext(_ context.Context, query string) (driver.Stmt, error) {
	return c.prepare(query)
}

// Prepare implements driver.Conn.
func (c *conn) Prepare(query string) (driver.Stmt, error) { return c.prepare(query) }

func (c *conn) prepare(query string) (*stmt, error) {
	p, err := c.rawConn.PrepareContext(context.Background(), query)
	if err != nil {
		return nil, err
	}
	raw, ok := p.(rawStmt)
	if !ok {
		_ = p.Close()
		return nil, fmt.Errorf("%w: the driver's statement lacks a method that honker needs", ErrUnsupported)
	}
	s := &stmt{rawStmt: raw, conn: c, text: query, verb: verbOf(query)}
	s.calls = s.verb != vOther && c.socket.table.writtenBy(query)
	return s, nil
}

// statement returns query prepared: kept from an earlier run where that helps.
func (c *conn) statement(query string) (*stmt, error) {
	if s := c.cache.get(query); s != nil {
		return s, nil
	}
	s, err := c.prepare(query)
	if err != nil {
		return nil, err
	}
	// A PRAGMA may act while it is prepared, DDL runs once.
	s.once = s.verb == vOther || !c.cache.put(query, s)
	return s, nil
}

func (c *conn) done(s *stmt) {
	if s.once {
		_ = s.rawStmt.Close()
	}
}

// ExecContext implements driver.ExecerContext.
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if query == whose {
		return driver.RowsAffected(0), c.answer(ctx)
	}
	s, err := c.statement(query)
	for try := (retry{}); try.after(ctx, err, c.home.cfg.BusyTimeout); {
		s, err = c.statement(query)
	}
	if err != nil {
		return nil, c.tx.check(c, err)
	}
	defer c.done(s)
	return c.exec(ctx, s, args)
}

// QueryContext implements driver.QueryerContext.
func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	s, err := c.statement(query)
	for try := (retry{}); try.after(ctx, err, c.home.cfg.BusyTimeout); {
		s, err = c.statement(query)
	}
	if err != nil {
		return nil, c.tx.check(c, err)
	}
	r, err := c.query(ctx, s, args)
	if err != nil {
		c.done(s)
	}
	return r, err
}

// exec runs s by the rules of where it stands: inside a transaction, as one that
// begins or ends it, or by itself, which is a transaction of one statement.
func (c *conn) exec(ctx context.Context, s *stmt, args []driver.NamedValue) (driver.Result, error) {
	switch {
	case s.verb >= vBegin:
		return driver.RowsAffected(0), c.control(ctx, s.verb)
	case c.tx.open:
		return c.tx.exec(ctx, c, s, args)
	case s.verb == vSavepoint:
		return nil, fmt.Errorf("%w: SAVEPOINT outside a transaction: begin one first", ErrInvalid)
	case s.calls:
		return c.execWriter(ctx, s, args)
	case s.verb == vRead:
		res, err := c.execRetrying(ctx, s, args)
		c.tell()
		return res, err
	}
	res, err := c.execGated(ctx, s, args)
	if err == nil && !c.tx.open {
		c.committed()
	}
	return res, err
}

// execGated runs s as a transaction of its own.
func (c *conn) execGated(ctx context.Context, s *stmt, args []driver.NamedValue) (driver.Result, error) {
	if err := c.home.enter(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if !c.tx.gated {
			c.home.gate.leave()
		}
	}()
	res, err := c.execRetrying(ctx, s, args)
	if s.verb == vOther && c.inTransaction() {
		c.tx = transaction{open: true, gated: true} // a script has begun one, and not ended it
	}
	return res, err
}

// inTransaction asks SQLite, where a BEGIN fails only inside of one.
func (c *conn) inTransaction() bool {
	_, err := c.rawConn.ExecContext(context.Background(), "BEGIN", nil)
	if err == nil {
		_, _ = c.rawConn.ExecContext(context.Background(), "ROLLBACK", nil)
	}
	return err != nil
}

// execRetrying waits for other processes as long as ctx and BusyTimeout allow. A write
// itself is not interrupted: it happens or it does not, never maybe.
func (c *conn) execRetrying(ctx context.Context, s *stmt, args []driver.NamedValue) (driver.Result, error) {
	run := ctx
	if c.tx.open || s.verb != vRead {
		run = context.WithoutCancel(ctx)
	}
	s.failpoint()
	s.inUse = true // a function may run other statements meanwhile, or this one
	res, err := s.rawStmt.ExecContext(run, args)
	for try := (retry{}); try.after(ctx, err, c.home.cfg.BusyTimeout); {
		res, err = s.rawStmt.ExecContext(run, args)
	}
	s.inUse = false
	return res, c.because(stillBusy(ctx, err))
}

func (c *conn) query(ctx context.Context, s *stmt, args []driver.NamedValue) (driver.Rows, error) {
	if s.verb >= vBegin {
		return nil, fmt.Errorf("%w: run BEGIN, COMMIT and ROLLBACK with Exec", ErrInvalid)
	}
	if c.tx.open {
		if err := c.tx.allows(ctx, s); err != nil {
			return nil, err
		}
	} else if s.calls {
		return c.queryWriter(ctx, s, args)
	}
	r, err := c.start(ctx, s, args)
	if err != nil {
		if !c.tx.open {
			c.tell() // a call before the one that failed
		}
		return nil, c.tx.check(c, err)
	}
	return r, nil
}

// start runs s up to its first row.
func (c *conn) start(ctx context.Context, s *stmt, args []driver.NamedValue) (*rows, error) {
	run := ctx
	if c.tx.open || s.verb == vWith || s.verb == vWrite {
		run = context.WithoutCancel(ctx)
	}
	s.failpoint()
	s.inUse = true
	r, err := s.rawStmt.QueryContext(run, args)
	for try := (retry{}); try.after(ctx, err, c.home.cfg.BusyTimeout); {
		r, err = s.rawStmt.QueryContext(run, args)
	}
	if err != nil {
		s.inUse = false
		return nil, c.because(stillBusy(ctx, err))
	}
	return &rows{rawRows: r.(rawRows), stmt: s}, nil
}

// tell reports a write of a function outside a transaction, in a statement that was none
// to look at.
func (c *conn) tell() {
	if c.tx.wrote {
		c.tx.wrote = false
		c.committed()
	}
}

func (c *conn) committed() {
	c.home.committed()
	c.back.committed()
}

func (c *conn) rowsClosed(s *stmt) {
	c.done(s)
	switch {
	case c.tx.open:
	case s.verb == vRead:
		c.tell()
	case s.verb == vOther && c.inTransaction():
		c.tx = transaction{open: true} // begun by a script, past the gate
	case s.verb != vOther:
		c.committed()
	}
}

// control runs BEGIN, COMMIT and ROLLBACK that came as text, on a *sql.Conn.
func (c *conn) control(ctx context.Context, v verb) error {
	switch v {
	case vBegin, vBeginNow:
		return c.tx.begin(ctx, c, v == vBeginNow)
	case vCommit:
		return c.tx.commit(c, false)
	default:
		return c.tx.rollback(c)
	}
}

// BeginTx implements driver.ConnBeginTx: IMMEDIATE, or a deferred snapshot that refuses
// to write when read-only. SQLite is serializable, so every isolation level asked for holds.
func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if err := c.tx.begin(ctx, c, !opts.ReadOnly); err != nil {
		return nil, err
	}
	c.tx.readOnly = opts.ReadOnly
	return sqlTx{c}, nil
}

// Begin implements driver.Conn.
func (c *conn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

type sqlTx struct{ c *conn }

func (t sqlTx) Commit() error   { return t.c.tx.commit(t.c, true) }
func (t sqlTx) Rollback() error { return t.c.tx.rollback(t.c) }

// ResetSession implements driver.SessionResetter: a transaction begun as text and
// left open must not reach the next borrower, nor keep the gate.
func (c *conn) ResetSession(ctx context.Context) error {
	if c.tx.open {
		_ = c.tx.rollback(c)
	}
	return c.rawConn.ResetSession(ctx)
}

// IsValid implements driver.Validator. database/sql asks when a connection comes
// back to the pool.
func (c *conn) IsValid() bool {
	if c.tx.open {
		_ = c.tx.rollback(c)
	}
	return c.rawConn.IsValid()
}

// Close implements driver.Conn.
func (c *conn) Close() error {
	if c.tx.open {
		_ = c.tx.rollback(c)
	}
	c.closeQueriers()
	c.cache.clear() // an unfinalized statement would keep the file open
	c.back.close()
	err := c.rawConn.Close()
	if c.socket != nil {
		c.socket.giveBack()
		c.socket = nil
	}
	return err
}
