package jobs

import (
	"context"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// linkRules are the invariants of edges and batches.
var linkRules = []rows.Invariant{
	{"a job that waits for others is held or dead",
		`SELECT waiter FROM _honkerx_after WHERE waiter > 0 AND state <> 1
  AND waiter NOT IN (SELECT id FROM _honker_live WHERE state = 'held') AND waiter NOT IN (SELECT id FROM _honker_dead)`},
	{"the waiter of an edge exists",
		`SELECT waiter FROM _honkerx_after WHERE waiter NOT IN (SELECT id FROM _honker_live) AND waiter NOT IN (SELECT id FROM _honker_dead)
  AND -waiter NOT IN (SELECT id FROM _honkerx_batches)`},
	{"an edge connects a job with a job or a batch, or a batch with a member",
		`SELECT waiter FROM _honkerx_after WHERE (job_id > 0) = (batch > 0) AND waiter > 0 OR waiter < 0 AND (waiter <> -batch OR job_id <= 0) OR waiter = 0`},
	{"an open edge leads to a live job",
		`SELECT job_id FROM _honkerx_after WHERE job_id > 0 AND state = 0 AND job_id NOT IN (SELECT id FROM _honker_live)`},
	{"a blocked edge leads to a dead job that does not release its waiter",
		`SELECT job_id FROM _honkerx_after WHERE state = 2 AND (if_dead OR job_id > 0 AND job_id NOT IN (SELECT id FROM _honker_dead))`},
	{"a dead job releases its waiters only with EvenIfDead", // a waiter that has started may have been released before the death was known
		`SELECT a.job_id FROM _honkerx_after AS a JOIN _honker_dead AS d ON d.id = a.job_id
WHERE a.state = 1 AND NOT a.if_dead AND (a.waiter < 0 OR a.waiter IN (SELECT id FROM _honker_live WHERE state = 'held'))`},
	{"an edge to a batch has the state of the batch",
		`SELECT waiter FROM _honkerx_after AS e WHERE job_id = 0 AND state <> ` + batchState("e.batch", "e.if_dead") + `
  AND (state <> 1 OR waiter IN (SELECT id FROM _honker_live WHERE state = 'held'))`},
	{"a batch is done if and only if it is sealed and has no members left",
		`SELECT id FROM _honkerx_batches AS b WHERE (done_ms IS NULL) = (` + batchState("b.id", "0") + ` = 1)`},
	{"the members of a done batch are recorded only while a job waits for it",
		`SELECT b.id FROM _honkerx_batches AS b WHERE done_ms IS NOT NULL AND EXISTS (SELECT 1 FROM _honkerx_after WHERE waiter = -b.id)
  AND NOT EXISTS (SELECT 1 FROM _honkerx_after WHERE job_id = 0 AND batch = b.id)`},
	{"the total of a batch is at least its number of members",
		`SELECT id FROM _honkerx_batches AS b WHERE total < (SELECT count(*) FROM _honkerx_after WHERE waiter = -b.id)
  OR total < (SELECT count(*) FROM _honkerx_job WHERE batch = b.id) + (SELECT count(*) FROM _honkerx_dead_job WHERE batch = b.id)`},
	{"the side row of an unfinished member names its batch",
		`SELECT m.job_id FROM _honkerx_after AS m LEFT JOIN _honkerx_job AS s ON s.job_id = m.job_id
WHERE m.waiter < 0 AND m.state = 0 AND s.batch IS NOT m.batch`},
	{"the triggers of edges exist if the file has edges or batches",
		`SELECT 0 WHERE (EXISTS (SELECT 1 FROM _honkerx_after) OR EXISTS (SELECT 1 FROM _honkerx_batches)) AND NOT ` + rows.HasTrigger("_honkerx_after_gone")},
}

// CheckLinks returns the violations of the rules of edges and batches.
func CheckLinks(ctx context.Context, q row.Querier) ([]string, error) {
	return rows.Breaches(ctx, q, linkRules)
}
