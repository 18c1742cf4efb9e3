package jobs

import (
	"context"
	_ "embed"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// waits returns the condition that job, an SQL expression, waits for others: an edge is open, or its other
// end is dead and does not release the job. It costs two seeks in _honkerx_after_waiter.
func waits(job string) string {
	return `(EXISTS (SELECT 1 FROM _honkerx_after WHERE waiter = ` + job + ` AND state = 0)
    OR EXISTS (SELECT 1 FROM _honkerx_after WHERE waiter = ` + job + ` AND state = 2))`
}

// sqlUnhold makes a held job pending once nothing holds it. A job can be held by its edges, by the owner of
// its unique key, and by its key's limit. The triggers run the same statement after each of these goes
// away, so the last of them releases the job. Its lookups use primary keys.
var sqlUnhold = `UPDATE _honker_live SET state = 'pending' WHERE id = ?1 AND state = 'held'
  AND NOT ` + waits("_honker_live.id") + `
  AND NOT EXISTS (SELECT 1 FROM _honkerx_job AS s LEFT JOIN _honkerx_unique AS u ON u.queue = s.queue AND u.key = s.unique_key
    WHERE s.job_id = _honker_live.id AND (s.slot = 2 OR u.next_id = s.job_id));`

// batchState returns the state of an edge to a batch: 0 while the batch is open or has live members, 2 if
// some of its members are dead and that does not release the waiter, and 1 otherwise.
func batchState(batch, ifDead string) string {
	return `CASE WHEN EXISTS (SELECT 1 FROM _honkerx_batches WHERE id = ` + batch + ` AND open = 1)
      OR EXISTS (SELECT 1 FROM _honkerx_after WHERE waiter = -` + batch + ` AND state = 0) THEN 0
    WHEN EXISTS (SELECT 1 FROM _honkerx_after WHERE waiter = -` + batch + ` AND state = 2) THEN iif(` + ifDead + `, 1, 2)
    ELSE 1 END`
}

//go:embed after.sql
var afterDDL string

var afterTriggers = rows.SplitDDL(afterDDL)

// ensureAfterTriggers creates the triggers if they do not exist. It also recreates the other triggers that
// hold jobs, because in a file from an earlier build of this version they may not know about edges.
func ensureAfterTriggers(ctx context.Context, q row.Querier) error {
	found, err := triggerExists(ctx, q, "_honkerx_after_gone")
	if err != nil || found {
		return err
	}
	if err := ensureKeyTriggers(ctx, q, false); err != nil { // they copy a job's batch to its dead letter
		return err
	}
	if err := renewKeyTriggers(ctx, q); err != nil {
		return err
	}
	if err := renewSlotTrigger(ctx, q); err != nil {
		return err
	}
	return rows.ExecAll(ctx, q, afterTriggers)
}
