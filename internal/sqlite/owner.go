package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// probe asks a connection which file it belongs to. Our connections recognize it by its prefix and answer through the
// ctx without running anything. On any other connection it is a SELECT that returns no rows. It has a numbered
// parameter, like the store's statements. A wrapper that rewrites parameters is detected by the changed text or a
// missing argument.
const (
	probePrefix = "-- honker: which file is this?\n"
	probe       = probePrefix + "SELECT ?1 WHERE 0"
	probeArg    = "honker"
)

// owner is a connection's answer, and the calls it must make after its next commit.
type owner struct {
	connector *Connector
	open      bool // whether a transaction is open
	committed map[any]func()
}

type ownerKey struct{}

var errRewritten = fmt.Errorf("%w: the transaction rewrites numbered parameters (?1) before SQLite sees them: "+
	"pass the *sql.Tx that it wraps", engine.ErrInvalid)

// answerProbe answers the probe on our connections. It reports that a transaction was lost before anything else is
// attempted in it.
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

// CheckOwner returns an error if a transaction cannot be used to write to info's file: if it
// belongs to another file, where no worker would find the job, or if it rewrites numbered
// parameters. If the connection is ours, seen is true, and the connection calls the functions in
// committed after the transaction has committed, once per key.
func CheckOwner(ctx context.Context, q row.Querier, info os.FileInfo, committed map[any]func()) (seen bool, err error) {
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

// explainProbe distinguishes a foreign transaction that rewrites the probe from a broken transaction. In the former,
// a statement without parameters succeeds.
func explainProbe(ctx context.Context, q row.Querier, err error) error {
	if errors.Is(err, engine.ErrInvalid) {
		return err
	}
	if _, other := MainFile(ctx, q); other != nil {
		return err
	}
	return fmt.Errorf("%w (%w)", errRewritten, err)
}

// checkParameters checks that two numbered parameters arrive correctly. A wrapper that substitutes arguments by its
// own rules (bun counts from 0) mixes them up or loses some, and a job would end up in the wrong queue.
func checkParameters(ctx context.Context, q row.Querier) error {
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

// isOpen rejects a Querier that commits each statement by itself, such as a pool. Its write would
// survive a rollback of the caller's transaction.
func isOpen(open bool) error {
	if !open {
		return fmt.Errorf("%w: no transaction is open: pass the transaction, not the pool", engine.ErrInvalid)
	}
	return nil
}

func sameFile(a, b os.FileInfo) error {
	if !os.SameFile(a, b) {
		return fmt.Errorf("%w: the transaction belongs to another file (%s)", engine.ErrInvalid, a.Name())
	}
	return nil
}

// MainFile returns the path of the file that q's connection writes to.
func MainFile(ctx context.Context, q row.Querier) (path string, err error) {
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
		return "", fmt.Errorf("%w: an in-memory database cannot be shared or watched; use a file", engine.ErrUnsupported)
	}
	return path, nil
}
