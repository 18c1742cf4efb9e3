package admin

import (
	"context"
	"slices"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// scan finds the candidates of a list or count in steps until its budget is spent.
type scan struct {
	jobs   engine.OperatorStore
	sel    row.JobSelect
	order  row.Order
	budget time.Duration
	began  time.Time // also the current time for the phases of jobs
	at     *row.Place
	ended  bool // no more candidates

	by     row.Access
	looks  []indexLook // remaining looks
	size   int         // candidates of the next step
	sorted int         // size of the first step with Collect, where each step sorts all jobs in the index
	seen   int
	step   time.Time // start of the last step
}

const (
	mostStep = 4096
	stepTime = 10 * time.Millisecond
)

// indexLook describes when to check how many jobs the selected queues and phases have. If the jobs are
// common, a page is full before the first check. If they are neither common nor rare, a walk is likely to
// find some soon.
type indexLook struct {
	after int   // number of jobs to pass before the check
	most  int64 // maximum number of jobs to sort in each step
}

var indexLooks = []indexLook{{512, 20_000}, {8192, 250_000}}

func newScan(jobs engine.OperatorStore, sel row.JobSelect, order row.Order, budget time.Duration, size, sorted int) *scan {
	s := &scan{jobs: jobs, sel: sel, order: order, budget: budget, size: size, sorted: sorted, began: time.Now()}
	s.sel.Now = s.began.Unix()
	if order == row.NewestFirst || order == row.OldestFirst {
		s.looks = indexLooks
	}
	return s
}

// next returns the candidates after s.at in order.
func (s *scan) next(ctx context.Context, q engine.Querier) ([]row.Place, error) {
	s.step = time.Now()
	if err := s.choose(ctx, q); err != nil {
		return nil, err
	}
	places, err := s.jobs.After(ctx, q, s.sel, s.order, s.by, s.at, s.size)
	s.seen += len(places)
	s.ended = len(places) < s.size
	if s.order == row.LastDiedFirst && s.sel.DiedSince != 0 {
		if i := slices.IndexFunc(places, s.diedBefore); i >= 0 {
			places, s.ended = places[:i], true
		}
	}
	return places, err
}

// diedBefore reports whether a job, and therefore every later candidate, died before DiedSince.
func (s *scan) diedBefore(p row.Place) bool {
	died, isNumber := p.A.(int64)
	return isNumber && died < s.sel.DiedSince
}

// choose switches to the indexes of queues and phases if they have few enough jobs to sort.
func (s *scan) choose(ctx context.Context, q engine.Querier) error {
	if len(s.looks) == 0 || s.seen < s.looks[0].after {
		return nil
	}
	few, err := s.jobs.Few(ctx, q, s.sel, s.looks[0].most)
	s.looks = s.looks[1:]
	if few {
		s.by, s.size, s.looks = row.Collect, s.sorted, nil
	}
	return err
}

// over reports whether the budget is too small for another step. It also adjusts the size of the next step
// to the time the last step took, because payloads may be large.
func (s *scan) over() bool {
	now := time.Now()
	took := now.Sub(s.step)
	switch {
	case took > 2*stepTime:
		s.size = max(1, s.size/2)
	case took < stepTime:
		s.size = min(2*s.size, mostStep)
	}
	return now.Add(took*3/2).Sub(s.began) > s.budget
}
