package row

import (
	"context"
	"database/sql"
)

// Querier runs statements. It is implemented by *sql.Tx, *sql.Conn and *sql.DB, and by many ORMs'
// transactions.
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}
