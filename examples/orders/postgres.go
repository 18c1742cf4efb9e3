package main

import (
	"context"
	_ "embed"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerpg"
)

//go:embed postgres.sql
var postgresSchema string

// postgres keeps orders and jobs in a PostgreSQL database. honker's tables are in the schema honker: job contains
// the waiting and running jobs, of which state 1 is running, and dead contains the dead letters.
var postgres = database{
	open: func(ctx context.Context, c config, o honker.Options) (*honker.DB, error) {
		return honkerpg.Open(ctx, c.dsn, &honkerpg.Options{Options: o})
	},
	schema: postgresSchema,
	books: `SELECT
  (SELECT count(*) FROM orders),
  (SELECT count(*) FROM honker.job WHERE queue = $1 AND state <> 1),
  (SELECT count(*) FROM honker.job WHERE queue = $1 AND state = 1),
  (SELECT count(*) FROM honker.dead WHERE queue = $1)`,
	audit: `SELECT id,
  EXISTS (SELECT FROM honker.job j WHERE j.id = orders.job),
  EXISTS (SELECT FROM honker.dead d WHERE d.id = orders.job)
FROM orders`,
	constraint: func(err error) string {
		if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == checkViolation {
			return e.ConstraintName
		}
		return ""
	},
}

const checkViolation = "23514"
