package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
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
	gated    bool // holds the write gate
	readOnly bool
	wrote    bool
	failed   error
}

// begin starts a transaction; now takes the write lock at once, through the gate.
func (t *transaction) begin(ctx context.Context, c *conn, now bool) error {
	if t.open {
		return fmt.Errorf("%w: BEGIN inside a transaction", ErrInvalid)
	}
	query := "BEGIN"
	if now {
		if err := c.home.enter(ctx); err != nil {
			return err
		}
		query = "BEGIN IMMEDIATE"
	}
	if err := t.run(ctx, c, query); err != nil {
		if now {
			c.home.gate.leave()
		}
		return err
	}
	*t = transaction{open: true, gated: now}
	return nil
}

// run executes one of the three words, waiting for other processes.
func (t *transaction) run(ctx context.Context, c *conn, query string) error {
	s, err := c.statement(query)
	if err != nil {
		return err
	}
	defer c.done(s)
	_, err = c.execRetrying(ctx, s, nil)
	return err
}

// ready tells whether the next statement may run.
func (t *transaction) ready(ctx context.Context) error {
	if t.failed == nil && ctx.Err() != nil {
		t.failed = ctx.Err()
		return t.failed
	}
	if t.failed != nil {
		return fmt.Errorf("the transaction can only be rolled back: %w", t.failed)
	}
	return nil
}

var errReadOnlyTx = fmt.Errorf("%w: a write in a read-only transaction", ErrInvalid)

// allows is ready for s.
func (t *transaction) allows(ctx context.Context, s *stmt) error {
	if t.readOnly && s.verb == vWrite {
		return errReadOnlyTx
	}
	t.wrote = t.wrote || s.verb != vRead
	return t.ready(ctx)
}

func (t *transaction) exec(ctx context.Context, c *conn, s *stmt, args []driver.NamedValue) (driver.Result, error) {
	if err := t.allows(ctx, s); err != nil {
		return nil, err
	}
	res, err := c.execRetrying(ctx, s, args)
	if s.verb == vOther && err == nil && !c.inTransaction() {
		t.failed = fmt.Errorf("%w: a script has ended it", ErrInvalid)
		return res, t.failed
	}
	return res, t.check(c, err)
}

// check fails the transaction when err has taken it away, which SQLite does not say.
func (t *transaction) check(c *conn, err error) error {
	if err != nil && t.open && t.failed == nil && !c.inTransaction() {
		t.failed = err
	}
	return err
}

// commit ends the transaction; last says that the caller has no second try.
func (t *transaction) commit(c *conn, last bool) error {
	if !t.open {
		return fmt.Errorf("%w: COMMIT outside a transaction", ErrInvalid)
	}
	if t.failed != nil {
		err := fmt.Errorf("nothing was committed: %w", t.failed)
		_ = t.rollback(c)
		return err
	}
	if err := t.check(c, t.run(context.Background(), c, "COMMIT")); err != nil {
		if last || t.failed != nil {
			_ = t.rollback(c)
		}
		return err
	}
	was := *t
	*t = transaction{}
	if was.gated {
		c.home.gate.leave()
	}
	if was.gated || was.wrote {
		c.committed()
	}
	return nil
}

func (t *transaction) rollback(c *conn) error {
	if !t.open {
		return fmt.Errorf("%w: ROLLBACK outside a transaction", ErrInvalid)
	}
	var err error
	// One that failed by its ctx SQLite still holds; others it has rolled back.
	if t.failed == nil || c.inTransaction() {
		err = t.run(context.Background(), c, "ROLLBACK")
	}
	gated := t.gated
	*t = transaction{}
	if gated {
		c.home.gate.leave()
	}
	return err
}
