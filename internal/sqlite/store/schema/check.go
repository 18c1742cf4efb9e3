package schema

import (
	"context"
	"database/sql"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/dispatches"
	"github.com/honker-go/honker/internal/sqlite/store/flows"
	"github.com/honker-go/honker/internal/sqlite/store/inboxes"
	"github.com/honker-go/honker/internal/sqlite/store/jobs"
	"github.com/honker-go/honker/internal/sqlite/store/relays"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// invariants hold between any two transactions. Each query selects the rows that violate its rule. The
// queries are full scans, meant for tests and operators.
var invariants = []rows.Invariant{
	{"a processing job has a worker and a deadline",
		`SELECT id FROM _honker_live WHERE state = 'processing' AND (worker_id IS NULL OR claim_expires_at IS NULL OR attempts < 1)`},
	{"a pending job has neither worker nor deadline",
		`SELECT id FROM _honker_live WHERE state = 'pending' AND (worker_id IS NOT NULL OR claim_expires_at IS NOT NULL)`},
	{"a live job is pending, processing or held",
		`SELECT id FROM _honker_live WHERE state NOT IN ('pending', 'processing', 'held')`},
	{"a row of _honkerx_dead_job belongs to a dead job",
		`SELECT job_id FROM _honkerx_dead_job WHERE job_id NOT IN (SELECT id FROM _honker_dead)`},
	{"a held job waits for its key, for other jobs, or for the job that has its unique key",
		`SELECT id FROM _honker_live WHERE state = 'held' AND id NOT IN (SELECT next_id FROM _honkerx_unique WHERE next_id IS NOT NULL)
  AND id NOT IN (SELECT job_id FROM _honkerx_job WHERE slot = 2) AND id NOT IN (SELECT waiter FROM _honkerx_after WHERE state <> 1)`},
	{"a job that waits for its unique key is held",
		`SELECT next_id FROM _honkerx_unique WHERE next_id IS NOT NULL AND next_id NOT IN (SELECT id FROM _honker_live WHERE state = 'held')`},
	{"a unique key belongs to a live job, or has an end",
		`SELECT job_id FROM _honkerx_unique WHERE (until_ms IS NULL OR next_id IS NOT NULL) AND job_id NOT IN (SELECT id FROM _honker_live)`},
	{"the side row of a job with a unique key names the key",
		`SELECT s.job_id FROM _honkerx_unique AS u JOIN _honkerx_job AS s ON s.job_id IN (u.job_id, u.next_id)
WHERE s.queue IS NOT u.queue OR s.unique_key IS NOT u.key`},
	// A job that has expired or has no attempts left may have lost the key to another job.
	{"a live job has its unique key until it ends",
		`SELECT s.job_id FROM _honkerx_job AS s JOIN _honker_live AS l ON l.id = s.job_id
WHERE s.unique_key IS NOT NULL AND s.unique_until = 0 AND l.expires_at IS NULL AND l.attempts < l.max_attempts
  AND NOT EXISTS (SELECT 1 FROM _honkerx_unique AS u
    WHERE u.queue = s.queue AND u.key = s.unique_key AND s.job_id IN (u.job_id, u.next_id))`},
	{"a job is live or dead, not both",
		`SELECT id FROM _honker_live JOIN _honker_dead USING (id)`},
	{"a done job is not live",
		`SELECT job_id FROM _honkerx_done WHERE job_id IN (SELECT id FROM _honker_live)`},
	{"a queue has the correct count of its retained done jobs",
		`SELECT 0 FROM _honkerx_queues AS k WHERE done_kept <> (SELECT count(*) FROM _honkerx_done AS d WHERE d.queue = k.queue)`},
	{"a queue that retains done jobs counts them",
		`SELECT 0 FROM _honkerx_queues WHERE done_count IS NOT NULL AND (done_kept IS NULL OR done_age_ms IS NULL)`},
	{"an attempt belongs to a live or dead job",
		`SELECT job_id FROM _honkerx_attempts WHERE job_id NOT IN (SELECT id FROM _honker_live) AND job_id NOT IN (SELECT id FROM _honker_dead)`},
	{"a row of _honkerx_job belongs to a live job",
		`SELECT job_id FROM _honkerx_job WHERE job_id NOT IN (SELECT id FROM _honker_live)`},
	{"the trigger of pauses and limits exists if and only if a queue is paused or has limits",
		`SELECT 0 WHERE ` + jobs.AnyGated + ` <> ` + rows.HasTrigger("_honkerx_gate")},
	{"the trigger of rates exists if and only if a queue has a rate",
		`SELECT 0 WHERE ` + jobs.AnyRated + ` <> ` + rows.HasTrigger("_honkerx_rate")},
	{"the triggers of keys exist if and only if a queue limits its keys or a key is paused",
		`SELECT 0 WHERE ` + jobs.AnyKeyed + ` <> ` + rows.HasTrigger("_honkerx_key_gate")},
	{"the side row of a job with a key has its queue and a slot",
		`SELECT s.job_id FROM _honkerx_job AS s JOIN _honker_live AS l ON l.id = s.job_id
WHERE s.key IS NOT NULL AND (s.queue IS NOT l.queue OR s.slot IS NULL) OR s.key IS NULL AND coalesce(s.slot, s.wait) IS NOT NULL`},
	{"the slot of a job matches its state",
		`SELECT s.job_id FROM _honkerx_job AS s JOIN _honker_live AS l ON l.id = s.job_id
WHERE s.slot = 2 AND l.state <> 'held' OR (s.slot = 1) <> (l.state = 'processing') AND ` + rows.HasTrigger("_honkerx_key_gate")},
	{"no job is held for a key that has room", // jobs with slot 0 or 1 already fill the key
		`SELECT h.job_id FROM (SELECT queue, key, min(job_id) AS job_id FROM _honkerx_job WHERE slot = 2 GROUP BY queue, key) AS h
  LEFT JOIN _honkerx_queues AS q ON q.queue = h.queue LEFT JOIN _honkerx_keys AS k ON k.queue = h.queue AND k.key = h.key
WHERE (k.paused_ms IS NULL OR k.until_ms IS NOT NULL) AND q.fit_job IS NULL AND CASE WHEN q.in_order = 1 THEN NOT EXISTS (SELECT 1 FROM _honkerx_job AS s
    WHERE s.queue = h.queue AND s.key = h.key AND (s.slot = 1 OR s.slot = 0 AND s.job_id < h.job_id))
    AND NOT EXISTS (SELECT 1 FROM _honkerx_cancelled AS c WHERE c.queue = h.queue AND c.key = h.key)
  ELSE ifnull(q.per_key, 0) = 0 OR q.per_key > (SELECT count(*) FROM _honkerx_cancelled AS c WHERE c.queue = h.queue AND c.key = h.key) + (SELECT count(*) FROM _honkerx_job AS s JOIN _honker_live AS l ON l.id = s.job_id
    WHERE s.queue = h.queue AND s.key = h.key AND (s.slot = 1 OR s.slot = 0 AND l.state = 'pending')) END`},
	{"a queue has the correct count of its paused keys",
		`SELECT 0 FROM _honkerx_queues AS q WHERE ifnull(keys_paused, 0) <>
  (SELECT count(*) FROM _honkerx_keys AS k WHERE k.queue = q.queue AND k.paused_ms IS NOT NULL)`},
	{"a queue has fit_key or fit_rate only together with fit_job",
		`SELECT 0 FROM _honkerx_queues WHERE fit_job IS NULL AND coalesce(fit_key, fit_rate) IS NOT NULL`},
	{"a cancelled job is not live", // only its slot is left
		`SELECT job_id FROM _honkerx_cancelled WHERE job_id IN (SELECT id FROM _honker_live)`},
	{"claim_ms is set only during a claim",
		`SELECT 0 FROM _honkerx_queues WHERE claim_ms IS NOT NULL`},
	{"only a paused queue has the end, reason and author of a pause",
		`SELECT 0 FROM _honkerx_queues WHERE paused_ms IS NULL AND (until_ms IS NOT NULL OR reason IS NOT NULL OR who IS NOT NULL)`},
	{"a pause ends at a whole second",
		`SELECT 0 FROM _honkerx_queues WHERE until_ms % 1000 <> 0`},
	{"the totals of a minute are the sums over its queues",
		`SELECT minute FROM _honkerx_minutes GROUP BY minute HAVING sum(iif(queue = '', enqueued, -enqueued)) <> 0
  OR sum(iif(queue = '', claimed, -claimed)) <> 0 OR sum(iif(queue = '', acked, -acked)) <> 0 OR sum(iif(queue = '', retried, -retried)) <> 0
  OR sum(iif(queue = '', died, -died)) <> 0 OR sum(iif(queue = '', snoozed, -snoozed)) <> 0 OR sum(iif(queue = '', wait_ms, -wait_ms)) <> 0
  OR sum(iif(queue = '', ran_ms, -ran_ms)) <> 0 OR max(iif(queue = '', max_wait_ms, 0)) <> max(iif(queue = '', 0, max_wait_ms))`},
	{"an audit entry has a verb, a time and a positive count",
		`SELECT id FROM _honkerx_audit WHERE verb = '' OR typeof(n) <> 'integer' OR n < 1 OR typeof(at_ms) <> 'integer'`},
	{"a lock has an owner",
		`SELECT rowid FROM _honker_locks WHERE owner = ''`},
	{"an event claimed by a group is not above the group's cursor",
		`SELECT c.offset FROM _honkerx_group_claims AS c JOIN _honkerx_groups AS g ON g.id = c.group_id WHERE c.offset > g.cursor`},
	{"a member belongs to a group",
		`SELECT group_id FROM _honkerx_group_members WHERE group_id NOT IN (SELECT id FROM _honkerx_groups)`},
	{"the epoch of a group's claim is not above the group's epoch",
		`SELECT c.offset FROM _honkerx_group_claims AS c JOIN _honkerx_groups AS g ON g.id = c.group_id WHERE c.token > g.turn`},
	{"the expiry of a lock is an integer", // SQLite sorts text after all numbers
		`SELECT rowid FROM _honker_locks WHERE typeof(expires_at) <> 'integer'`},
	{"the count of a rate limit's window is a non-negative integer",
		`SELECT rowid FROM _honker_rate_limits WHERE typeof(count) <> 'integer' OR count < 0`},
}

// Check runs SQLite's integrity check and verifies honker's invariants. It returns a line for each violation.
func Check(ctx context.Context, q row.Querier) (broken []string, err error) {
	err = rows.Each(ctx, q, `PRAGMA integrity_check`, func(r *sql.Rows) error {
		var line string
		err := r.Scan(&line)
		if line != "ok" {
			broken = append(broken, line)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, check := range []func(context.Context, row.Querier) ([]string, error){checkJobs, jobs.CheckLinks, relays.Check, dispatches.Check, inboxes.Check, flows.Check} {
		found, err := check(ctx, q)
		if err != nil {
			return nil, err
		}
		broken = append(broken, found...)
	}
	return broken, nil
}

// checkJobs returns the violations in the tables that every file has.
func checkJobs(ctx context.Context, q row.Querier) ([]string, error) {
	return rows.Breaches(ctx, q, invariants)
}
