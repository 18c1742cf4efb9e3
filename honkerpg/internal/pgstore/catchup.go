package pgstore

import (
	"context"
	"errors"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/jobs"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/relays"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/streams"
	"github.com/honker-go/honker/internal/row"
)

// catchers do the kinds of work that a commit may leave. Each runs in a transaction of its own, so that it sees every
// commit before it.
var catchers = map[pgsql.Work][]func(ctx context.Context, q row.Querier, s pgsql.Schema, now time.Time) error{
	pgsql.Number:  {streams.Number, relays.Number},
	pgsql.Resolve: {jobs.Resolve},
}

// CatchUp does the work w that committed transactions have left. q must not be in a transaction.
func CatchUp(ctx context.Context, q row.Querier, s pgsql.Schema, w pgsql.Work, now time.Time) (err error) {
	for kind, all := range catchers {
		if w&kind == 0 {
			continue
		}
		for _, do := range all {
			err = errors.Join(err, do(ctx, q, s, now))
		}
	}
	return err
}
