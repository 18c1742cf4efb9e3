package flows

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// sqlListRuns walks back over the runs by their jobs, and over runs of other flows and states too. It finds the job of
// each by primary key.
const sqlListRuns = `WITH seen AS (
  SELECT r.*, l.id AS live, l.run_at, coalesce(l.attempts, d.attempts, 0) AS attempts, coalesce(d.last_error, s.last_error, '') AS last_error,
    CASE WHEN r.ended_ms IS NOT NULL THEN r.outcome WHEN l.id IS NULL THEN 'failed'
      WHEN l.state = 'processing' AND l.claim_expires_at >= ?5 THEN 'running' ELSE 'waiting' END AS now
  FROM _honkerx_flow_runs AS r LEFT JOIN _honker_live AS l ON l.id = r.job_id LEFT JOIN _honker_dead AS d ON d.id = r.job_id
    LEFT JOIN _honkerx_job AS s ON s.job_id = r.job_id
  WHERE r.job_id < ?3 AND (?1 = '' OR r.flow = ?1))
SELECT seen.job_id, seen.flow, seen.id, coalesce(seen.parent, 0), seen.started_ms, seen.ended_ms, coalesce(seen.outcome, ''), seen.cancelled,
  coalesce(seen.failure, ''), coalesce(p.flow, ''), coalesce(p.id, ''), seen.now, iif(seen.now = 'waiting', seen.run_at, NULL), seen.attempts,
  seen.last_error, (SELECT count(*) FROM _honkerx_flow_steps AS t WHERE t.job_id = seen.job_id)
FROM seen LEFT JOIN _honkerx_flow_runs AS p ON p.job_id = seen.parent
WHERE ?2 = '' OR seen.now = ?2 ORDER BY seen.job_id DESC LIMIT ?4 + 0`

// List returns the runs that f selects, newest first, with the state of their jobs.
func (s Flows) List(ctx context.Context, q row.Querier, f row.FlowFilter, now time.Time) (all []row.FlowView, err error) {
	if there, err := s.exists(ctx, q); err != nil || !there {
		return nil, err
	}
	err = rows.Each(ctx, q, sqlListRuns, func(r *sql.Rows) error {
		var v row.FlowView
		var run runScan
		var runAt rows.Number
		err := r.Scan(append(run.into(), &v.ParentFlow, &v.ParentID, &v.State, &runAt, &v.Attempts, &v.LastError, &v.Steps)...)
		v.FlowRun, v.RunAt = run.run(), row.Instant(int64(runAt))
		if v.State != row.FlowIsWaiting {
			v.RunAt = time.Time{}
		}
		all = append(all, v)
		return err
	}, f.Flow, string(f.State), f.Before, f.Limit, now.Unix())
	return all, err
}
