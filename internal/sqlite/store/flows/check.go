package flows

import (
	"context"
	"fmt"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// invariants hold between any two transactions in the tables of flows.
var invariants = []struct{ rule, query string }{
	{"a run has a flow, an id and a time of its start; it is over if and only if it has an outcome",
		`SELECT 'run ' || quote(id) || ' of flow ' || quote(flow) FROM _honkerx_flow_runs WHERE typeof(flow) <> 'text' OR flow = ''
  OR typeof(id) <> 'text' OR id = '' OR typeof(started_ms) <> 'integer' OR (ended_ms IS NULL) <> (outcome IS NULL)
  OR coalesce(outcome, 'done') NOT IN ('done', 'cancelled') OR cancelled NOT IN (0, 1)`},
	{"a step belongs to a run, and has a kind, a place and a time of its begin",
		`SELECT 'step ' || quote(name) || ' of job ' || job_id FROM _honkerx_flow_steps WHERE job_id NOT IN (SELECT job_id FROM _honkerx_flow_runs)
  OR kind NOT BETWEEN 0 AND 5 OR typeof(seq) <> 'integer' OR seq < 1 OR typeof(began_ms) <> 'integer'`},
	{"a signal belongs to a run and has a value",
		`SELECT 'signal ' || quote(name) || ' to run ' || quote(id) || ' of flow ' || quote(flow) FROM _honkerx_flow_signals
  WHERE (flow, id) NOT IN (SELECT flow, id FROM _honkerx_flow_runs) OR typeof(value) <> 'text' OR typeof(at_ms) <> 'integer'`},
}

// Check returns the violations in the tables of flows, if they exist.
func Check(ctx context.Context, q row.Querier) (broken []string, err error) {
	if there, err := (Flows{}).exists(ctx, q); err != nil || !there {
		return nil, err
	}
	for _, i := range invariants {
		found, err := rows.Texts(ctx, q, i.query)
		if err != nil {
			return nil, err
		}
		for _, row := range found {
			broken = append(broken, fmt.Sprintf("flow: %s: %s", i.rule, row))
		}
	}
	return broken, nil
}
