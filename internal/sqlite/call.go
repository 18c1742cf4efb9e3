package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// errHiddenCall stops a read statement in which a function is about to write, even though no such call is visible in
// the statement's text, for example because it is in a view. Outside a transaction, SQLite would have to upgrade the
// read snapshot to a write, which fails with BUSY_SNAPSHOT if another writer has committed since. Nothing has been
// written yet, so conn runs the statement again as a writer, unless the caller has received rows from it.
var errHiddenCall = fmt.Errorf("%w: a function that writes is called after the first row, for example by a view: "+
	"call the function in the statement itself, or begin a transaction first", engine.ErrInvalid)

// call runs f as part of a statement on c. SQLite keeps only the error's text, so the error itself
// is saved in cause until the statement ends.
func (c *conn) call(f *Function, args []driver.Value) (driver.Value, error) {
	v, err := c.run(f, args)
	if err != nil {
		c.cause = fmt.Errorf("%s: %w", f.Name, err)
		return nil, c.cause
	}
	return v, nil
}

func (c *conn) run(f *Function, args []driver.Value) (driver.Value, error) {
	if f.writes() {
		if err := c.mayCallWriter(); err != nil {
			return nil, err
		}
	}
	q, err := c.querier()
	if err != nil {
		return nil, err
	}
	c.depth++
	defer func() { c.depth-- }()
	if f.Effect == Writes {
		return c.runWhole(f, q, args)
	}
	return f.safely(q, args)
}

// mayCallWriter returns an error if the current statement cannot contain a call that writes.
func (c *conn) mayCallWriter() error {
	switch {
	case c.tx.readOnly:
		return errReadOnlyTx
	case c.tx.open:
		c.tx.wrote = true
	case c.current == nil || c.current.verb == vRead: // SQLite begins such a statement with a read snapshot
		return errHiddenCall
	}
	return nil
}

const (
	savepoint  = "SAVEPOINT honker_call"
	rollbackTo = "ROLLBACK TO honker_call"
	release    = "RELEASE honker_call"
)

// runWhole runs f in a savepoint and undoes all of its changes if it fails.
func (c *conn) runWhole(f *Function, q row.Querier, args []driver.Value) (driver.Value, error) {
	if err := c.execRaw(savepoint); err != nil {
		if !IsBusy(err) {
			return nil, err
		}
		// SQLite can't open a savepoint during a write statement, and returns SQLITE_BUSY.
		return c.runInsideWrite(f, q, args)
	}
	v, err := f.safely(q, args)
	if err != nil {
		return v, errors.Join(err, c.execRaw(rollbackTo), c.execRaw(release))
	}
	return v, c.execRaw(release)
}

// runInsideWrite runs f without a savepoint. Outside a transaction SQLite undoes its changes
// together with the surrounding statement. Inside a transaction a failed f could leave changes
// behind, so the transaction is marked as failed.
func (c *conn) runInsideWrite(f *Function, q row.Querier, args []driver.Value) (driver.Value, error) {
	v, err := f.safely(q, args)
	if err != nil && c.tx.open && c.tx.failed == nil {
		c.tx.failed = err
	}
	return v, err
}

// execRaw runs a statement without arguments and without retries, since the surrounding statement
// already holds the lock.
func (c *conn) execRaw(query string) error {
	s, err := c.statement(context.Background(), query)
	if err != nil {
		return err
	}
	defer c.done(s)
	_, err = s.rawStmt.ExecContext(context.Background(), nil)
	return err
}

// wrapCause adds a failed function's error to its statement's error, which contains only the text.
// It replaces the error of a rejected commit, since SQLite's own error is meaningless in that case.
func (c *conn) wrapCause(err error) error {
	cause, refused := c.cause, c.refused
	c.cause, c.refused = nil, nil
	switch {
	case err == nil:
		return nil
	case refused != nil:
		return refused
	case cause == nil:
		return err
	}
	return &callError{err, cause}
}

type callError struct{ err, cause error }

func (e *callError) Error() string   { return e.err.Error() }
func (e *callError) Unwrap() []error { return []error{e.cause, e.err} }

// execWriter runs s, which calls a function that writes, in its own transaction. Without the
// transaction, s could begin with a read snapshot, and would fail to write if another writer has
// committed since.
func (c *conn) execWriter(ctx context.Context, s *stmt, args []driver.NamedValue) (driver.Result, error) {
	if err := c.tx.begin(ctx, c, true); err != nil {
		return nil, err
	}
	res, err := c.tx.exec(ctx, c, s, args)
	return res, c.end(err)
}

// queryWriter is like execWriter, for statements that return rows, including INSERT … RETURNING.
// The rows are returned after the commit, so that a slow reader does not block other writers.
func (c *conn) queryWriter(ctx context.Context, s *stmt, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.tx.begin(ctx, c, true); err != nil {
		return nil, err
	}
	all, err := c.readAll(ctx, s, args)
	if err := c.end(err); err != nil {
		return nil, err
	}
	c.done(s)
	return all, nil
}

// end commits if err is nil, and rolls back otherwise.
func (c *conn) end(err error) error {
	if err != nil {
		_ = c.tx.rollback(c)
		return err
	}
	return c.tx.commit(c, true)
}

// bufferedRows are rows that were read completely.
type bufferedRows struct {
	columns, types []string
	rows           [][]driver.Value
}

// readAll runs s and reads all of its rows.
func (c *conn) readAll(ctx context.Context, s *stmt, args []driver.NamedValue) (*bufferedRows, error) {
	r, err := c.start(ctx, s, args)
	if err != nil {
		return nil, err
	}
	all := &bufferedRows{columns: r.Columns()}
	for i := range all.columns {
		all.types = append(all.types, r.ColumnTypeDatabaseTypeName(i))
	}
	for {
		row := make([]driver.Value, len(all.columns))
		err := r.Next(row)
		if err == io.EOF {
			return all, r.end()
		}
		if err != nil {
			return nil, errors.Join(err, r.end())
		}
		all.rows = append(all.rows, row)
		if err := c.tx.ready(ctx); err != nil {
			return nil, errors.Join(err, r.end())
		}
	}
}

// Columns implements driver.Rows.
func (b *bufferedRows) Columns() []string { return b.columns }

// ColumnTypeDatabaseTypeName implements driver.RowsColumnTypeDatabaseTypeName.
func (b *bufferedRows) ColumnTypeDatabaseTypeName(i int) string { return b.types[i] }

// Next implements driver.Rows.
func (b *bufferedRows) Next(dest []driver.Value) error {
	if len(b.rows) == 0 {
		return io.EOF
	}
	copy(dest, b.rows[0])
	b.rows = b.rows[1:]
	return nil
}

// Close implements driver.Rows.
func (b *bufferedRows) Close() error { return nil }

// innerConn is the connection as seen by the functions it calls. Its statements use neither the
// gate nor a transaction, because both belong to the caller.
type innerConn struct{ c *conn }

// querier returns innerConn wrapped by database/sql, which is the only way to get a *sql.Rows. There is a querier for
// each call depth: a function's statement may fire a trigger that calls another function, and database/sql locks a
// *sql.Conn while a statement runs.
func (c *conn) querier() (row.Querier, error) {
	for c.depth >= len(c.queriers) {
		pool := sql.OpenDB(innerConn{c})
		q, err := pool.Conn(context.Background())
		// Closing the pool ends its goroutine. A connection in use stays valid.
		_ = pool.Close()
		if err != nil {
			return nil, err
		}
		c.queriers = append(c.queriers, q)
	}
	return c.queriers[c.depth], nil
}

func (c *conn) closeQueriers() {
	for _, q := range c.queriers {
		_ = q.Close()
	}
	c.queriers = nil
}

// Connect implements driver.Connector.
func (i innerConn) Connect(context.Context) (driver.Conn, error) { return i, nil }

// Driver implements driver.Connector.
func (i innerConn) Driver() driver.Driver { return wrappedDriver{i.c.connector} }

// ExecContext implements driver.ExecerContext.
func (i innerConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	s, err := i.c.statement(ctx, query)
	if err != nil {
		return nil, err
	}
	defer i.c.done(s)
	return i.c.execRetrying(ctx, s, args)
}

// QueryContext implements driver.QueryerContext.
func (i innerConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	s, err := i.c.statement(ctx, query)
	if err != nil {
		return nil, err
	}
	r, err := i.c.start(ctx, s, args)
	if err != nil {
		i.c.done(s)
		return nil, err
	}
	return innerRows{r}, nil
}

// innerRows closes only its own statement.
type innerRows struct{ *rows }

func (r innerRows) Close() error {
	s := r.stmt
	err := r.end()
	s.conn.done(s)
	return err
}

var errInner = fmt.Errorf("%w: a SQL function can only run plain statements", engine.ErrInvalid)

// Prepare implements driver.Conn.
func (i innerConn) Prepare(string) (driver.Stmt, error) { return nil, errInner }

// Begin implements driver.Conn.
func (i innerConn) Begin() (driver.Tx, error) { return nil, errInner }

// Close implements driver.Conn. It does nothing, since the connection belongs to another pool.
func (i innerConn) Close() error { return nil }
