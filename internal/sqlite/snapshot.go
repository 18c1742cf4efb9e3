package sqlite

import (
	"context"
	"database/sql"

	"github.com/honker-go/honker/internal/row"
)

// Snapshot runs f in a read transaction on q, so that all reads see the same state. If q is already a
// transaction, f runs in it. Snapshot runs BEGIN as a statement, because an application's driver options may
// make BeginTx take the write lock.
func Snapshot(ctx context.Context, q row.Querier, f func(ctx context.Context) error) error {
	if _, alone := q.(*sql.Conn); !alone {
		return f(ctx)
	}
	if _, err := q.ExecContext(ctx, "BEGIN"); err != nil {
		return err
	}
	defer func() { _, _ = q.ExecContext(context.WithoutCancel(ctx), "ROLLBACK") }() // nothing was written
	return f(ctx)
}
