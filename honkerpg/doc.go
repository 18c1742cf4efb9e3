// Package honkerpg runs honker on PostgreSQL. [Open] and [Attach] return a *honker.DB, so queues, streams, locks,
// schedules and all other handles of package honker work as they do on an SQLite file.
//
//	db, err := honkerpg.Open(ctx, "postgres://app@localhost/app", nil)
//	mails := honker.NewQueue[Mail](db, "mails", nil)
//
// Use it if the application's own data is in PostgreSQL, because an enqueue belongs in the transaction that makes it
// necessary, or if workers run on several machines. Otherwise a file is simpler and needs no server. The package needs
// PostgreSQL 14 or newer and no extension.
//
// # Opening a database
//
// [Open] connects with pools of its own, [Attach] uses a pgxpool.Pool of the application. Both create honker's tables
// in a schema of the database, or bring them up to date. A role that may not create tables sets Options.NoMigrate, and an
// administrator runs the statements that [Schema] returns. Behind PgBouncer, set Options.Pooler and Options.ListenDSN.
//
// # Transactions
//
// The Tx forms of the verbs become part of the application's transaction: a *sql.Tx of [honker.DB.Tx], [honker.DB.SQL]
// or any other pool of pgx's package stdlib, or a pgx.Tx with [WithTx]. Transactions of [honker.DB.Tx] are READ
// COMMITTED, and many run at the same time. A read that decides about a write therefore needs FOR UPDATE, which the
// single writer of a file makes unnecessary.
//
// PublishTx, NotifyTx and a relay's SendTx return 0 instead of numbers. Events get their offsets after the commit, so
// that no reader misses an event whose transaction takes long.
//
// # Errors
//
// The errors are those of package honker. [honker.ErrUncertain] means that the connection was lost after a commit was
// sent. The commit may have taken effect, or may still do. Repeat the call only if the database recognizes the
// repetition, for example by a [honker.Unique] key. [honker.ErrBusy] includes deadlocks, which happen if two
// transactions enqueue two unique keys in opposite orders.
//
// docs/guide/postgres.md lists all differences from SQLite.
package honkerpg
