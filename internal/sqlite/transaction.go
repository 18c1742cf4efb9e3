package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"maps"
	"time"

	"github.com/honker-go/honker/internal/engine"
)

// transaction is a connection's open transaction.
//
// A transaction either stays whole or fails as a whole. In SQLite, an interrupt, a full disk or an I/O error can roll
// back earlier statements, after which the driver lets later statements commit one by one. Statements therefore run
// without the caller's cancellation, and ctx is checked between them. A transaction that was lost, or whose ctx has
// ended, can only be rolled back.
type transaction struct {
	open     bool
	gated    bool          // holds the write gate
	since    time.Time     // if gated: when it got the write lock
	waited   time.Duration // time spent waiting before since; 0 if Config.Ended is nil
	readOnly bool          // rejects writes
	managed  bool          // belongs to a sql.Tx, and only the sql.Tx may end it
	wrote    bool          // ran a statement other than SELECT, so the commit must be reported
	failed   error         // why it can only be rolled back; SQLite may have done so already

	committed map[any]func() // called after the commit
}

// onCommit registers calls to be made after the commit. A rollback discards them.
func (t *transaction) onCommit(calls map[any]func()) {
	if !t.open || len(calls) == 0 {
		return
	}
	if t.committed == nil {
		t.committed = make(map[any]func(), len(calls))
	}
	maps.Copy(t.committed, calls)
}

// begin starts a transaction. If now is set, it enters the gate and takes the write lock
// immediately. A transaction that begins with a read can no longer write once another writer has
// committed.
func (t *transaction) begin(ctx context.Context, c *conn, now bool) error {
	if t.open {
		return fmt.Errorf("%w: BEGIN inside a transaction", engine.ErrInvalid)
	}
	query := "BEGIN"
	if now {
		if err := c.connector.enter(ctx); err != nil {
			return err
		}
		query = "BEGIN IMMEDIATE"
	}
	if err := t.run(ctx, c, query); err != nil {
		if now { // another process held the lock for too long
			c.connector.gate.leave()
		}
		return err
	}
	*t = transaction{open: true}
	if now {
		t.gated, t.since = true, time.Now()
		if c.connector.cfg.Ended != nil {
			t.waited = t.since.Sub(c.connector.asked)
		}
		c.connector.yield.began(c, t.since)
	}
	return nil
}

// run executes BEGIN, COMMIT or ROLLBACK, and waits for other processes. These statements are
// cached like any others.
func (t *transaction) run(ctx context.Context, c *conn, query string) error {
	s, err := c.statement(ctx, query)
	if err != nil {
		return err
	}
	defer c.done(s)
	_, err = c.execRetrying(ctx, s, nil)
	return err
}

// ready returns an error if the transaction cannot run another statement. If ctx has ended, the transaction fails for
// good, because a caller that continued with another ctx could commit an incomplete transaction.
func (t *transaction) ready(ctx context.Context) error {
	if t.failed != nil {
		return fmt.Errorf("the transaction can only be rolled back: %w", t.failed)
	}
	if err := ctx.Err(); err != nil {
		t.failed = err
		return err
	}
	return nil
}

var errReadOnlyTx = fmt.Errorf("%w: a read-only transaction cannot write", engine.ErrInvalid)

// allows is like ready, but also checks whether s is allowed.
func (t *transaction) allows(ctx context.Context, s *stmt) error {
	if t.readOnly && s.verb == vWrite {
		return errReadOnlyTx
	}
	if t.managed && s.ends {
		return t.refuseText()
	}
	t.wrote = t.wrote || s.verb != vRead
	return t.ready(ctx)
}

// refuseText fails the transaction after a COMMIT or ROLLBACK statement. Otherwise the sql.Tx's owner would continue,
// and each further statement would be committed separately.
func (t *transaction) refuseText() error {
	if t.failed == nil {
		t.failed = fmt.Errorf("%w: a sql.Tx cannot be ended by COMMIT or ROLLBACK as text: use its methods", engine.ErrInvalid)
	}
	return t.ready(context.Background())
}

// exec runs s inside the transaction.
func (t *transaction) exec(ctx context.Context, c *conn, s *stmt, args []driver.NamedValue) (driver.Result, error) {
	if err := t.allows(ctx, s); err != nil {
		return nil, err
	}
	res, err := c.execRetrying(ctx, s, args)
	if err != nil {
		return res, t.check(c, err)
	}
	// Only a script can end the transaction without an error. Fail the transaction, because the caller's further
	// statements would be committed separately.
	if s.verb == vOther && !c.inTransaction() {
		t.failed = fmt.Errorf("%w: a script has ended the transaction", engine.ErrInvalid)
		return res, t.failed
	}
	return res, nil
}

// query is like exec, for statements that return rows.
func (t *transaction) query(ctx context.Context, c *conn, s *stmt, args []driver.NamedValue) (driver.Rows, error) {
	if err := t.allows(ctx, s); err != nil {
		return nil, err
	}
	r, err := c.start(ctx, s, args)
	if err != nil {
		return nil, t.check(c, err)
	}
	return r, nil
}

// check fails the transaction if err has ended it. SQLite does not report this: some errors undo
// only the statement, others the whole transaction, and triggers can do either.
func (t *transaction) check(c *conn, err error) error {
	if err == nil || !t.open || t.failed != nil {
		return err
	}
	if !c.inTransaction() {
		t.failed = err
	}
	return err
}

// inTransaction reports whether a connection is inside a transaction. exec runs a statement on the connection.
// Drivers do not expose sqlite3_get_autocommit, but BEGIN fails only inside a transaction. inTransaction is called
// only after errors and scripts, not for every statement.
func inTransaction(exec func(query string) error) bool {
	if err := exec("BEGIN"); err != nil {
		return true
	}
	_ = exec("ROLLBACK")
	return false
}

// commit ends the transaction. last means that the caller can't try again: sql.Tx releases the connection regardless
// of the value that Commit returns.
func (t *transaction) commit(c *conn, last bool) error {
	if !t.open {
		return fmt.Errorf("%w: COMMIT outside a transaction", engine.ErrInvalid)
	}
	// If the transaction was lost, COMMIT would return "no transaction is active". If ctx has ended, it would
	// succeed.
	if t.failed != nil {
		err := fmt.Errorf("nothing was committed: %w", t.failed)
		_ = t.rollback(c)
		return err
	}
	// The caller's ctx is not used, because an interrupted commit would have an unknown outcome.
	if err := t.check(c, t.run(context.Background(), c, "COMMIT")); err != nil {
		// Otherwise the transaction stays open, as in SQLite. With a rollback journal, a reader may
		// have blocked the COMMIT, and a second COMMIT may succeed.
		if last || t.failed != nil {
			_ = t.rollback(c)
		}
		return err
	}
	was := *t
	*t = transaction{}
	// Admit the next writer first, because the calls below may wake goroutines and make system
	// calls.
	was.leave(c, true)
	if was.gated || was.wrote {
		c.connector.committed()
	}
	for _, call := range was.committed {
		call()
	}
	return nil
}

// rollback ends the transaction and releases the gate, even if ROLLBACK fails. After that the connection either has
// no transaction or is broken.
func (t *transaction) rollback(c *conn) error {
	if !t.open {
		return fmt.Errorf("%w: ROLLBACK outside a transaction", engine.ErrInvalid)
	}
	var err error
	// After a context error SQLite still holds the transaction. After any other error it has rolled
	// it back.
	if t.failed == nil || c.inTransaction() {
		err = t.run(context.Background(), c, "ROLLBACK")
	}
	was := *t
	*t = transaction{}
	was.leave(c, false)
	return err
}

// leave releases the gate to the next writer. It is called after the transaction has ended.
func (t *transaction) leave(c *conn, committed bool) {
	if t.gated {
		c.leave(false)
		c.connector.cfg.Late.Check(t.since)
		c.connector.ended(t.waited, t.since, committed)
	}
}
