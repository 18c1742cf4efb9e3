package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

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

// conn adds to the driver's connection what honker promises to every caller that
// writes through it: the gate, a transaction that stays one, statements that stay
// prepared, and a report of each commit. database/sql uses it from one goroutine at a
// time, so nothing in it is locked.
type conn struct {
	rawConn
	connector *Connector
	cache     cache
	tx        transaction

	driver   *connDriver
	queriers []*sql.Conn // of functions, by depth
	depth    int         // functions that run now, one inside of another
	current  *stmt       // the caller's statement that runs, or ran last: not a function's
	cause    error       // the last function's error, of which SQLite has only the text
	hooked   bool        // commits ask mayCommit
	refused  error       // why it has refused the last one
}

// setUp touches nothing that outlives the connection: it is opened by readers too, and
// by a DB that has yet to find out whether it may change the file at all.
func (c *conn) setUp(ctx context.Context, statements []string) error {
	inMemory := []string{"PRAGMA temp_store=MEMORY"} // what a statement may have to undo, and to sort
	for _, statement := range append(inMemory, statements...) {
		// Not through the gate: a connection that is opened to read must not wait for
		// a writer.
		err := c.retry(ctx, func() error { return c.execDriver(statement) })
		if err != nil {
			return fmt.Errorf("%s: %w", strings.ToLower(statement), err)
		}
	}
	// Asked now: the first write would find out late, in the middle of something.
	readOnly, err := c.IsReadOnly("main")
	if err != nil || c.connector.cfg.ReadOnly {
		return err
	}
	if readOnly {
		return fmt.Errorf("%w: %s is read-only", ErrUnsupported, c.connector.Path())
	}
	return nil
}

// onConnect calls the application's hook with the driver's connection, not with c: what
// a hook sets up must not wait at the gate, which the caller of Connect may hold itself.
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
		return fmt.Errorf("%w: it left a transaction open", ErrInvalid)
	}
	return nil
}

// retry runs f until it meets no lock of another process, see [Retry].
func (c *conn) retry(ctx context.Context, f func() error) error {
	return Retry(ctx, c.connector.cfg.BusyTimeout, f)
}

// execDriver runs query past all rules of c: neither gate nor retries, and no part in what
// c.tx knows.
func (c *conn) execDriver(query string) error {
	_, err := c.rawConn.ExecContext(context.Background(), query, nil)
	return err
}

// PrepareContext implements driver.ConnPrepareContext. Such a statement belongs to its
// caller and is not in the cache, but it keeps the same rules.
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
	// A script runs statement by statement: it has no one transaction to be wrapped in.
	s.calls = s.verb != vOther && c.driver.functions.writtenBy(query)
	s.ends = s.verb == vOther && endsWithin(query)
	return s, nil
}

// statement returns query prepared: kept from an earlier run where that helps. Preparing
// reads the schema, so it can meet another process's lock.
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
	// A PRAGMA may act while it is prepared, DDL runs once.
	s.once = s.verb == vOther || !c.cache.put(query, s)
	return s, nil
}

// done closes a statement that is not kept. It is called when the rows are closed, not
// when the query returns: a driver's rows end with their statement.
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

// exec runs s by the rules of where it stands: inside a transaction, as one that
// begins or ends it, or by itself, which is a transaction of one statement.
//
// The order matters. A transaction that was opened as text is known as one here, not only
// those of BeginTx, so a BEGIN must not slip through as any other statement: the gate would
// not know of it, and every other writer would meet it inside SQLite.
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
		s.calls = true // the next run need not fail first
		return c.execWriter(ctx, s, args)
	}
	return res, err
}

// errSavepointAlone: SQLite would begin a deferred transaction, past the gate.
var errSavepointAlone = fmt.Errorf("%w: SAVEPOINT outside a transaction: begin one first", ErrInvalid)

// execAlone runs s outside a transaction. Only what reads goes past the gate: in WAL mode
// it waits for no writer, and no writer waits for it.
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

// execGated runs s as a transaction of its own. Without the gate it would meet the other
// writers of this process in SQLite, and lose to them: a retry sleeps, the gate queues.
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
		// A script has begun one and not ended it, whether or not it failed. The gate
		// stays with it until the caller, or the pool, ends it.
		c.tx = transaction{open: true, gated: true, since: time.Now()}
	}
	return res, err
}

// leave gives the gate back. alone: c has run one statement in it.
func (c *conn) leave(alone bool) {
	c.connector.yield.ended(c, alone)
	c.connector.gate.leave()
}

// inTransaction asks SQLite rather than c.tx, which can be wrong after an error or a
// script.
func (c *conn) inTransaction() bool { return inTransaction(c.execDriver) }

// execRetrying waits for other processes as long as ctx and BusyTimeout allow. A write
// itself is not interrupted: it happens or it does not, never maybe.
func (c *conn) execRetrying(ctx context.Context, s *stmt, args []driver.NamedValue) (driver.Result, error) {
	run := ctx
	if c.tx.open || s.verb != vRead {
		run = context.WithoutCancel(ctx)
	}
	s.begins()
	// A closure of a retry costs nothing: it does not escape.
	var res driver.Result
	err := c.retry(ctx, func() (err error) {
		res, err = s.rawStmt.ExecContext(run, args)
		return err
	})
	s.inUse = false
	return res, c.wrapCause(err)
}

// query is exec for a statement with rows. They are read while the statement stands, but for
// those of a writer: a caller that does not close its rows would keep the gate.
func (c *conn) query(ctx context.Context, s *stmt, args []driver.NamedValue) (driver.Rows, error) {
	switch {
	case s.verb >= vBegin && c.tx.managed:
		return nil, c.control(ctx, s.verb)
	case s.verb >= vBegin:
		return nil, fmt.Errorf("%w: run BEGIN, COMMIT and ROLLBACK with Exec", ErrInvalid)
	case c.tx.open:
		return c.tx.query(ctx, c, s, args)
	case s.verb == vSavepoint:
		return nil, errSavepointAlone
	case s.calls, s.verb == vWrite:
		return c.queryWriter(ctx, s, args)
	}
	r, err := c.start(ctx, s, args)
	if err != nil && errors.Is(err, errHiddenCall) {
		// Only the first row has been computed, so it can be done again as a writer. A
		// call that comes with a later row is an error of Next: the caller has rows.
		s.calls = true
		return c.queryWriter(ctx, s, args)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// start runs s up to its first row. A write is done by then: with RETURNING, SQLite computes
// all rows before it gives the first one.
func (c *conn) start(ctx context.Context, s *stmt, args []driver.NamedValue) (*rows, error) {
	run := ctx
	// An interrupted SELECT is only a SELECT less. A statement that may write is not
	// interrupted, nor one in a transaction, which would be lost with it.
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

// rowsClosed ends a statement with rows. A script may have begun a transaction, past the gate.
func (c *conn) rowsClosed(s *stmt) {
	c.done(s)
	if s.verb == vOther && !c.tx.open && c.inTransaction() {
		c.tx = transaction{open: true}
	}
}

// control runs BEGIN, COMMIT and ROLLBACK that came as text, on a *sql.Conn. A COMMIT that
// fails may be tried again there, which sql.Tx does not offer.
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

// BeginTx implements driver.ConnBeginTx: IMMEDIATE, or a deferred snapshot that refuses
// to write when read-only. IMMEDIATE is the default because a transaction that reads first
// and writes later fails, without a remedy, when another writer commits in between.
// SQLite is serializable, so every isolation level asked for holds.
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

// sqlTx has no state: the transaction is the connection's, which may have been asked by
// text to end it.
type sqlTx struct{ c *conn }

func (t sqlTx) Commit() error   { return t.c.tx.commit(t.c, true) }
func (t sqlTx) Rollback() error { return t.c.tx.rollback(t.c) }

// ResetSession implements driver.SessionResetter: a transaction begun as text and
// left open must not reach the next borrower, nor keep the gate.
func (c *conn) ResetSession(ctx context.Context) error {
	c.rollbackOpen()
	return c.rawConn.ResetSession(ctx)
}

// IsValid implements driver.Validator. database/sql asks when a connection comes
// back to the pool, so a gate that a transaction was left with is given back then,
// not when the connection is lent again.
func (c *conn) IsValid() bool {
	c.rollbackOpen()
	return c.rawConn.IsValid()
}

// rollbackOpen undoes what was left open. Its error is of no use to any caller: the pool
// finds a broken connection by itself.
func (c *conn) rollbackOpen() {
	if c.tx.open {
		_ = c.tx.rollback(c)
	}
}

// Close implements driver.Conn. database/sql may call it twice.
func (c *conn) Close() error {
	c.rollbackOpen()
	c.closeQueriers()
	c.cache.clear() // an unfinalized statement would keep the file open
	err := c.rawConn.Close()
	if c.driver != nil {
		// Last: until here a trigger may call a function.
		c.driver.giveBack()
		c.driver = nil
		c.connector.writeback.disconnected()
	}
	return err
}
