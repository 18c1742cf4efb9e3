package sqlite

import (
	"context"
	"database/sql"
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
const whose = "-- honker: whose connection is this?"

type question struct{ home *Connector }

type questionKey struct{}

func (c *conn) answer(ctx context.Context) error {
	if q, ok := ctx.Value(questionKey{}).(*question); ok {
		q.home = c.home
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
		return sameFile(asked.home.identity, info)
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
