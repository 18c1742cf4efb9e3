package pgbackend

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/honker-go/honker/internal/row"
)

// Native returns a Querier for a transaction of pgx. It ends with the transaction.
func Native(tx pgx.Tx) row.Querier { return native{tx} }

// native runs statements on a transaction of pgx. Only database/sql can make a *sql.Rows, so each query has a pool of
// its own with a single connection, which is closed with its rows.
type native struct{ tx pgx.Tx }

// open reports whether a transaction is open, as the server has told with its last answer. It must follow a statement of the
// transaction, whose connection may belong to somebody else after its end.
func (n native) open() bool {
	conn := n.tx.Conn()
	return conn == nil || conn.PgConn().TxStatus() != 'I'
}

// ExecContext implements row.Querier.
func (n native) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	done, err := n.tx.Exec(ctx, query, args...)
	if err != nil {
		return nil, ended(err)
	}
	return driver.RowsAffected(done.RowsAffected()), nil
}

// QueryContext implements row.Querier.
func (n native) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	found, err := n.tx.Query(ctx, query, append([]any{formats}, args...)...)
	if err != nil {
		return nil, ended(err)
	}
	c := &oneQuery{rows: found}
	c.pool = sql.OpenDB(c)
	out, err := c.pool.QueryContext(ctx, query)
	if err != nil {
		found.Close()
		return nil, errors.Join(ended(err), c.pool.Close())
	}
	return out, nil
}

// ended returns database/sql's error for a transaction that has ended.
func ended(err error) error {
	if errors.Is(err, pgx.ErrTxClosed) {
		return errors.Join(sql.ErrTxDone, err)
	}
	return err
}

// formats asks for values of the types that database/sql knows in binary. The others come as text.
var formats = pgx.QueryResultFormatsByOID{
	pgtype.BoolOID: pgx.BinaryFormatCode, pgtype.ByteaOID: pgx.BinaryFormatCode, pgtype.Float8OID: pgx.BinaryFormatCode,
	pgtype.Int2OID: pgx.BinaryFormatCode, pgtype.Int4OID: pgx.BinaryFormatCode, pgtype.Int8OID: pgx.BinaryFormatCode,
	pgtype.TimestamptzOID: pgx.BinaryFormatCode,
}

// oneQuery is the connector, the connection and the rows of a query that has run already.
type oneQuery struct {
	rows pgx.Rows
	pool *sql.DB
}

// Connect implements driver.Connector.
func (c *oneQuery) Connect(context.Context) (driver.Conn, error) { return c, nil }

// Driver implements driver.Connector.
func (c *oneQuery) Driver() driver.Driver { return c }

// Open implements driver.Driver.
func (c *oneQuery) Open(string) (driver.Conn, error) { return c, nil }

// QueryContext implements driver.QueryerContext.
func (c *oneQuery) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	return (*queryRows)(c), nil
}

var errOneQuery = errors.New("the connection belongs to a single query")

// Prepare implements driver.Conn.
func (c *oneQuery) Prepare(string) (driver.Stmt, error) { return nil, errOneQuery }

// Begin implements driver.Conn.
func (c *oneQuery) Begin() (driver.Tx, error) { return nil, errOneQuery }

// Close implements driver.Conn.
func (c *oneQuery) Close() error { return nil }

// queryRows are the rows of a query.
type queryRows oneQuery

// Columns implements driver.Rows.
func (r *queryRows) Columns() []string {
	fields := r.rows.FieldDescriptions()
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
	}
	return names
}

// Close implements driver.Rows.
func (r *queryRows) Close() error {
	r.rows.Close()
	return r.pool.Close()
}

// Next implements driver.Rows.
func (r *queryRows) Next(dest []driver.Value) error {
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return io.EOF
	}
	values, err := r.rows.Values()
	if err != nil {
		return err
	}
	raw := r.rows.RawValues()
	for i, f := range r.rows.FieldDescriptions() {
		dest[i] = driverValue(values[i], raw[i], f.Format)
	}
	return nil
}

// driverValue converts a value to a type that database/sql knows.
func driverValue(v any, raw []byte, format int16) driver.Value {
	switch v := v.(type) {
	case nil, bool, []byte, float64, int64, time.Time:
		return v
	case int16:
		return int64(v)
	case int32:
		return int64(v)
	}
	if format == pgx.TextFormatCode {
		return string(raw)
	}
	return v
}
