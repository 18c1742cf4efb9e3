package pgsql

import (
	"context"
	"fmt"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// RowSweep returns a sweep that deletes the rows of a table for which where holds at a time, $1. The table's name in
// where is r. The id of a row is its place in the table. A row that has moved since is left to the next look, and a row
// that has taken the place is checked again.
func (s Schema) RowSweep(table, where string) engine.Sweep {
	find := s.SQL(`SELECT (split_part(p, ',', 1)::bigint << 16) | split_part(p, ',', 2)::bigint
FROM (SELECT trim('()' FROM r.ctid::text) AS p FROM honker.` + table + ` r WHERE ` + where + ` LIMIT $2) found`)
	take := s.SQL(`DELETE FROM honker.` + table + ` r WHERE r.ctid = ANY ($2::text[]::tid[]) AND ` + where)
	return engine.Sweep{
		Find: func(ctx context.Context, q row.Querier, _ row.Part, at time.Time, limit int) ([]int64, error) {
			return IDs(ctx, q, find, Replan, Stamp(at), limit)
		},
		Take: func(ctx context.Context, q row.Querier, _ row.Part, ids []int64, at time.Time, limit int) (row.Swept, error) {
			some := ids[:min(len(ids), limit)]
			n, err := Affected(ctx, q, take, Stamp(at), Places(some))
			return row.Swept{N: n, More: len(some) < len(ids)}, err
		},
	}
}

// Places returns the tids of rows with the ids of RowSweep, as text.
func Places(ids []int64) []string {
	all := make([]string, len(ids))
	for i, id := range ids {
		all[i] = fmt.Sprintf("(%d,%d)", id>>16, id&0xffff)
	}
	return all
}
