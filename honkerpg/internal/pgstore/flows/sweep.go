package flows

import (
	"context"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Conditions for a run, r, that is no longer kept, and for a run without a job.
const (
	isOver = `r.keep_until <= $1`
	isLost = `r.ended_at IS NULL AND NOT EXISTS (SELECT FROM honker.job j WHERE j.id = r.job_id) AND NOT EXISTS (SELECT FROM honker.dead d WHERE d.id = r.job_id)`
)

const (
	sqlOverRuns = `(SELECT r.job_id FROM honker.flow_run r WHERE ` + isOver + ` ORDER BY r.keep_until LIMIT $2)
UNION ALL (SELECT r.job_id FROM honker.flow_run r WHERE ` + isLost + ` LIMIT $2)`

	sqlDropRuns = `WITH over AS (DELETE FROM honker.flow_run x WHERE x.job_id = ANY (ARRAY(SELECT r.job_id FROM honker.flow_run r
    WHERE r.job_id = ANY ($2) AND (` + isOver + ` OR ` + isLost + `) FOR UPDATE SKIP LOCKED)) RETURNING x.job_id, x.flow, x.id),
  steps AS (DELETE FROM honker.flow_step s WHERE s.job_id IN (SELECT o.job_id FROM over o)),
  signals AS (DELETE FROM honker.flow_signal g USING over o WHERE g.flow = o.flow AND g.id = o.id)
SELECT count(*) FROM over`
)

// Sweep returns the sweep of runs that are over and no longer kept, and of runs whose job was deleted by somebody else.
func (s Flows) Sweep() engine.Sweep {
	return engine.Sweep{
		Find: func(ctx context.Context, q row.Querier, _ row.Part, at time.Time, limit int) ([]int64, error) {
			return pgsql.IDs(ctx, q, s.SQL(sqlOverRuns), pgsql.Replan, pgsql.Stamp(at), limit)
		},
		Take: func(ctx context.Context, q row.Querier, _ row.Part, ids []int64, at time.Time, limit int) (row.Swept, error) {
			some := ids[:min(len(ids), limit)]
			n := 0
			_, err := pgsql.One(ctx, q, s.SQL(sqlDropRuns), []any{pgsql.Replan, pgsql.Stamp(at), some}, &n)
			return row.Swept{N: n, More: len(some) < len(ids)}, err
		},
	}
}
