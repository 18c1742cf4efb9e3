package honker

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/honker-go/honker/internal/sqlite"
	"github.com/honker-go/honker/internal/store"
)

// Tx is what every XTx accepts: *sql.Tx, *sql.Conn, and the transactions of sqlx,
// GORM. It must belong to the DB's file, which is checked, and hold a transaction that
// has begun to write (see [DB.SQL]). A pool has the same methods, and is ErrInvalid where
// honker's own connections are asked. So is what rewrites numbered parameters, as bun's
// transaction does: hand over the *sql.Tx that it wraps.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// txKey marks the ctx of DB.Tx's function with its *sql.Tx.
type txKey struct{ db *DB }

// Tx runs fn in a write transaction: committed when fn returns nil, rolled back when
// it returns an error, which Tx then returns, or panics. It waits for its turn until
// ctx ends or BusyTimeout has passed ([ErrBusy]).
//
// Other writers of all processes wait while fn runs: no network and no waiting
// inside. Use the Tx form of honker's verbs there; the plain form is [ErrInTx] under
// fn's ctx. fn must not commit or roll back tx itself.
func (db *DB) Tx(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	if err := inTx(ctx, db, "the tx that there is"); err != nil {
		return fail("tx", "", err)
	}
	if err := db.usable(); err != nil {
		return fail("tx", "", err)
	}
	if db.home != nil {
		reserved, permit, err := db.home.Reserve(ctx)
		if err != nil {
			return fail("tx", "", err)
		}
		defer permit.Release()
		ctx = reserved
	}
	return db.runTx(ctx, fn)
}

func (db *DB) runTx(ctx context.Context, fn func(context.Context, *sql.Tx) error) error {
	tx, err := db.begin(ctx)
	if err != nil {
		return fail("begin", "", err)
	}
	defer tx.Rollback() // after a panic or an error; a no-op after Commit
	if err := fn(context.WithValue(ctx, txKey{db}, tx), tx); err != nil {
		return err
	}
	return fail("commit", "", tx.Commit())
}

// begin starts a writing transaction: not on the application's pool, whose readers must
// not hold up a writer who holds up all others. An attached pool may begin deferred, so
// there the write lock is taken, and waited for, by a statement.
func (db *DB) begin(ctx context.Context) (tx *sql.Tx, err error) {
	if db.home != nil {
		return db.own.BeginTx(ctx, nil)
	}
	err = sqlite.Retry(ctx, db.opts.BusyTimeout, func() error {
		if tx, err = db.own.BeginTx(ctx, nil); err != nil {
			return err
		}
		if err = store.TakeWriteLock(ctx, tx); err != nil {
			_ = tx.Rollback()
		}
		return err
	})
	return tx, err
}

// usable refuses a DB that is closed or whose file was replaced. Connections of ours
// look for themselves when they begin to write.
func (db *DB) usable() error {
	if db.isClosed() {
		return ErrClosed
	}
	if db.home == nil {
		return db.identity.Check()
	}
	return nil
}

// mayLook checks what a plain verb needs that reads before it writes.
func (db *DB) mayLook(ctx context.Context, twin string) error {
	if err := inTx(ctx, db, twin); err != nil {
		return err
	}
	if db.isClosed() {
		return ErrClosed
	}
	if ctx.Err() != nil {
		return ended(ctx)
	}
	return nil
}

// because returns the reason behind an error of a read: what was under it may be gone.
func (db *DB) because(err error) error {
	if err == nil {
		return nil
	}
	if gone := db.identity.CheckNow(); gone != nil {
		return gone
	}
	return err
}

func (db *DB) isClosed() bool {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.closed
}

// op is a write of a plain verb.
type op struct {
	run    func(ctx context.Context, q store.Querier, now time.Time) error
	single bool
}

func (o op) Run(ctx context.Context, q store.Querier, now time.Time) error { return o.run(ctx, q, now) }
func (o op) Single() bool                                                  { return o.single }

// write is an operation of several statements.
func write(run func(ctx context.Context, q store.Querier, now time.Time) error) op {
	return op{run: run}
}

// writeOne is an operation of one statement.
func writeOne(run func(ctx context.Context, q store.Querier, now time.Time) error) op {
	return op{run: run, single: true}
}

// do runs a plain verb's write: in a transaction of its own, or together with those
// of others. twin is the form to use inside DB.Tx.
func (db *DB) do(ctx context.Context, twin string, o sqlite.Op) error {
	if err := inTx(ctx, db, twin); err != nil {
		return err
	}
	if err := db.usable(); err != nil {
		return err
	}
	if err := db.writer.Do(ctx, o); err != nil {
		return err
	}
	if db.home == nil {
		db.hub.nudge() // nobody else tells of a commit through an attached pool
	}
	return nil
}

// in checks that tx can carry a write of this DB, and returns what to run that on.
func (db *DB) in(ctx context.Context, tx Tx) (Tx, error) {
	if tx == nil {
		return nil, errors.Join(ErrInvalid, errors.New("nil transaction"))
	}
	if err := db.usable(); err != nil {
		return nil, err
	}
	if own, ok := ctx.Value(txKey{db}).(*sql.Tx); ok && tx == Tx(own) {
		return own, nil
	}
	return tx, sqlite.CheckOwner(ctx, tx, db.identity.Info())
}
