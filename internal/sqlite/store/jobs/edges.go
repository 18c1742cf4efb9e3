package jobs

import (
	"context"
	"database/sql"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// These statements use _honkerx_after_waiter and the primary key.
var (
	sqlEdgesBefore = edgesBefore(2) + ` UNION ALL ` + edgesBefore(0) + ` UNION ALL ` + edgesBefore(1)
	sqlEdgesAfter  = `SELECT waiter, state FROM _honkerx_after
WHERE job_id = max(?1, 0) AND batch BETWEEN max(-?1, 0) AND iif(?1 < 0, -?1, 9223372036854775807) LIMIT ?2 + 0`
)

func edgesBefore(state int) string {
	return `SELECT * FROM (SELECT iif(job_id > 0, job_id, -batch), state FROM _honkerx_after INDEXED BY _honkerx_after_waiter
  WHERE waiter = ?1 AND state = ` + string(rune('0'+state)) + ` LIMIT ?2 + 0)`
}

// Edges implements [engine.OperatorStore].
func (Jobs) Edges(ctx context.Context, q row.Querier, node int64, limit int) (before, after []row.Neighbor, err error) {
	if before, err = neighbors(ctx, q, sqlEdgesBefore, node, limit); err != nil {
		return nil, nil, err
	}
	after, err = neighbors(ctx, q, sqlEdgesAfter, node, limit)
	return before, after, err
}

func neighbors(ctx context.Context, q row.Querier, query string, node int64, limit int) (all []row.Neighbor, err error) {
	err = rows.Each(ctx, q, query, func(r *sql.Rows) error {
		var id, state int64
		err := r.Scan((*rows.Number)(&id), (*rows.Number)(&state))
		all = append(all, row.Neighbor{Node: id, Dead: state == 2, Done: state == 1})
		return err
	}, node, limit)
	return all[:min(len(all), limit)], err
}
