package store

import (
	"context"
	"database/sql"
	"fmt"
)

// invariants are the rules that hold between any two transactions, each as a search for
// rows that break it. The searches are full scans, for tests and operators.
var invariants = []struct{ rule, query string }{
	{"a processing job has a worker and a deadline",
		`SELECT id FROM _honker_live WHERE state = 'processing' AND (worker_id IS NULL OR claim_expires_at IS NULL OR attempts < 1)`},
	{"a pending job has neither worker nor deadline",
		`SELECT id FROM _honker_live WHERE state = 'pending' AND (worker_id IS NOT NULL OR claim_expires_at IS NOT NULL)`},
	{"a job is pending or processing",
		`SELECT id FROM _honker_live WHERE state NOT IN ('pending', 'processing')`},
	{"a job is live or dead, not both",
		`SELECT id FROM _honker_live JOIN _honker_dead USING (id)`},
	{"a side row belongs to a live job",
		`SELECT job_id FROM _honkerx_job WHERE job_id NOT IN (SELECT id FROM _honker_live)`},
	{"a lock has an owner",
		`SELECT rowid FROM _honker_locks WHERE owner = ''`},
	{"an event that a group was given lies at or below the group's cursor",
		`SELECT c.offset FROM _honkerx_group_claims AS c JOIN _honkerx_groups AS g ON g.id = c.group_id WHERE c.offset > g.cursor`},
	{"a member belongs to a group",
		`SELECT group_id FROM _honkerx_group_members WHERE group_id NOT IN (SELECT id FROM _honkerx_groups)`},
	{"a claim of a group has an epoch of the past",
		`SELECT c.offset FROM _honkerx_group_claims AS c JOIN _honkerx_groups AS g ON g.id = c.group_id WHERE c.token > g.turn`},
	{"a lock ends at a second", // any text would be later than any number
		`SELECT rowid FROM _honker_locks WHERE typeof(expires_at) <> 'integer'`},
	{"a window of a rate limit counts what it has let through",
		`SELECT rowid FROM _honker_rate_limits WHERE typeof(count) <> 'integer' OR count < 0`},
}

// Check runs SQLite's own integrity check and then honker's invariants, and
// returns what is broken, one line each.
func Check(ctx context.Context, q Querier) (broken []string, err error) {
	err = each(ctx, q, `PRAGMA integrity_check`, func(rows *sql.Rows) error {
		var line string
		err := rows.Scan(&line)
		if line != "ok" {
			broken = append(broken, line)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, i := range invariants {
		err := each(ctx, q, i.query, func(rows *sql.Rows) error {
			var id int64
			err := rows.Scan(&id)
			broken = append(broken, fmt.Sprintf("%s: row %d", i.rule, id))
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	relays, err := checkRelays(ctx, q)
	return append(broken, relays...), err
}
