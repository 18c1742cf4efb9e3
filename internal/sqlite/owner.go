package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
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

// probe asks a connection which file it belongs to. One of ours knows it by its prefix and
// answers in the ctx, without running anything; to any other it is a SELECT without rows.
// It carries a numbered parameter, as the store's statements do, so that a wrapper that
// rewrites them gives itself away: the text arrives changed, or the argument is missing.
const (
	probePrefix = "-- honker: which file is this?\n"
	probe       = probePrefix + "SELECT ?1 WHERE 0"
	probeArg    = "honker"
)

// owner is a connection's answer, and what it is to do at its next commit.
type owner struct {
	connector *Connector
	open      bool // a transaction is
	committed map[any]func()
}

type ownerKey struct{}

var errRewritten = fmt.Errorf("%w: the transaction rewrites numbered parameters (?1) before SQLite sees them: "+
	"hand over the *sql.Tx that it wraps", ErrInvalid)

// answerProbe answers for a connection of ours. A lost transaction says so here, before
// anything is tried in it.
func (c *conn) answerProbe(ctx context.Context, s *stmt, args []driver.NamedValue) error {
	if s.text != probe || len(args) != 1 || args[0].Value != probeArg {
		return errRewritten
	}
	if o, ok := ctx.Value(ownerKey{}).(*owner); ok {
		o.connector, o.open = c.connector, c.tx.open
		c.tx.onCommit(o.committed)
	}
	return c.tx.ready(ctx)
}

// CheckOwner refuses a transaction that cannot carry a write to info's file: one that
// belongs to another file, where no worker would find the job, and one that changes
// numbered parameters. One of our own connections calls committed after the commit of the
// transaction, each key once; seen is false for any other.
func CheckOwner(ctx context.Context, q Querier, info os.FileInfo, committed map[any]func()) (seen bool, err error) {
	o := owner{committed: committed}
	if _, err := q.ExecContext(context.WithValue(ctx, ownerKey{}, &o), probe, probeArg); err != nil {
		return false, explainProbe(ctx, q, err)
	}
	if o.connector != nil {
		return true, errors.Join(sameFile(o.connector.Identity().Info(), info), isOpen(o.open))
	}
	path, err := MainFile(ctx, q)
	if err != nil {
		return false, err
	}
	if err := checkParameters(ctx, q); err != nil {
		return false, err
	}
	other, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	return false, sameFile(other, info)
}

// explainProbe tells a foreign transaction that rewrites the probe from one that is broken:
// a statement without parameters succeeds in the first.
func explainProbe(ctx context.Context, q Querier, err error) error {
	if errors.Is(err, ErrInvalid) {
		return err
	}
	if _, other := MainFile(ctx, q); other != nil {
		return err
	}
	return fmt.Errorf("%w (%w)", errRewritten, err)
}

// checkParameters has two numbered parameters come back. A wrapper that writes arguments
// into the text by rules of its own (bun counts from 0) mixes them up or loses one, and a
// job would be stored under another's queue.
func checkParameters(ctx context.Context, q Querier) error {
	const first, second = int64(1), int64(2)
	var a, b int64
	rows, err := q.QueryContext(ctx, "SELECT ?2, ?1", first, second)
	if err != nil {
		return explainProbe(ctx, q, err)
	}
	defer rows.Close()
	if !rows.Next() {
		return errors.Join(rows.Err(), sql.ErrNoRows)
	}
	if err := rows.Scan(&a, &b); err != nil {
		return fmt.Errorf("%w (%w)", errRewritten, err)
	}
	if a != second || b != first {
		return errRewritten
	}
	return rows.Close()
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
