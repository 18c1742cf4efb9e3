package honker

import (
	"context"
	"database/sql"
	"time"

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

// carrier is the transaction that a write runs in.
type carrier struct {
	tx     Tx     // the caller's
	txForm string // the Tx form of the verb, if the write has a transaction of its own
}

// alone is a transaction of the write's own. txForm is the form of the verb for the caller's.
func alone(txForm string) carrier { return carrier{txForm: txForm} }

// within is the caller's transaction. A nil tx is ErrInvalid where it is used.
func within(tx Tx) carrier { return carrier{tx: tx} }

// isOwn tells whether the transaction is the write's own.
func (c carrier) isOwn() bool { return c.txForm != "" }

// write runs op in the transaction of c. It calls committed after the commit; where the commit cannot be
// seen, as on an attached pool outside of [DB.Tx], when op has returned.
func (db *DB) write(ctx context.Context, c carrier, op engine.OpFunc, committed func()) error {
	if c.isOwn() {
		if err := db.engine.Write(ctx, c.txForm, op); err != nil {
			return err
		}
		committed()
		return nil
	}
	succeeded := false // an op that fails may leave a transaction that is committed all the same
	on, seen, err := db.engine.JoinThen(ctx, c.tx, func() {
		if succeeded {
			committed()
		}
	})
	if err != nil {
		return err
	}
	if err := op(ctx, on, time.Now()); err != nil {
		return err
	}
	succeeded = true
	if !seen {
		committed()
	}
	return nil
}

// noted is for a write of which no waiter and no observer needs to know.
func noted() {}

// join checks that tx can carry a write of this DB, and returns what to run that on.
// The waiters of changes are woken by its commit.
func (db *DB) join(ctx context.Context, tx Tx, changes ...wake.Change) (engine.Querier, error) {
	return db.engine.Join(ctx, tx, changes...)
}
