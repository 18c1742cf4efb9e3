package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"modernc.org/sqlite"
)

// backupPages is how many pages are copied between two looks at ctx: some milliseconds.
const backupPages = 1000

// Backup copies the database to a new file at path, as of one moment: in a read transaction of conn's, so
// that commits of others neither wait nor begin it anew. It ends with ctx. What it leaves of the copy after an
// error is the caller's to remove.
func Backup(ctx context.Context, conn *sql.Conn, path string) (err error) {
	tx, err := conn.BeginTx(context.WithoutCancel(ctx), &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tx.Rollback()) }()
	var version int64
	if err := scanOne(ctx, tx, "PRAGMA schema_version", &version); err != nil { // the transaction begins to read
		return err
	}
	return conn.Raw(func(c any) error {
		full, ok := c.(rawConn)
		if !ok {
			return fmt.Errorf("%w: the driver has no backups", ErrUnsupported)
		}
		b, err := full.NewBackup(dsn(path, "rwc"))
		if err != nil {
			return err
		}
		return errors.Join(copyPages(ctx, b), b.Finish())
	})
}

func copyPages(ctx context.Context, b *sqlite.Backup) error {
	for more := true; more; {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var err error
		if more, err = b.Step(backupPages); err != nil {
			return err
		}
	}
	return nil
}

// VacuumInto is Backup on a connection of any driver, which cannot be interrupted.
func VacuumInto(ctx context.Context, conn *sql.Conn, path string) error {
	_, err := conn.ExecContext(context.WithoutCancel(ctx), "VACUUM INTO ?1", path)
	return err
}

// Vacuum writes the database anew without free pages. It holds the writer for as long as that takes.
func Vacuum(ctx context.Context, pool *sql.DB) error {
	_, err := pool.ExecContext(ctx, "VACUUM")
	return err
}
