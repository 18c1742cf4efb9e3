package lists

import (
	"context"
	"database/sql"
	"math"
	"slices"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/jobs"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

const (
	sqlListed  = `SELECT ` + jobs.ListedColumns + ` FROM honker.chosen(` + selectionRow + `, $20, $21, $22, $23)`
	sqlScanned = `SELECT id, queue, died_at, coalesce(last_error, ''), attempts < max_attempts FROM honker.chosen(` + selectionRow + `, $20, $21, $22, $23)`
)

// List implements engine.OperatorStore.
func (s Operators) List(ctx context.Context, q row.Querier, r row.ListRequest, now time.Time) (p row.ListPart, err error) {
	if p.Places, p.Plan, p.Ended, err = s.nextPart(ctx, q, &r, now); err != nil {
		return p, err
	}
	p.Jobs = make(map[int]row.Job, len(p.Places))
	ids, index := byTable(p.Places, r.IDs)
	for in := range ids {
		r.IDs = ids[in]
		err := pgsql.Each(ctx, q, s.SQL(sqlListed), func(rows *sql.Rows) error {
			j, err := jobs.ScanListed(rows)
			p.Jobs[index[in][j.ID]] = j
			return err
		}, append(selection(&r.JobSelect), in, minID, len(r.IDs), pgsql.Stamp(now))...)
		if err != nil {
			return p, err
		}
	}
	return p, nil
}

// Scan implements engine.OperatorStore.
func (s Operators) Scan(ctx context.Context, q row.Querier, r row.ListRequest, now time.Time) (p row.ScanPart, err error) {
	if p.Places, p.Plan, p.Ended, err = s.nextPart(ctx, q, &r, now); err != nil {
		return p, err
	}
	ids, index := byTable(p.Places, r.IDs)
	found := make(map[int]row.SelectedJob, len(p.Places))
	for in := range ids {
		r.In, r.IDs = in, ids[in]
		all, err := s.Select(ctx, q, r.JobSelect, minID, len(r.IDs), now)
		if err != nil {
			return p, err
		}
		for _, j := range all {
			found[index[in][j.ID]] = j
		}
	}
	for i := range p.Places {
		if j, is := found[i]; is {
			p.Jobs = append(p.Jobs, j)
		}
	}
	return p, nil
}

// Select implements engine.OperatorStore.
func (s Operators) Select(ctx context.Context, q row.Querier, in row.JobSelect, after int64, limit int, now time.Time) (out []row.SelectedJob, err error) {
	err = pgsql.Each(ctx, q, s.SQL(sqlScanned), func(r *sql.Rows) error {
		var j row.SelectedJob
		var died sql.NullTime
		err := r.Scan(&j.ID, &j.Queue, &died, &j.LastError, &j.Left)
		j.DiedAt = pgsql.Instant(died)
		out = append(out, j)
		return err
	}, append(selection(&in), in.In, after, limit, pgsql.Stamp(now))...)
	return out, err
}

// minID is below every id.
const minID = math.MinInt64

// byTable returns the ids of places and their indexes in at, by table. It leaves out places that are not among only, unless
// that is nil: the candidates in the order of claims or deaths may be any jobs.
func byTable(at []row.Place, only []int64) (ids map[row.Table][]int64, index map[row.Table]map[int64]int) {
	ids, index = make(map[row.Table][]int64), make(map[row.Table]map[int64]int)
	wanted := make(map[int64]bool, len(only))
	for _, id := range only {
		wanted[id] = true
	}
	for i, p := range at {
		if only != nil && !wanted[p.ID] {
			continue
		}
		if index[p.In] == nil {
			index[p.In] = make(map[int64]int)
		}
		ids[p.In] = append(ids[p.In], p.ID)
		index[p.In][p.ID] = i
	}
	return ids, index
}

// look describes when to check how many jobs the selected queues and phases have. If the jobs are common, a page is full
// before the first check. If they are neither common nor rare, a walk is likely to find some soon.
type look struct {
	after int   // number of candidates to pass before the check
	most  int64 // maximum number of jobs to sort in each part
}

var looks = []look{{512, 20_000}, {8192, 250_000}}

// claimed reports whether a selection has only claimed and held jobs of queues. Few jobs of a long queue are, so a walk would pass
// the others first.
func claimed(in *row.JobSelect) bool {
	return len(in.Queues) > 0 && len(in.Phases) > 0 && !slices.ContainsFunc(in.Phases, func(p row.Phase) bool {
		return p != row.PhaseRunning && p != row.PhaseLapsed && p != row.PhaseHeld
	})
}

// nextPart returns the candidates of the next part, and whether they are the last.
func (s Operators) nextPart(ctx context.Context, q row.Querier, r *row.ListRequest, now time.Time) (found []row.Place, plan row.ListPlan, ended bool, err error) {
	plan = r.Plan
	limit := r.Limit
	byID := r.Order == row.NewestFirst || r.Order == row.OldestFirst
	if byID && !plan.Sorted && plan.Looks < len(looks) && (plan.Passed >= looks[plan.Looks].after || plan.Looks == 0 && claimed(&r.JobSelect)) {
		if plan.Sorted, err = s.few(ctx, q, &r.JobSelect, looks[plan.Looks].most, now); err != nil {
			return nil, plan, false, err
		}
		if plan.Looks++; plan.Sorted {
			limit = r.Sorted
		}
	}
	switch {
	case len(r.Tables()) == 0:
	case r.Order == row.ClaimOrder:
		found, err = s.byTurn(ctx, q, r, limit)
	case r.Order == row.LastDiedFirst:
		found, err = s.byDeath(ctx, q, r, limit)
	default:
		found, err = s.byID(ctx, q, r, plan.Sorted && r.IDs == nil, limit, now)
	}
	plan.Passed += len(found)
	ended = len(found) < limit
	if r.Order == row.LastDiedFirst && !r.DiedSince.IsZero() {
		// Every later candidate died even earlier.
		since := pgsql.StampUp(r.DiedSince).UnixMicro()
		if i := slices.IndexFunc(found, func(p row.Place) bool { return p.A.N < since }); i >= 0 {
			found, ended = found[:i], true
		}
	}
	return found, plan, ended, err
}
