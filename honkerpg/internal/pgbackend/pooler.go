package pgbackend

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/honker-go/honker/honkerpg/internal/pgstore"
	"github.com/honker-go/honker/internal/engine"
)

// errPooler reports a pooler that gives each transaction another connection to the server.
var errPooler = fmt.Errorf("%w: a pooler in transaction mode loses prepared statements; set Options.Pooler, "+
	"or Attach a pool whose DefaultQueryExecMode is pgx.QueryExecModeExec", engine.ErrUnsupported)

// checkPooler returns the server's error, which explain explains, if prepared statements would be used and a pooler loses them. A pooler is in between if
// the server has another name for the connection. Then two connections prepare a statement with the same name and use
// it in turn: they fail if they get the same connection to the server, and also if one of them gets two.
func checkPooler(ctx context.Context, pool *sql.DB, config *pgx.ConnConfig) error {
	conn, err := pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Raw(func(c any) error {
		one := c.(*stdlib.Conn).Conn()
		switch one.Config().DefaultQueryExecMode {
		case pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol:
			return nil
		}
		pid, err := pgstore.BackendPID(ctx, one)
		if err != nil || pid == one.PgConn().PID() {
			return err
		}
		two, err := pgx.ConnectConfig(ctx, config)
		if err != nil {
			return err
		}
		defer two.Close(ctx)
		return pgstore.PrepareInTurn(ctx, one, two)
	})
}
