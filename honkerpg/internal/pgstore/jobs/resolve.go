package jobs

import (
	"context"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

const sqlResolve = `SELECT honker.resolve($1)`

// Resolve lets the jobs go that waited for the jobs and batches that committed transactions have ended, until there is
// nothing to do. q must not be in a transaction.
func Resolve(ctx context.Context, q row.Querier, s pgsql.Schema, now time.Time) error {
	for n := int64(1); n > 0; {
		if _, err := pgsql.One(ctx, q, s.SQL(sqlResolve), []any{pgsql.Stamp(now)}, &n); err != nil {
			return err
		}
	}
	return nil
}
