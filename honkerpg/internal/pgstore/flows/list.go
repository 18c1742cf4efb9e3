package flows

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

// sqlListRuns walks back over the runs by their jobs, and over runs of other flows and states too.
const sqlListRuns = `SELECT ` + runColumns + `, coalesce(p.flow, ''), coalesce(p.id, ''), x.state, j.run_at, coalesce(j.attempts, d.attempts, 0),
  coalesce(d.last_error, j.last_error, ''), (SELECT count(*) FROM honker.flow_step t WHERE t.job_id = r.job_id)
FROM honker.flow_run r LEFT JOIN honker.job j ON j.id = r.job_id LEFT JOIN honker.dead d ON d.id = r.job_id
  LEFT JOIN honker.flow_run p ON p.job_id = r.parent
  CROSS JOIN LATERAL (SELECT CASE WHEN r.ended_at IS NOT NULL THEN r.outcome WHEN j.id IS NULL THEN 'failed'
    WHEN j.state = 1 AND j.lease_until >= $5 THEN 'running' ELSE 'waiting' END) x (state)
WHERE r.job_id < $3 AND ($1 = '' OR r.flow = $1) AND ($2 = '' OR x.state = $2) ORDER BY r.job_id DESC LIMIT $4`

// List implements engine.FlowStore.
func (s Flows) List(ctx context.Context, q row.Querier, f row.FlowFilter, now time.Time) (all []row.FlowView, err error) {
	err = pgsql.Each(ctx, q, s.SQL(sqlListRuns), func(r *sql.Rows) error {
		var v row.FlowView
		var run runScan
		var runAt sql.NullTime
		err := r.Scan(append(run.into(), &v.ParentFlow, &v.ParentID, (*string)(&v.State), &runAt, &v.Attempts, &v.LastError, &v.Steps)...)
		v.FlowRun = run.run()
		if v.State == row.FlowIsWaiting {
			v.RunAt = pgsql.Instant(runAt)
		}
		all = append(all, v)
		return err
	}, pgsql.Replan, f.Flow, string(f.State), f.Before, f.Limit, pgsql.Stamp(now))
	return all, err
}
