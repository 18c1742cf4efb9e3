package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
)

// nested is a connection as the functions that it calls see it: its statements, without
// a gate or a transaction around them, since those are around the caller.
type nested struct{ c *conn }

// querier is nested behind database/sql, which alone can make a *sql.Rows. It is one
// per depth: a statement of a function may fire a trigger that calls another one, and a
// *sql.Conn is locked while it runs.
func (c *conn) querier() (Querier, error) {
	for c.depth >= len(c.queriers) {
		pool := sql.OpenDB(nested{c})
		q, err := pool.Conn(context.Background())
		// The pool has a goroutine, which ends here; a connection that is out stays good.
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
func (n nested) Connect(context.Context) (driver.Conn, error) { return n, nil }

// Driver implements driver.Connector.
func (n nested) Driver() driver.Driver { return wrappedDriver{} }

// ExecContext implements driver.ExecerContext.
func (n nested) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	s, err := n.c.statement(query)
	if err != nil {
		return nil, err
	}
	defer n.c.done(s)
	return n.c.execRetrying(ctx, s, args)
}

// QueryContext implements driver.QueryerContext.
func (n nested) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	s, err := n.c.statement(query)
	if err != nil {
		return nil, err
	}
	r, err := n.c.start(ctx, s, args)
	if err != nil {
		n.c.done(s)
		return nil, err
	}
	return nestedRows{r}, nil
}

// nestedRows end nothing but their statement.
type nestedRows struct{ *rows }

func (r nestedRows) Close() error {
	s := r.stmt
	err := r.end()
	s.conn.done(s)
	return err
}

var errNested = fmt.Errorf("%w: a SQL function runs plain statements", ErrInvalid)

// Prepare implements driver.Conn.
func (n nested) Prepare(string) (driver.Stmt, error) { return nil, errNested }

// Begin implements driver.Conn.
func (n nested) Begin() (driver.Tx, error) { return nil, errNested }

// Close implements driver.Conn. The connection belongs to another pool.
func (n nested) Close() error { return nil }
