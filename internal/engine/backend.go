package engine

import (
	"context"
	"database/sql"

	"github.com/honker-go/honker/internal/wake"
)

// Backend gives access to a kind of database. The root package has two backends: a file opened by
// honker, and a pool of the application to which honker is attached. No other code in this module
// depends on which of them it uses. docs/internals/decisions/006 describes the requirements for a
// third backend, on Postgres.
type Backend interface {
	// Name returns the name of the database in logs and errors, which is the path of the file.
	Name() string

	// Write commits op, alone or in a transaction with others. It blocks until it has the writer.
	// It fails if ctx ends or the busy timeout passes (ErrBusy) before op starts. Once op has
	// started, Write returns its real outcome. Commits are reported to the watcher.
	Write(ctx context.Context, op Op) error

	// Begin starts a write transaction. It waits for the writer as Write does. The caller must call
	// release once the transaction has ended.
	Begin(ctx context.Context) (tx *sql.Tx, release func(), err error)

	// Commit commits a transaction that was started with Begin. After an error, the caller must
	// still roll it back.
	Commit(tx *sql.Tx) error

	// Read runs f on a connection, outside any transaction. ctx limits the wait for the connection;
	// the ctx passed to f never ends. If f fails, Read may call it again.
	Read(ctx context.Context, f func(ctx context.Context, q Querier) error) error

	// Looks returns the pool on which the notifier queries the effects of a commit. Queries run one
	// after another and do not wait for any Read.
	Looks() *sql.DB

	// SQL returns the pool for the application's own statements.
	SQL() *sql.DB

	// CheckIdentity returns ErrDatabaseReplaced if the database is no longer the one that was
	// opened. It returns another error if it cannot determine this now.
	CheckIdentity() error

	// CheckTx returns an error unless tx is an open transaction on this database. If seen is true,
	// the backend observes the commit of tx and then calls the functions in committed, once per key
	// across all calls for tx.
	CheckTx(ctx context.Context, tx Querier, committed map[any]func()) (seen bool, err error)

	// Check returns the violations of the database's integrity and of honker's own rules.
	Check(ctx context.Context) ([]string, error)

	// Shrink releases the space that the write-ahead log uses beyond limit bytes.
	Shrink(ctx context.Context, limit int64) error

	// Backup copies a consistent snapshot of the database to a new file at path. Others may write
	// in the meantime.
	Backup(ctx context.Context, path string) error

	// Vacuum returns free pages to the file system. It blocks all writers meanwhile.
	Vacuum(ctx context.Context) error

	// Watch returns a watcher that notices commits of all processes.
	Watch(wake.Events) wake.Watcher

	// Close releases the resources that the backend itself has opened.
	Close() error
}
