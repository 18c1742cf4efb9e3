package jobs

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// The problems that honker.check_links finds.
const (
	noSuchJob = 1 + iota
	noSuchBatch
	batchIsDone
	circle
	circleOfKey
)

const sqlCheckLinks = `SELECT problem, node FROM honker.check_links($1, $2, $3, $4, $5)`

// checkLinks returns ErrInvalid for links to ids that were never assigned and for links that form a circle, and
// row.ErrBatchDone for a batch that takes no members. It changes nothing, so a transaction can go on after an error. A
// new job closes no circle unless it joins a batch, because it can only wait for older jobs.
func (s Jobs) checkLinks(ctx context.Context, q row.Querier, in *row.Insert) error {
	l := in.Links
	var problem, id sql.NullInt64
	_, err := pgsql.One(ctx, q, s.SQL(sqlCheckLinks), []any{in.Queue, text(in.Key), pgsql.List(l.Jobs), pgsql.List(l.Batches), l.In}, &problem, &id)
	if err != nil {
		return err
	}
	switch problem.Int64 {
	case noSuchJob:
		return fmt.Errorf("%w: no job with id %d has ever existed", engine.ErrInvalid, id.Int64)
	case noSuchBatch:
		return fmt.Errorf("%w: no batch with id %d has ever existed", engine.ErrInvalid, id.Int64)
	case batchIsDone:
		return fmt.Errorf("batch %d: %w", l.In, row.ErrBatchDone)
	case circle:
		return fmt.Errorf("%w: %s already waits for batch %d, and the dependencies must not form a cycle", engine.ErrInvalid, nodeName(id.Int64), l.In)
	case circleOfKey:
		return fmt.Errorf("%w: job %d waits for batch %d, and the jobs of its key %q run in order: a later member with this key would wait forever; give the member another key, or enqueue job %d last",
			engine.ErrInvalid, id.Int64, l.In, in.Key, id.Int64)
	}
	return nil
}

// nodeName returns the name of a node for error messages. Batches are below 0.
func nodeName(node int64) string {
	if node < 0 {
		return fmt.Sprint("batch ", -node)
	}
	return fmt.Sprint("job ", node)
}

const sqlAfterOf = `SELECT parent FROM honker.edge WHERE waiter = $1 AND parent <> 0 AND batch = 0
UNION SELECT parent FROM honker.edge WHERE waiter = ANY (ARRAY(SELECT -batch FROM honker.edge WHERE waiter = $1 AND batch > 0)) ORDER BY 1`

// AfterOf implements engine.JobStore.
func (s Jobs) AfterOf(ctx context.Context, q row.Querier, id int64) ([]int64, error) {
	return pgsql.IDs(ctx, q, s.SQL(sqlAfterOf), pgsql.Replan, id)
}
