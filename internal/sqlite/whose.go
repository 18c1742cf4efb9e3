package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
)

// Querier is what a statement runs on: *sql.Tx, *sql.Conn, *sql.DB, or the
// transaction of an ORM.
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// whose is a comment to SQLite, so a foreign connection lets it pass. Ours answers
// in the ctx which file it belongs to, without running anything.
const whose = "-- honker: say whose connection this is"

type question struct {
	home *Connector
	open bool // a transaction is
}

type questionKey struct{}

func (c *conn) answer(ctx context.Context) error {
	if q, ok := ctx.Value(questionKey{}).(*question); ok {
		q.home, q.open = c.home, c.tx.open
	}
	return c.tx.ready(ctx)
}

// CheckOwner refuses a transaction that writes to another file than info's: the
// job would be committed where nobody looks for it.
func CheckOwner(ctx context.Context, q Querier, info os.FileInfo) error {
	var asked question
	if _, err := q.ExecContext(context.WithValue(ctx, questionKey{}, &asked), whose); err != nil {
		return err
	}
	if asked.home != nil {
		return errors.Join(sameFile(asked.home.identity, info), isOpen(asked.open))
	}
	path, err := MainFile(ctx, q)
	if err != nil {
		return err
	}
	other, err := os.Stat(path)
	if err != nil {
		return err
	}
	return sameFile(other, info)
}

// isOpen refuses what commits by itself, such as a pool: what was written would survive
// the rollback that it was to share.
func isOpen(open bool) error {
	if !open {
		return fmt.Errorf("%w: no transaction is open: hand over the transaction, not the pool", ErrInvalid)
	}
	return nil
}

func sameFile(a, b os.FileInfo) error {
	if !os.SameFile(a, b) {
		return fmt.Errorf("%w: the transaction belongs to another file (%s)", ErrInvalid, a.Name())
	}
	return nil
}

// MainFile returns the path of the file that q's connection writes to.
func MainFile(ctx context.Context, q Querier) (path string, err error) {
	rows, err := q.QueryContext(ctx, "PRAGMA database_list")
	if err != nil {
		return "", err
	}
	defer rows.Close()
	for rows.Next() {
		var seq int
		var name string
		var file sql.NullString
		if err := rows.Scan(&seq, &name, &file); err != nil {
			return "", err
		}
		if name == "main" {
			path = file.String
		}
	}
	if err := rows.Err(); err != nil {
		return "", err
	}
	if path == "" {
		return "", fmt.Errorf("%w: an in-memory database cannot be shared or woken; use a file", ErrUnsupported)
	}
	return path, nil
}
