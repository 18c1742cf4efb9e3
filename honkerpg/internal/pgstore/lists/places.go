package lists

import (
	"context"
	"database/sql"
	"math"
	"slices"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

const (
	sqlPlacesByID    = `SELECT id, tbl FROM honker.places_by_id(` + selectionRow + `, $20, $21, $22)`
	sqlPlacesByTurn  = `SELECT id, priority, run_at FROM honker.places_by_turn($1, $2, $3, $4, $5)`
	sqlPlacesByDeath = `SELECT id, died_at FROM honker.places_by_death($1, $2, $3, $4)`

	sqlSortedPlaces = `SELECT id, tbl FROM honker.places_in(` + selectionRow + `, NULL, $20) p
WHERE CASE WHEN $21 THEN p.id <= ($22::bigint[])[p.tbl + 1] ELSE p.id >= ($22::bigint[])[p.tbl + 1] END
ORDER BY CASE WHEN $21 THEN -p.id ELSE p.id END, tbl LIMIT $23`

	sqlFew = `SELECT count(*) <= $20 FROM honker.places_in(` + selectionRow + `, $20::bigint + 1, $21)`
)

// byID returns up to n candidates in the order of their ids. If sorted is set, it reads the jobs of the selected queues
// and phases and sorts them. Otherwise it walks the primary keys.
func (s Operators) byID(ctx context.Context, q row.Querier, r *row.ListRequest, sorted bool, n int, now time.Time) (found []row.Place, err error) {
	newest := r.Order == row.NewestFirst
	query, args := sqlPlacesByID, append(selection(&r.JobSelect), newest, bounds(r, newest), n)
	if sorted {
		query, args = sqlSortedPlaces, append(selection(&r.JobSelect), pgsql.Stamp(now), newest, bounds(r, newest), n)
	}
	err = pgsql.Each(ctx, q, s.SQL(query), func(rows *sql.Rows) error {
		var p row.Place
		err := rows.Scan(&p.ID, &p.In)
		found = append(found, p)
		return err
	}, args...)
	slices.SortFunc(found, r.Order.CompareIDs)
	return found, err
}

// bounds returns the first id of each table that follows r.After, or NULL for a table that is not selected. In the tables
// after the place's own, the same id also follows.
func bounds(r *row.ListRequest, newest bool) []*int64 {
	all := make([]*int64, 3)
	for _, in := range r.Tables() {
		step, first := int64(1), int64(math.MinInt64)
		if newest {
			step, first = -1, math.MaxInt64
		}
		if r.After != nil {
			first = r.After.ID
			if in <= r.After.In {
				first += step
			}
		}
		all[in] = &first
	}
	return all
}

// few reports whether the queues and phases of a selection contain at most most jobs. It returns false without counting
// if the selection names ids, or if it names no queues and either no phases or only phases of finished jobs.
func (s Operators) few(ctx context.Context, q row.Querier, in *row.JobSelect, most int64, now time.Time) (few bool, err error) {
	if in.IDs != nil || len(in.Queues) == 0 && (in.Phases == nil || !slices.Contains(in.Tables(), row.Live)) {
		return false, nil
	}
	_, err = pgsql.One(ctx, q, s.SQL(sqlFew), append(selection(in), most, pgsql.Stamp(now)), &few)
	return few, err
}

// byTurn returns up to n candidates in the order in which claims take them.
func (s Operators) byTurn(ctx context.Context, q row.Querier, r *row.ListRequest, n int) (found []row.Place, err error) {
	var level sql.NullInt64
	var due sql.NullTime
	var after sql.NullInt64
	if a := r.After; a != nil {
		level, after = sql.NullInt64{Int64: a.A.N, Valid: true}, sql.NullInt64{Int64: a.ID, Valid: true}
		due = sql.NullTime{Time: time.UnixMicro(a.B.N), Valid: true}
	}
	err = pgsql.Each(ctx, q, s.SQL(sqlPlacesByTurn), func(rows *sql.Rows) error {
		var p row.Place
		var due time.Time
		err := rows.Scan(&p.ID, &p.A.N, &due)
		p.B.N = due.UnixMicro()
		found = append(found, p)
		return err
	}, r.Queues[0], level, due, after, n)
	return found, err
}

// byDeath returns up to n candidates in the order of their deaths, the last first.
func (s Operators) byDeath(ctx context.Context, q row.Querier, r *row.ListRequest, n int) (found []row.Place, err error) {
	died, before := pgsql.Stamp(time.UnixMicro(math.MaxInt64)), int64(math.MaxInt64)
	switch {
	case r.After != nil:
		died, before = time.UnixMicro(r.After.A.N), r.After.ID
	case !r.DiedBefore.IsZero():
		died, before = pgsql.StampUp(r.DiedBefore), math.MinInt64
	}
	err = pgsql.Each(ctx, q, s.SQL(sqlPlacesByDeath), func(rows *sql.Rows) error {
		p := row.Place{In: row.Dead}
		var died time.Time
		err := rows.Scan(&p.ID, &died)
		p.A.N = died.UnixMicro()
		found = append(found, p)
		return err
	}, queuesOf(&r.JobSelect), died, before, n)
	return found, err
}
