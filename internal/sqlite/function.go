package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
)

// Function is a SQL function that runs statements on the connection that calls it.
// Two of a name differ in Args.
type Function struct {
	Name   string
	Args   int
	Effect Effect
	Run    func(ctx context.Context, q Querier, now time.Time, args []driver.Value) (driver.Value, error)
}

// Effect is what a function does to the file.
type Effect int

const (
	Pure       Effect = iota // nothing, and looks at nothing: equal arguments, equal result
	Reads                    // looks
	WritesOnce               // changes it by one statement, which SQLite undoes by itself
	Writes                   // changes it by several, of which none stays when one fails
)

func (f *Function) writes() bool { return f.Effect >= WritesOnce }

// writers matches a statement that calls one of the functions that write. What hides
// the call, such as a view, or only looks like one, costs speed and nothing else.
func writers(all []Function) *regexp.Regexp {
	names := []string{}
	for _, f := range all {
		if f.writes() {
			names = append(names, regexp.QuoteMeta(f.Name))
		}
	}
	if len(names) == 0 {
		return nil
	}
	return regexp.MustCompile(`(?i)\b(?:` + strings.Join(names, "|") + `)["\]` + "`" + `]?\s*\(`)
}

// call runs f in the middle of a statement of c. SQLite makes a text of its error; the
// error itself waits in cause for the end of that statement.
func (c *conn) call(f *Function, args []driver.Value) (driver.Value, error) {
	v, err := c.run(f, args)
	if err != nil {
		c.cause = fmt.Errorf("%s: %w", f.Name, err)
		return nil, c.cause
	}
	return v, nil
}

func (c *conn) run(f *Function, args []driver.Value) (driver.Value, error) {
	if f.writes() && c.tx.readOnly {
		return nil, errReadOnlyTx
	}
	c.tx.wrote = c.tx.wrote || f.writes()
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

const (
	savepoint  = "SAVEPOINT honker_call"
	rollbackTo = "ROLLBACK TO honker_call"
	release    = "RELEASE honker_call"
)

// runWhole runs f so that nothing of it stays when it fails. Inside of a statement that
// writes SQLite opens no savepoint; so a transaction in which f fails there has failed.
func (c *conn) runWhole(f *Function, q Querier, args []driver.Value) (driver.Value, error) {
	marked := c.word(savepoint)
	if marked != nil && !IsBusy(marked) {
		return nil, marked
	}
	v, err := f.safely(q, args)
	switch {
	case marked != nil && err != nil && c.tx.open && c.tx.failed == nil:
		c.tx.failed = err
	case marked != nil:
	case err == nil:
		err = c.word(release)
	default:
		err = errors.Join(err, c.word(rollbackTo), c.word(release))
	}
	return v, err
}

// word runs a statement without arguments, once.
func (c *conn) word(query string) error {
	s, err := c.statement(query)
	if err != nil {
		return err
	}
	defer c.done(s)
	_, err = s.rawStmt.ExecContext(context.Background(), nil)
	return err
}

// safely makes an error of a panic, which must not travel through SQLite.
func (f *Function) safely(q Querier, args []driver.Value) (v driver.Value, err error) {
	defer func() { caught(recover(), &err) }()
	return f.Run(context.Background(), q, time.Now(), args)
}

// because gives a statement's error the cause that a function had, whose text it has.
func (c *conn) because(err error) error {
	cause := c.cause
	c.cause = nil
	if err == nil || cause == nil {
		return err
	}
	return &callError{err, cause}
}

type callError struct{ err, cause error }

func (e *callError) Error() string   { return e.err.Error() }
func (e *callError) Unwrap() []error { return []error{e.cause, e.err} }

// execWriter runs s, which calls a function that writes, as a transaction of its own.
// Its own words would read first, and could not write when somebody has written since.
func (c *conn) execWriter(ctx context.Context, s *stmt, args []driver.NamedValue) (driver.Result, error) {
	if err := c.tx.begin(ctx, c, true); err != nil {
		return nil, err
	}
	res, err := c.tx.exec(ctx, c, s, args)
	return res, c.end(err)
}

// queryWriter is execWriter for its rows. They are handed out when they are committed:
// nobody holds up the other writers by reading slowly.
func (c *conn) queryWriter(ctx context.Context, s *stmt, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.tx.begin(ctx, c, true); err != nil {
		return nil, err
	}
	all, err := c.keep(ctx, s, args)
	if err := c.end(err); err != nil {
		return nil, err
	}
	c.done(s)
	return all, nil
}

func (c *conn) end(err error) error {
	if err != nil {
		_ = c.tx.rollback(c)
		return err
	}
	return c.tx.commit(c, true)
}

// kept are rows that were read to their end.
type kept struct {
	columns, types []string
	rows           [][]driver.Value
}

func (c *conn) keep(ctx context.Context, s *stmt, args []driver.NamedValue) (*kept, error) {
	r, err := c.start(ctx, s, args)
	if err != nil {
		return nil, err
	}
	all := &kept{columns: r.Columns()}
	for i := range all.columns {
		all.types = append(all.types, r.ColumnTypeDatabaseTypeName(i))
	}
	for err == nil {
		row := make([]driver.Value, len(all.columns))
		if err = r.Next(row); err == nil {
			all.rows = append(all.rows, row)
			err = c.tx.ready(ctx)
		}
	}
	if err == io.EOF {
		err = nil
	}
	return all, errors.Join(err, r.end())
}

// Columns implements driver.Rows.
func (k *kept) Columns() []string { return k.columns }

// ColumnTypeDatabaseTypeName implements driver.RowsColumnTypeDatabaseTypeName.
func (k *kept) ColumnTypeDatabaseTypeName(i int) string { return k.types[i] }

// Next implements driver.Rows.
func (k *kept) Next(dest []driver.Value) error {
	if len(k.rows) == 0 {
		return io.EOF
	}
	copy(dest, k.rows[0])
	k.rows = k.rows[1:]
	return nil
}

// Close implements driver.Rows.
func (k *kept) Close() error { return nil }
