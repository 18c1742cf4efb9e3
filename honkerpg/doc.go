// Package honkerpg runs honker on PostgreSQL. [Open] and [Attach] return a *honker.DB, so queues, streams, locks,
// schedules and all other handles of package honker work as they do on an SQLite file.
//
//	db, err := honkerpg.Open(ctx, "postgres://app@localhost/app", nil)
//	mails := honker.NewQueue[Mail](db, "mails", nil)
//
// honker's tables are in a schema of the application's own database. An enqueue joins the application's transaction,
// whether it is a *sql.Tx of pgx's package stdlib or, with [WithTx], a pgx.Tx. Workers on any number of machines share
// the queues. The package needs PostgreSQL 14 or newer and no extension.
//
// docs/guide/postgres.md says when to use it and what differs from SQLite.
package honkerpg
