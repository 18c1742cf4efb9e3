package dispatches

import (
	"context"
	"fmt"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// dispatchInvariants hold between any two transactions in package dispatch's tables. Each query selects a description
// of each violation.
var dispatchInvariants = []struct{ rule, query string }{
	{"a job runs as itself, or as one of its copies",
		`SELECT 'job ' || job_id FROM _honkerx_dispatch_jobs AS j WHERE run_id <> job_id
  AND NOT EXISTS (SELECT 1 FROM _honkerx_dispatch_twins WHERE job_id = j.run_id AND sent_id = j.job_id)`},
	{"a copy belongs to a sent job",
		`SELECT 'copy ' || job_id FROM _honkerx_dispatch_twins WHERE sent_id NOT IN (SELECT job_id FROM _honkerx_dispatch_jobs)`},
	{"a claimed job has no other copies",
		`SELECT 'job ' || sent_id FROM (
  SELECT sent_id, job_id FROM _honkerx_dispatch_twins UNION ALL SELECT DISTINCT sent_id, sent_id FROM _honkerx_dispatch_twins) AS c
JOIN _honker_live AS l ON l.id = c.job_id GROUP BY sent_id HAVING count(*) > 1 AND max(l.state = 'processing')`},
	{"a job that waits or runs has not ended",
		`SELECT 'job ' || job_id FROM _honkerx_dispatch_jobs AS j JOIN _honker_live AS l ON l.id = j.run_id WHERE ended_ms IS NOT NULL`},
	{"a job that neither waits nor runs has ended",
		`SELECT 'job ' || job_id FROM _honkerx_dispatch_jobs AS j WHERE ended_ms IS NULL AND NOT EXISTS (SELECT 1 FROM _honker_live WHERE id = j.run_id)`},
	{"a job that was stopped neither waits nor runs",
		`SELECT 'job ' || job_id FROM _honkerx_dispatch_jobs AS j JOIN _honker_live AS l ON l.id = j.run_id WHERE stop_ms IS NOT NULL`},
	{"an actor has a name, an owner and an expiry",
		`SELECT 'actor ' || key FROM _honkerx_dispatch_presence WHERE key = '' OR owner = '' OR typeof(expires_ms) <> 'integer' OR NOT json_valid(value)`},
}

// Check returns the violations in package dispatch's tables, if they exist.
func Check(ctx context.Context, q row.Querier) (broken []string, err error) {
	d := Dispatches{}
	there, err := d.objects(ctx, q)
	if err != nil || !there[dispatchPresence] {
		return nil, err
	}
	for _, i := range dispatchInvariants {
		found, err := rows.Texts(ctx, q, i.query)
		if err != nil {
			return nil, err
		}
		for _, what := range found {
			broken = append(broken, fmt.Sprintf("dispatch: %s: %s", i.rule, what))
		}
	}
	missing, err := d.missing(ctx, q, there)
	return append(broken, missing...), err
}

// missing returns the triggers that the tables' rows need but that do not exist. A backup tool or one
// of the application's migrations may have dropped them.
func (Dispatches) missing(ctx context.Context, q row.Querier, there map[string]bool) (broken []string, err error) {
	for _, need := range dispatchNeeds {
		needed := false
		if _, err := rows.One(ctx, q, need.query, nil, &needed); err != nil {
			return nil, err
		}
		for _, trigger := range dispatchParts[need.part].triggers {
			if needed && !there[trigger] {
				broken = append(broken, "dispatch: the triggers that sent jobs need exist: "+trigger)
			}
		}
	}
	return broken, nil
}
