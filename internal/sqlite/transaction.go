package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"maps"
	"time"
)

// transaction is the open transaction of a connection.
//
// It stays one, or fails as a whole. In SQLite an interrupt, a full disk or an
// I/O error can roll back what came before, and the driver lets what comes after
// commit by itself, one statement at a time. So statements run without the
// caller's cancellation, ctx is looked at between them, and a transaction that was
// lost, or in which a ctx ended, can only be rolled back.
type transaction struct {
	open     bool
	gated    bool          // holds the write gate
	since    time.Time     // of a gated one: when it had the write lock
	waited   time.Duration // before that; 0 without Config.Ended
	readOnly bool          // refuses to write
	managed  bool          // of a sql.Tx, which alone may end it
	wrote    bool          // something that is not a SELECT has run: the commit is to be reported
	failed   error         // why it can only be rolled back; it may be gone already

	committed map[any]func() // called after the commit
}

// onCommit adds calls after the commit. A rollback forgets them.
func (t *transaction) onCommit(calls map[any]func()) {
	if !t.open || len(calls) == 0 {
		return
	}
	if t.committed == nil {
		t.committed = make(map[any]func(), len(calls))
	}
	maps.Copy(t.committed, calls)
}

// begin starts a transaction; now takes the write lock at once, through the gate. One
// that begins with a read could not write any more once another writer has committed.
func (t *transaction) begin(ctx context.Context, c *conn, now bool) error {
	if t.open {
		return fmt.Errorf("%w: BEGIN inside a transaction", ErrInvalid)
	}
	query := "BEGIN"
	if now {
		if err := c.connector.enter(ctx); err != nil {
			return err
		}
		query = "BEGIN IMMEDIATE"
	}
	if err := t.run(ctx, c, query); err != nil {
		if now { // another process kept the lock for too long: let the next try
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

// run executes BEGIN, COMMIT or ROLLBACK, waiting for other processes. They are kept
// prepared as other statements are.
func (t *transaction) run(ctx context.Context, c *conn, query string) error {
	s, err := c.statement(ctx, query)
	if err != nil {
		return err
	}
	defer c.done(s)
	_, err = c.execRetrying(ctx, s, nil)
	return err
}

// ready tells whether the next statement may run. An ended ctx fails the transaction for
// good: a caller that goes on with another ctx would commit what was to be dropped.
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

var errReadOnlyTx = fmt.Errorf("%w: a write in a read-only transaction", ErrInvalid)

// allows is ready for s.
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

// refuseText fails the transaction for a COMMIT or ROLLBACK as text. The caller of a sql.Tx goes
// on to write and commit, and each of its statements would commit by itself.
func (t *transaction) refuseText() error {
	if t.failed == nil {
		t.failed = fmt.Errorf("%w: COMMIT or ROLLBACK as text in a sql.Tx: use its methods", ErrInvalid)
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
	// Only a script can end the transaction without an error. What the caller does next
	// would commit by itself, so it is refused.
	if s.verb == vOther && !c.inTransaction() {
		t.failed = fmt.Errorf("%w: a script has ended it", ErrInvalid)
		return res, t.failed
	}
	return res, nil
}

// query is exec for a statement with rows.
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

// check fails the transaction when err has taken it away, which SQLite does not say: some
// of its errors undo the statement, others everything, and a trigger may choose.
func (t *transaction) check(c *conn, err error) error {
	if err == nil || !t.open || t.failed != nil {
		return err
	}
	if !c.inTransaction() {
		t.failed = err
	}
	return err
}

// inTransaction is the one way to find out whether a connection is inside a transaction:
// exec runs a statement on it. The drivers do not pass sqlite3_get_autocommit on, but a
// BEGIN fails only inside of one. It is asked after errors and scripts, not on the way of
// every statement.
func inTransaction(exec func(query string) error) bool {
	if err := exec("BEGIN"); err != nil {
		return true
	}
	_ = exec("ROLLBACK")
	return false
}

// commit ends the transaction; last says that the caller has no second try, as with
// sql.Tx, which forgets the connection whatever Commit returns.
func (t *transaction) commit(c *conn, last bool) error {
	if !t.open {
		return fmt.Errorf("%w: COMMIT outside a transaction", ErrInvalid)
	}
	// COMMIT of a transaction that is gone would be SQLite's "no transaction is active",
	// and of one with an ended ctx would succeed.
	if t.failed != nil {
		err := fmt.Errorf("nothing was committed: %w", t.failed)
		_ = t.rollback(c)
		return err
	}
	// Without the caller's ctx: a commit happens or it does not, never maybe.
	if err := t.check(c, t.run(context.Background(), c, "COMMIT")); err != nil {
		// Otherwise it stays open, as SQLite leaves it: a reader of a rollback journal
		// may have held it up, and a second COMMIT may succeed.
		if last || t.failed != nil {
			_ = t.rollback(c)
		}
		return err
	}
	was := *t
	*t = transaction{}
	// The next writer first: what follows may wake goroutines and ask the kernel.
	was.leave(c, true)
	if was.gated || was.wrote {
		c.connector.committed()
	}
	for _, call := range was.committed {
		call()
	}
	return nil
}

// rollback ends the transaction and gives the gate back, whatever SQLite says: the
// connection has no transaction after that, or is broken.
func (t *transaction) rollback(c *conn) error {
	if !t.open {
		return fmt.Errorf("%w: ROLLBACK outside a transaction", ErrInvalid)
	}
	var err error
	// One that failed by its ctx SQLite still holds; others it has rolled back.
	if t.failed == nil || c.inTransaction() {
		err = t.run(context.Background(), c, "ROLLBACK")
	}
	was := *t
	*t = transaction{}
	was.leave(c, false)
	return err
}

// leave gives the gate to the next writer, once the transaction has ended.
func (t *transaction) leave(c *conn, committed bool) {
	if t.gated {
		c.leave(false)
		c.connector.cfg.Late.Check(t.since)
		c.connector.ended(t.waited, t.since, committed)
	}
}
