package jobs

import (
	"context"
	"encoding/json"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// These statements use the primary keys. They skip jobs that are no longer claimed as listed. If
// the jobs are about to be acked, they also skip jobs that their queue will not keep.
const (
	sqlSaveProgress = `INSERT INTO _honkerx_job (job_id, progress)
SELECT _honker_live.id, p.value ->> 2 FROM json_each(?1) AS p CROSS JOIN _honker_live ON _honker_live.id = p.value ->> 0
WHERE worker_id = ?2 AND attempts = p.value ->> 1 AND claim_expires_at >= ?3 AND state = 'processing' AND (?4 OR ` + keepsDone + `)
ON CONFLICT (job_id) DO UPDATE SET progress = excluded.progress`

	sqlSaveCheckpoint = `INSERT INTO _honkerx_job (job_id, checkpoint)
SELECT id, ?5 FROM _honker_live` + whereClaim + ` AND state = 'processing'
ON CONFLICT (job_id) DO UPDATE SET checkpoint = excluded.checkpoint`
)

// saveProgress saves the progress of jobs that worker holds by a valid claim. With acked, it skips
// jobs whose rows the ack deletes.
func (Jobs) saveProgress(ctx context.Context, q row.Querier, all []row.ProgressOf, worker string, acked bool, now int64) error {
	if len(all) == 0 {
		return nil
	}
	if !acked {
		if err := ensureKeyTriggers(ctx, q, false); err != nil { // they copy a dying job's progress
			return err
		}
	}
	r := make([][3]any, len(all))
	for i, p := range all {
		r[i] = [3]any{p.ID, p.Attempt, p.Progress}
	}
	list, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = q.ExecContext(ctx, sqlSaveProgress, string(list), worker, now, !acked)
	return err
}

// Checkpoint stores value with a job for its next attempt. It returns false if the claim is no
// longer valid.
func (Jobs) Checkpoint(ctx context.Context, q row.Querier, c row.Claim, value string, now time.Time) (bool, error) {
	if err := ensureKeyTriggers(ctx, q, false); err != nil {
		return false, err
	}
	n, err := rows.Affected(ctx, q, sqlSaveCheckpoint, c.ID, c.Worker, c.Attempt, now.Unix(), value)
	return n > 0, err
}
