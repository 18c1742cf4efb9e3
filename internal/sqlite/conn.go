package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"modernc.org/sqlite"
)

// rawConn is the driver's connection. It is embedded in conn so that callers of sql.Conn.Raw can
// use the driver's own methods for backups, hooks and serialization.
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

// conn wraps the driver's connection. For everything that is written through it, it adds the write gate, transactions
// that can't be split, cached prepared statements, and commit notifications. database/sql uses a connection from a
// single goroutine at a time, so conn needs no locks.
type conn struct {
	rawConn
	connector *Connector
	cache     cache
	tx        transaction

	driver   *connDriver
	queriers []*sql.Conn  // for functions, by call depth
	depth    int          // number of nested functions that are running
	current  *stmt        // the statement that the caller, not a function, is running or ran last
	cause    error        // error of the last function; SQLite keeps only its text
	use      atomic.Int32 // used, unused or closed
	lent     int          // number of the caller's prepared statements, which may be closed at any time
	returned bool         // in the pool
	hooked   bool         // mayCommit is registered as the commit hook
	refused  error        // mayCommit's error if it rejected the last commit
}

// setUp configures the connection. It doesn't change the file, because it is also used by readers and by a DB that
// doesn't yet know whether it may change the file.
func (c *conn) setUp(ctx context.Context, statements []string) error {
	inMemory := []string{"PRAGMA temp_store=MEMORY"} // for statement journals and sorting
	for _, statement := range append(inMemory, statements...) {
		// This bypasses the gate, because opening a connection for reading must not wait for a
		// writer.
		err := c.retry(ctx, func() error { return c.execDriver(statement) })
		if err != nil {
			return fmt.Errorf("%s: %w", strings.ToLower(statement), err)
		}
	}
	// Check now. Otherwise the first write would fail in the middle of an operation.
	readOnly, err := c.IsReadOnly("main")
	if err != nil || c.connector.cfg.ReadOnly {
		return err
	}
	if readOnly {
		return fmt.Errorf("%w: %s is read-only", engine.ErrUnsupported, c.connector.Path())
	}
	return nil
}

// onConnect calls the application's hook with the driver's connection rather than c. The hook's
// statements must not wait for the gate, because Connect's caller may hold it.
func (c *conn) onConnect(ctx context.Context, hook func(context.Context, driver.Conn) error) (err error) {
	if hook == nil {
		return nil
	}
	defer func() {
		if p := panicError(recover()); p != nil {
			err = p
		}
	}()
	if err := hook(ctx, c.rawConn); err != nil {
		return err
	}
	if c.inTransaction() {
		return fmt.Errorf("%w: it left a transaction open", engine.ErrInvalid)
	}
	return nil
}

// retry runs f until it no longer fails because of another process's lock; see [Retry].
func (c *conn) retry(ctx context.Context, f func() error) error {
	return Retry(ctx, c.connector.cfg.BusyTimeout, f)
}

// execDriver runs query directly on the driver: without the gate, without retries, and without
// updating c.tx.
func (c *conn) execDriver(query string) error {
	_, err := c.rawConn.ExecContext(context.Background(), query, nil)
	return err
}

// PrepareContext implements driver.ConnPrepareContext. The statement belongs to the caller and is
// not cached, but follows the same rules.
func (c *conn) PrepareContext(_ context.Context, query string) (driver.Stmt, error) {
	s, err := c.prepare(query)
	if err != nil {
		return nil, err
	}
	s.lent = true
	c.lent++
	return s, nil
}

// Prepare implements driver.Conn.
func (c *conn) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

func (c *conn) prepare(query string) (*stmt, error) {
	p, err := c.rawConn.PrepareContext(context.Background(), query)
	if err != nil {
		return nil, err
	}
	raw, ok := p.(rawStmt)
	if !ok {
		_ = p.Close()
		return nil, fmt.Errorf("%w: the driver's statement lacks a method that honker needs", engine.ErrUnsupported)
	}
	s := &stmt{rawStmt: raw, conn: c, text: query, verb: verbOf(query)}
	// A script runs statement by statement, so it cannot be wrapped in a transaction.
	s.calls = s.verb != vOther && c.driver.functions.writtenBy(query)
	s.ends = s.verb == vOther && endsWithin(query)
	return s, nil
}

// statement returns query as a prepared statement, from the cache if possible. Preparing reads the
// schema and can wait for another process's lock.
func (c *conn) statement(ctx context.Context, query string) (*stmt, error) {
	if s := c.cache.get(query); s != nil {
		return s, nil
	}
	var s *stmt
	err := c.retry(ctx, func() (err error) {
		s, err = c.prepare(query)
		return err
	})
	if err != nil {
		return nil, err
	}
	// A PRAGMA may take effect while it is prepared. DDL usually runs only once.
	s.once = s.verb == vOther || !c.cache.put(query, s)
	return s, nil
}

// done closes a statement that is not cached. It must be called after the rows are closed, since a
// driver's rows end with their statement.
func (c *conn) done(s *stmt) {
	if s.once {
		_ = s.rawStmt.Close()
	}
}

// ExecContext implements driver.ExecerContext.
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	s, err := c.statement(ctx, query)
	if err != nil {
		return nil, c.tx.check(c, err)
	}
	defer c.done(s)
	return c.exec(ctx, s, args)
}

// QueryContext implements driver.QueryerContext.
func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	s, err := c.statement(ctx, query)
	if err != nil {
		return nil, c.tx.check(c, err)
	}
	r, err := c.query(ctx, s, args)
	if err != nil {
		c.done(s)
		return nil, err
	}
	return r, nil
}

// exec runs s according to its context: inside a transaction, as a statement that begins or ends a
// transaction, or alone as its own transaction.
//
// The order of the cases matters. A transaction begun by a BEGIN statement must be tracked just like a transaction
// begun by BeginTx. If BEGIN were handled as an ordinary statement, the gate wouldn't know about the transaction, and
// all other writers would wait inside SQLite.
func (c *conn) exec(ctx context.Context, s *stmt, args []driver.NamedValue) (driver.Result, error) {
	switch {
	case s.verb == vProbe:
		return driver.RowsAffected(0), c.answerProbe(ctx, s, args)
	case s.verb >= vBegin:
		return driver.RowsAffected(0), c.control(ctx, s.verb)
	case c.tx.open:
		return c.tx.exec(ctx, c, s, args)
	case s.verb == vSavepoint:
		return nil, errSavepointAlone
	case s.calls:
		return c.execWriter(ctx, s, args)
	}
	res, err := c.execAlone(ctx, s, args)
	if err != nil && errors.Is(err, errHiddenCall) {
		s.calls = true // avoid the failure on the next run
		return c.execWriter(ctx, s, args)
	}
	return res, err
}

// errSavepointAlone rejects SAVEPOINT outside a transaction, where SQLite would begin a deferred
// transaction without the gate.
var errSavepointAlone = fmt.Errorf("%w: SAVEPOINT requires a transaction: begin one first", engine.ErrInvalid)

// execAlone runs s outside a transaction. Only reads bypass the gate: in WAL mode they neither wait
// for a writer nor block it.
func (c *conn) execAlone(ctx context.Context, s *stmt, args []driver.NamedValue) (driver.Result, error) {
	if s.verb == vRead {
		return c.execRetrying(ctx, s, args)
	}
	res, err := c.execGated(ctx, s, args)
	if err != nil {
		return res, err
	}
	if !c.tx.open {
		c.connector.committed()
	}
	return res, nil
}

// execGated runs s as its own transaction, holding the gate. Without the gate, s would compete inside SQLite with
// this process's other writers, and usually lose: SQLite's retries sleep, whereas the gate is a queue.
func (c *conn) execGated(ctx context.Context, s *stmt, args []driver.NamedValue) (res driver.Result, err error) {
	if err := c.connector.enter(ctx); err != nil {
		return nil, err
	}
	asked, began := c.connector.asked, c.connector.now()
	defer func() {
		if !c.tx.gated {
			c.leave(true)
			c.connector.ended(began.Sub(asked), began, err == nil)
		}
	}()
	res, err = c.execRetrying(ctx, s, args)
	if s.verb == vOther && c.inTransaction() {
		// A script has left a transaction open, whether or not it failed. The transaction keeps the
		// gate until the caller or the pool ends it.
		c.tx = transaction{open: true, gated: true, since: time.Now()}
	}
	return res, err
}

// leave releases the gate. alone means that c ran a single statement while holding it.
func (c *conn) leave(alone bool) {
	c.connector.yield.ended(c, alone)
	c.connector.gate.leave()
}

// inTransaction asks SQLite rather than c.tx, which can be wrong after an error or a script.
func (c *conn) inTransaction() bool { return inTransaction(c.execDriver) }

// execRetrying waits for other processes for as long as ctx and BusyTimeout allow. A write that is running isn't
// interrupted, so that its outcome is always known.
func (c *conn) execRetrying(ctx context.Context, s *stmt, args []driver.NamedValue) (driver.Result, error) {
	run := ctx
	if c.tx.open || s.verb != vRead {
		run = context.WithoutCancel(ctx)
	}
	s.begins()
	// The closure does not escape, so it costs no allocation.
	var res driver.Result
	err := c.retry(ctx, func() (err error) {
		res, err = s.rawStmt.ExecContext(run, args)
		return err
	})
	s.inUse = false
	return res, c.wrapCause(err)
}

// query is like exec, for statements that return rows. The rows of a read statement are streamed.
// The rows of a write statement are buffered, because a caller that does not close its rows would
// keep holding the gate.
func (c *conn) query(ctx context.Context, s *stmt, args []driver.NamedValue) (driver.Rows, error) {
	switch {
	case s.verb >= vBegin && c.tx.managed:
		return nil, c.control(ctx, s.verb)
	case s.verb >= vBegin:
		return nil, fmt.Errorf("%w: run BEGIN, COMMIT and ROLLBACK with Exec", engine.ErrInvalid)
	case c.tx.open:
		return c.tx.query(ctx, c, s, args)
	case s.verb == vSavepoint:
		return nil, errSavepointAlone
	case s.calls, s.verb == vWrite:
		return c.queryWriter(ctx, s, args)
	}
	r, err := c.start(ctx, s, args)
	if err != nil && errors.Is(err, errHiddenCall) {
		// Only the first row was computed, so the statement can run again as a writer. If a later
		// row calls a writing function, Next returns the error, because the caller already has
		// rows.
		s.calls = true
		return c.queryWriter(ctx, s, args)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// start runs s up to its first row. A write is complete by then: with RETURNING, SQLite computes
// all rows before it returns the first.
func (c *conn) start(ctx context.Context, s *stmt, args []driver.NamedValue) (*rows, error) {
	run := ctx
	// A SELECT can be interrupted safely. Writes are not interrupted, and neither are statements in
	// a transaction, because SQLite could lose the whole transaction.
	if c.tx.open || s.verb == vWrite {
		run = context.WithoutCancel(ctx)
	}
	s.begins()
	var r driver.Rows
	err := c.retry(ctx, func() (err error) {
		r, err = s.rawStmt.QueryContext(run, args)
		return err
	})
	if err != nil {
		s.inUse = false
		return nil, c.wrapCause(err)
	}
	return &rows{rawRows: r.(rawRows), stmt: s}, nil
}

// rowsClosed ends a statement that returned rows. If the statement is a script, it may have begun a
// transaction without the gate.
func (c *conn) rowsClosed(s *stmt) {
	c.done(s)
	if s.verb == vOther && !c.tx.open && c.inTransaction() {
		c.tx = transaction{open: true}
	}
}

// control runs BEGIN, COMMIT and ROLLBACK statements on a *sql.Conn. Unlike sql.Tx.Commit, a failed
// COMMIT statement can be retried.
func (c *conn) control(ctx context.Context, v verb) error {
	switch {
	case v == vBegin, v == vBeginNow:
		return c.tx.begin(ctx, c, v == vBeginNow)
	case c.tx.managed:
		return c.tx.refuseText()
	case v == vCommit:
		return c.tx.commit(c, false)
	default:
		return c.tx.rollback(c)
	}
}

// BeginTx implements driver.ConnBeginTx. It begins an IMMEDIATE transaction or, if opts.ReadOnly is set, a deferred
// transaction that rejects writes. IMMEDIATE is the default because a transaction that reads first and writes later
// fails if another writer has committed in between. SQLite is serializable, so every isolation level is satisfied.
func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if err := c.tx.begin(ctx, c, !opts.ReadOnly); err != nil {
		return nil, err
	}
	c.tx.readOnly, c.tx.managed = opts.ReadOnly, true
	return sqlTx{c}, nil
}

// Begin implements driver.Conn.
func (c *conn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

// sqlTx has no state of its own. The transaction belongs to the connection, where a COMMIT or
// ROLLBACK statement may also end it.
type sqlTx struct{ c *conn }

func (t sqlTx) Commit() error   { return t.c.tx.commit(t.c, true) }
func (t sqlTx) Rollback() error { return t.c.tx.rollback(t.c) }

// ResetSession implements driver.SessionResetter. A transaction begun by a BEGIN statement and left
// open must neither reach the connection's next user nor keep the gate. After an ErrBadConn, the pool opens another
// connection.
func (c *conn) ResetSession(ctx context.Context) error {
	c.connector.uses.Add(1)
	if !c.use.CompareAndSwap(unused, used) && c.use.Load() == closed {
		return driver.ErrBadConn
	}
	c.returned = false
	c.rollbackOpen()
	return c.rawConn.ResetSession(ctx)
}

// IsValid implements driver.Validator. database/sql calls it when a connection returns to the pool. It rolls back any
// transaction that was left open, to release the gate before the connection is used again.
func (c *conn) IsValid() bool {
	c.rollbackOpen()
	if !c.rawConn.IsValid() {
		return false
	}
	c.returned = true
	c.markUnused()
	return true
}

// markUnused allows CloseUnused to close the connection, if nothing else can use it.
func (c *conn) markUnused() {
	if c.returned && c.lent == 0 {
		c.use.CompareAndSwap(used, unused)
	}
}

// rollbackOpen rolls back a transaction left open. The error is ignored, because the pool detects a
// broken connection by itself.
func (c *conn) rollbackOpen() {
	if c.tx.open {
		_ = c.tx.rollback(c)
	}
}

// Close implements driver.Conn. database/sql may call it twice.
func (c *conn) Close() error {
	if c.use.Swap(closed) == closed {
		return nil
	}
	c.connector.pooled.remove(c)
	return c.release()
}

// release closes the connection. The caller must have marked it as closed.
func (c *conn) release() error {
	c.rollbackOpen()
	c.closeQueriers()
	c.cache.clear() // an unfinalized statement would keep the file open
	err := c.rawConn.Close()
	if c.driver != nil {
		// This must come last, because until now a trigger may call a function.
		c.driver.giveBack()
		c.driver = nil
		c.connector.writeback.disconnected()
	}
	return err
}
