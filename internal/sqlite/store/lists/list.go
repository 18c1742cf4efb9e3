package lists

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// List returns the next part of a list, with the jobs in full.
func (Lists) List(ctx context.Context, q row.Querier, r row.ListRequest, now time.Time) (p row.ListPart, err error) {
	s := &selection{r.JobSelect, now.Unix()}
	if p.Places, p.Plan, p.Ended, err = nextPart(ctx, q, s, &r); err != nil {
		return p, err
	}
	p.Jobs, err = loadJobs(ctx, q, s, p.Places)
	return p, err
}

// Scan returns the next part of a list, with the jobs in brief.
func (Lists) Scan(ctx context.Context, q row.Querier, r row.ListRequest, now time.Time) (p row.ScanPart, err error) {
	s := &selection{r.JobSelect, now.Unix()}
	if p.Places, p.Plan, p.Ended, err = nextPart(ctx, q, s, &r); err != nil {
		return p, err
	}
	ids, index := byTable(p.Places, r.IDs)
	found := make(map[int]row.SelectedJob, len(p.Places))
	for in := range ids {
		s.In, s.IDs = in, ids[in]
		jobs, err := selectJobs(ctx, q, s, minID, len(ids[in]))
		if err != nil {
			return p, err
		}
		for _, j := range jobs {
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

// minID is below every id.
const minID = -1 << 63

// look describes when to check how many jobs the selected queues and phases have. The first check finds the few running
// jobs of a long queue. If the jobs are common, a page is full before the second check. If they are neither common nor
// rare, a walk is likely to find some soon.
type look struct {
	after int   // number of candidates to pass before the check
	most  int64 // maximum number of jobs to sort in each part
}

var looks = []look{{0, 1_000}, {512, 20_000}, {8192, 250_000}}

// nextPart returns the candidates of the next part, and whether they are the last.
func nextPart(ctx context.Context, q row.Querier, s *selection, r *row.ListRequest) (found []row.Place, plan row.ListPlan, ended bool, err error) {
	plan = r.Plan
	limit := r.Limit
	byID := r.Order == row.NewestFirst || r.Order == row.OldestFirst
	if byID && !plan.Sorted && plan.Looks < len(looks) && plan.Passed >= looks[plan.Looks].after {
		if plan.Sorted, err = few(ctx, q, s, looks[plan.Looks].most); err != nil {
			return nil, plan, false, err
		}
		if plan.Looks++; plan.Sorted {
			limit = r.Sorted
		}
	}
	found, err = places(ctx, q, s, r.Order, plan.Sorted && s.IDs == nil, r.After, limit)
	plan.Passed += len(found)
	ended = len(found) < limit
	if since := rows.SecondUp(s.DiedSince); r.Order == row.LastDiedFirst && since != 0 {
		// Every later candidate died even earlier.
		died := func(p row.Place) bool { return p.A.Other == "" && p.A.N < since }
		if i := slices.IndexFunc(found, died); i >= 0 {
			found, ended = found[:i], true
		}
	}
	return found, plan, ended, err
}

// A sortKey scans a sort key. Other programs may have stored a value of any type.
type sortKey row.SortKey

// Scan implements sql.Scanner.
func (k *sortKey) Scan(v any) error {
	*k = sortKey{}
	switch v := v.(type) {
	case int64:
		k.N = v
	case float64:
		k.Other = "f" + strconv.FormatFloat(v, 'g', -1, 64)
	case string:
		k.Other = "s" + v
	case []byte:
		k.Other = "x" + hex.EncodeToString(v)
	case nil:
		k.Other = "n"
	default:
		return fmt.Errorf("sort key of type %T", v)
	}
	return nil
}

// keyValue returns a sort key's stored value. It returns NULL for a key that Scan did not make.
func keyValue(k row.SortKey) any {
	if k.Other == "" {
		return k.N
	}
	text := k.Other[1:]
	switch k.Other[0] {
	case 'f':
		if f, err := strconv.ParseFloat(text, 64); err == nil {
			return f
		}
	case 's':
		return text
	case 'x':
		if b, err := hex.DecodeString(text); err == nil {
			return b
		}
	}
	return nil
}
