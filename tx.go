package honker

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/wake"
	"github.com/honker-go/honker/observe"
)

// Tx is the type of transaction accepted by the Tx forms of the verbs: *sql.Tx, *sql.Conn, and the transactions of
// sqlx and GORM. With bun, pass the *sql.Tx that its transaction contains. A Tx must belong to the DB's file, which
// is checked, and must hold a transaction that has begun to write (see [DB.SQL]). A *sql.DB has the same methods, but
// is rejected with ErrInvalid if its connections are honker's own.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Tx runs fn in a write transaction. It commits if fn returns nil. It rolls back if fn panics or returns an
// error, and returns that error. Tx waits for the writer until ctx ends or BusyTimeout has passed ([ErrBusy]).
//
// All other writers in all processes wait while fn runs, so fn should not use the network and should not block.
// A transaction that has held the writer for more than a second is logged when it ends. It is also logged once
// while it runs if other writers of this process are waiting.
//
// Within fn, use the Tx forms of honker's verbs. The plain forms return [ErrInTx] under the ctx of fn. Reads
// such as [Queue.Get] run in the transaction under the ctx of fn and see its writes. fn must not commit or roll
// back tx itself.
func (db *DB) Tx(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	return db.engine.Tx(ctx, fn)
}

// carrier describes the transaction in which a write runs.
type carrier struct {
	tx     Tx     // the caller's transaction
	txForm string // the Tx form of the verb, set if the write uses its own transaction
}

// alone returns the carrier for a write that uses its own transaction. txForm names the verb to use in a caller's
// transaction.
func alone(txForm string) carrier { return carrier{txForm: txForm} }

// within returns the carrier for a write in the caller's transaction. A nil tx is reported as ErrInvalid when the
// carrier is used.
func within(tx Tx) carrier { return carrier{tx: tx} }

// isOwn reports whether the write uses its own transaction.
func (c carrier) isOwn() bool { return c.txForm != "" }

// write runs op in the transaction of c, calls committed after the commit, and wakes the waiters for changes. If the
// commit cannot be observed, as on an attached pool outside [DB.Tx], it calls committed once op has returned.
func (db *DB) write(ctx context.Context, c carrier, op engine.OpFunc, committed func(), changes ...wake.Change) error {
	if c.isOwn() {
		if err := db.engine.Write(ctx, c.txForm, op); err != nil {
			return err
		}
		db.engine.Notifier.Wake(changes...)
		committed()
		return nil
	}
	succeeded := false // the caller may commit a transaction even though op failed
	on, seen, err := db.engine.JoinThen(ctx, c.tx, func() {
		if succeeded {
			committed()
		}
	}, changes...)
	if err != nil {
		return err
	}
	if err := op(ctx, on, db.engine.Now()); err != nil {
		return err
	}
	succeeded = true
	if !seen {
		committed()
	}
	return nil
}

// wakeAfter wakes the waiters for a change that is known only after the write in c, once c is committed.
func (db *DB) wakeAfter(ctx context.Context, c carrier, change wake.Change) (err error) {
	if c.isOwn() {
		db.engine.Notifier.Wake(change)
	} else {
		_, err = db.join(ctx, c.tx, change)
	}
	return err
}

// noted is the committed function for a write that does not affect the observer.
func noted() {}

// join checks that tx can carry a write of this DB, and returns the Querier on which to run the write.
// Committing tx wakes goroutines that wait for changes.
func (db *DB) join(ctx context.Context, tx Tx, changes ...wake.Change) (engine.Querier, error) {
	return db.engine.Join(ctx, tx, changes...)
}

// txEnded returns the function to call after each transaction that held the writer, or nil if o does not observe
// them.
func txEnded(o *observe.Observer) func(wait, ran time.Duration, committed bool) {
	if o.Tx == nil {
		return nil
	}
	return func(wait, ran time.Duration, committed bool) {
		o.Tx(observe.TxEnded{Wait: wait, Ran: ran, Committed: committed})
	}
}
