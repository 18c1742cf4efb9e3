package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/honker-go/honker/internal/engine"
	"modernc.org/sqlite"
)

// backupPages is the number of pages copied between two checks of ctx. Copying them takes a few
// milliseconds.
const backupPages = 1000

// Backup copies the database to a new file at path. It copies within a read transaction on conn, so the backup
// is a consistent snapshot. Writers are not blocked, and their commits do not restart the backup. Backup stops
// when ctx ends. After an error the caller must remove the incomplete copy.
func Backup(ctx context.Context, conn *sql.Conn, path string) (err error) {
	tx, err := conn.BeginTx(context.WithoutCancel(ctx), &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tx.Rollback()) }()
	var version int64
	if err := scanOne(ctx, tx, "PRAGMA schema_version", &version); err != nil { // starts the read transaction
		return err
	}
	return conn.Raw(func(c any) error {
		full, ok := c.(rawConn)
		if !ok {
			return fmt.Errorf("%w: the driver does not support backups", engine.ErrUnsupported)
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

// VacuumInto is like Backup, but works with any driver. It cannot be interrupted.
func VacuumInto(ctx context.Context, conn *sql.Conn, path string) error {
	_, err := conn.ExecContext(context.WithoutCancel(ctx), "VACUUM INTO ?1", path)
	return err
}

// Vacuum rebuilds the database without free pages. It holds the write lock the whole time.
func Vacuum(ctx context.Context, pool *sql.DB) error {
	_, err := pool.ExecContext(ctx, "VACUUM")
	return err
}
