package engine

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/honker-go/honker/internal/wake"
)

// Backend gives access to a database. There are two backends: a SQLite file opened by honker, and
// an application's pool that honker is attached to. Code above this interface must not depend on
// which backend it uses; docs/internals/decisions/014 describes this boundary.
type Backend interface {
	// Name returns the database name to use in logs and errors, such as a file path.
	Name() string

	// Now returns the time of the clock that the database's rows are compared with. Times of different
	// processes agree, although the clocks of their machines may differ. Write passes this time to ops.
	Now() time.Time

	// Write commits op, alone or in a transaction with other ops. It blocks until it has the write lock. It fails if
	// ctx ends or the busy timeout elapses (ErrBusy) before op starts. Once op has started, Write returns its actual
	// outcome. Commits are reported to the watcher.
	Write(ctx context.Context, op Op) error

	// Begin starts a write transaction. Like Write, it waits for the write lock. The caller must close the
	// transaction.
	Begin(ctx context.Context) (Tx, error)

	// Read runs f on a connection. If oneMoment is true, all statements of f see the same state of
	// the database. ctx limits the wait for the connection; the ctx passed to f never ends. If f
	// fails, Read may call it again.
	Read(ctx context.Context, oneMoment bool, f func(ctx context.Context, q Querier) error) error

	// Savepoint sets a savepoint in q's transaction. end keeps or undoes the writes since the
	// savepoint. If end returns an error, the transaction is lost.
	Savepoint(ctx context.Context, q Querier) (end func(ctx context.Context, keep bool) error, err error)

	// CheckTx returns an error unless tx is an open transaction on this database. If seen is true,
	// the backend observes the commit of tx and then calls the functions in committed, once per key
	// across all calls for tx.
	CheckTx(ctx context.Context, tx Querier, committed map[any]func()) (seen bool, err error)

	// Watch returns a watcher that detects commits by all processes.
	Watch(wake.Events) wake.Watcher

	// Check returns any violations of the database's integrity or of honker's own rules.
	Check(ctx context.Context) ([]string, error)

	// Close releases the resources that the backend itself opened.
	Close() error
}

// Tx is a write transaction of a Backend.
type Tx interface {
	// SQL returns the transaction for the application's statements.
	SQL() *sql.Tx

	// Alive returns ErrInvalid if the application has ended the transaction by a statement, such as ROLLBACK as text, so
	// that later statements would take effect by themselves. A backend that refuses such statements returns nil.
	Alive() error

	// Commit commits the transaction. The caller must still call Close.
	Commit() error

	// Close rolls back the transaction unless it was committed, and releases its connection.
	Close()
}

// File is a Backend for a database in a single file. Code that needs a File must get it from
// [Engine.File].
type File interface {
	// Path returns the path of the file.
	Path() string

	// CheckIdentity returns ErrDatabaseReplaced if the file at the path is no longer the file that was opened. It
	// returns a different error if it can't tell at the moment.
	CheckIdentity() error

	// Shrink truncates the write-ahead log if it is larger than limit bytes. A negative limit means no limit. Shrink
	// does not wait: if a read that is under way needs the log, it does nothing and reports false.
	Shrink(ctx context.Context, limit int64) (done bool, err error)

	// LogSize returns the size of the write-ahead log in bytes, or 0 if there is no log.
	LogSize() int64

	// Backup copies a consistent snapshot of the database to a new file at path. It does not block
	// writers.
	Backup(ctx context.Context, path string) error

	// Vacuum returns free pages to the file system. It blocks all writers while it runs.
	Vacuum(ctx context.Context) error
}

// Notified is a Backend that a server tells about commits of other processes.
type Notified interface {
	// DeafSince returns the time since which notices have not arrived, and why. The time is zero if they arrive or have
	// failed just now, if nothing has waited for them, or if the application does not want them.
	DeafSince() (since time.Time, why error)
}

// Contended is a Backend whose open write transactions can be in each other's way, as in a deadlock.
type Contended interface {
	// Repeat calls transaction, which must roll back if it fails, and calls it again while another transaction is in its
	// way. It gives up as Write does.
	Repeat(ctx context.Context, transaction func() error) error
}

// File returns the backend as a file. It returns ErrUnsupported if the database is not a file. verb
// names the operation in the error.
func (e *Engine) File(verb string) (File, error) {
	if f, ok := e.Backend.(File); ok {
		return f, nil
	}
	return nil, fmt.Errorf("%w: %s needs a database file, and %s is not a file", ErrUnsupported, verb, e.Backend.Name())
}

// Op is a small write. It runs inside a transaction that may contain other ops.
type Op interface {
	// Run executes the statements of the op, with now as the current time. If it returns an error,
	// all of its changes are undone. It may be called again after a failure.
	Run(ctx context.Context, q Querier, now time.Time) error
	// Single reports whether Run executes a single statement, which the database undoes by itself.
	Single() bool
}

// Fenced is an Op that does no harm if it runs again after it was committed. A backend may therefore run it again when it
// cannot tell whether a commit took effect.
type Fenced interface {
	Op
	// Again is called after such a commit, before the next Run.
	Again()
}

// Merges is an Op that a backend may write together with ops of other callers, in a single statement.
type Merges interface {
	Op
	// MergeKey identifies the ops that may share a statement. It returns nil if this op must be written by itself.
	MergeKey() any
	// RunMerged runs ops, whose keys equal this op's, as Run does, in a single statement. If it fails, all of them
	// are undone.
	RunMerged(ctx context.Context, q Querier, ops []Op, now time.Time) error
}
