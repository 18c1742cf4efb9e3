package honker

import (
	"context"
	"database/sql"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/wake"
)

// Tx is what every XTx accepts: *sql.Tx, *sql.Conn, and the transactions of sqlx and GORM;
// of bun, the *sql.Tx inside its own. It must belong to the DB's file, which is checked, and
// hold a transaction that has begun to write (see [DB.SQL]). A pool has the same methods,
// and is ErrInvalid on honker's own connections.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Tx runs fn in a write transaction: committed when fn returns nil, rolled back when
// it returns an error, which Tx then returns, or panics. It waits for the writer until
// ctx ends or BusyTimeout has passed ([ErrBusy]).
//
// Other writers of all processes wait while fn runs: no network and no waiting inside. A
// transaction that has held the writer for longer than a second is logged when it ends, and
// once while it runs if others of this process wait. Use
// the Tx form of honker's verbs there; the plain form is [ErrInTx] under fn's ctx. Reads,
// such as [Queue.Get], run in the transaction under fn's ctx, and see what it has written.
// fn must not commit or roll back tx itself.
func (db *DB) Tx(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	return db.engine.Tx(ctx, fn)
}

// join checks that tx can carry a write of this DB, and returns what to run that on.
// The waiters of changes are woken by its commit.
func (db *DB) join(ctx context.Context, tx Tx, changes ...wake.Change) (engine.Querier, error) {
	return db.engine.Join(ctx, tx, changes...)
}
