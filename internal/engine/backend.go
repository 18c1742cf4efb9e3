package engine

import (
	"context"
	"database/sql"

	"github.com/honker-go/honker/internal/wake"
)

// Backend is how one kind of database is reached. There are two, of the root package: a file
// that honker has opened, and a pool of the application's that it was attached to. Nothing
// else in this module knows which it is; docs/internals/decisions/006 says what a third, on
// Postgres, has to bring.
type Backend interface {
	// Name is the database in logs and errors: the path of the file.
	Name() string

	// Write commits op, alone or in one transaction with others. It waits for the writer
	// until ctx ends or the busy timeout has passed (ErrBusy); once op has started, the
	// outcome is the real one. A commit is reported to the watcher.
	Write(ctx context.Context, op Op) error

	// Begin starts a write transaction, waiting for the writer as Write does. release is to
	// be called once it has ended.
	Begin(ctx context.Context) (tx *sql.Tx, release func(), err error)

	// Commit commits a transaction of Begin's. After an error it is still to be rolled back.
	Commit(tx *sql.Tx) error

	// Read runs f on a connection, outside of any transaction. ctx bounds the wait for the
	// connection; f gets a ctx that does not end. f may be called again when it has failed.
	Read(ctx context.Context, f func(ctx context.Context, q Querier) error) error

	// Looks is the pool on which the notifier asks what a commit was about, one question at a
	// time. It waits for none of the reads.
	Looks() *sql.DB

	// SQL is the pool for the application's own statements.
	SQL() *sql.DB

	// CheckIdentity fails with ErrDatabaseReplaced when the database is no longer the one
	// that was opened, and with another error when that cannot be found out now.
	CheckIdentity() error

	// CheckTx refuses what is no open transaction on this database. committed are called when
	// tx has been committed, once per key of all calls, where that is seen.
	CheckTx(ctx context.Context, tx Querier, committed map[any]func()) (seen bool, err error)

	// Check lists what is broken, in the database and by honker's own rules.
	Check(ctx context.Context) ([]string, error)

	// Shrink gives back the space that the write-ahead log takes beyond limit bytes.
	Shrink(ctx context.Context, limit int64) error

	// Backup copies the database to a new file at path, as of one moment, while others write.
	Backup(ctx context.Context, path string) error

	// Vacuum gives back the pages that are free. It holds up all writers meanwhile.
	Vacuum(ctx context.Context) error

	// Watch returns what notices commits by any process.
	Watch(wake.Events) wake.Watcher

	// Close releases what the backend itself has opened.
	Close() error
}
