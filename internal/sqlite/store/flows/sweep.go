package flows

import (
	"context"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// SweepRuns deletes runs that are over and no longer kept, and runs whose job was deleted by somebody else.
var SweepRuns = engine.Sweep{Find: findRuns, Take: dropRuns}

// overRun is the condition for a run that is no longer kept. sqlOverRuns uses the index of kept runs for the first
// part. Its second part reads all runs that are not over.
const overRun = `(keep_until_ms <= ?1 OR ended_ms IS NULL
  AND NOT EXISTS (SELECT 1 FROM _honker_live WHERE id = _honkerx_flow_runs.job_id)
  AND NOT EXISTS (SELECT 1 FROM _honker_dead WHERE id = _honkerx_flow_runs.job_id))`

const (
	sqlOverRuns = `SELECT job_id FROM _honkerx_flow_runs WHERE ` + overRun + ` LIMIT ?2 + 0`

	sqlDropSteps = `DELETE FROM _honkerx_flow_steps WHERE job_id IN (
  SELECT job_id FROM _honkerx_flow_runs WHERE job_id IN (SELECT value FROM json_each(?2)) AND ` + overRun + `)`

	sqlDropSignals = `DELETE FROM _honkerx_flow_signals WHERE (flow, id) IN (
  SELECT flow, id FROM _honkerx_flow_runs WHERE job_id IN (SELECT value FROM json_each(?2)) AND ` + overRun + `)`

	sqlDropRuns = `DELETE FROM _honkerx_flow_runs WHERE job_id IN (SELECT value FROM json_each(?2)) AND ` + overRun
)

func findRuns(ctx context.Context, q row.Querier, _ row.Part, at time.Time, limit int) ([]int64, error) {
	if there, err := (Flows{}).exists(ctx, q); err != nil || !there {
		return nil, err
	}
	return rows.ReturnedIDs(ctx, q, sqlOverRuns, 0, at.UnixMilli(), limit)
}

func dropRuns(ctx context.Context, q row.Querier, _ row.Part, ids []int64, at time.Time, _ int) (row.Swept, error) {
	for _, query := range []string{sqlDropSteps, sqlDropSignals} {
		if _, err := q.ExecContext(ctx, query, at.UnixMilli(), rows.IDList(ids)); err != nil {
			return row.Swept{}, err
		}
	}
	n, err := rows.Affected(ctx, q, sqlDropRuns, at.UnixMilli(), rows.IDList(ids))
	return rows.Swept(n, err)
}
