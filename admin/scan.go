package admin

import (
	"context"
	"slices"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// scan finds the candidates of one look, some at a time, for as long as its budget lasts.
type scan struct {
	sel    row.JobSelect
	order  row.Order
	budget time.Duration
	began  time.Time // also the moment at which jobs are seen
	at     *row.Place
	ended  bool // there are no more candidates

	by     row.Access
	looks  []indexLook // that are left
	size   int         // candidates of the next step
	sorted int         // of the first one by Collect, each of which costs all that lies there
	seen   int
	step   time.Time // when the last step began
}

const (
	mostStep = 4096
	stepTime = 10 * time.Millisecond
)

// indexLook is a look at how many jobs lie in the queues and phases that are asked for. A page of jobs that are
// not rare is full before the first; where they are not few either, a walk is likely to find some soon.
type indexLook struct {
	after int   // jobs that were passed
	most  int64 // jobs that may lie there: they are sorted for each step
}

var indexLooks = []indexLook{{512, 20_000}, {8192, 250_000}}

func newScan(sel row.JobSelect, order row.Order, budget time.Duration, size, sorted int) *scan {
	s := &scan{sel: sel, order: order, budget: budget, size: size, sorted: sorted, began: time.Now()}
	s.sel.Now = s.began.Unix()
	if order == row.NewestFirst || order == row.OldestFirst {
		s.looks = indexLooks
	}
	return s
}

// next returns the candidates after at, in order.
func (s *scan) next(ctx context.Context, q engine.Querier) ([]row.Place, error) {
	s.step = time.Now()
	if err := s.choose(ctx, q); err != nil {
		return nil, err
	}
	places, err := lists.After(ctx, q, s.sel, s.order, s.by, s.at, s.size)
	s.seen += len(places)
	s.ended = len(places) < s.size
	if s.order == row.LastDiedFirst && s.sel.DiedSince != 0 {
		if i := slices.IndexFunc(places, s.diedBefore); i >= 0 {
			places, s.ended = places[:i], true
		}
	}
	return places, err
}

// diedBefore reports that a job, and all after it, died before the time that is asked for.
func (s *scan) diedBefore(p row.Place) bool {
	died, isNumber := p.A.(int64)
	return isNumber && died < s.sel.DiedSince
}

// choose turns to the indexes of queues and phases where they have few enough jobs to be sorted.
func (s *scan) choose(ctx context.Context, q engine.Querier) error {
	if len(s.looks) == 0 || s.seen < s.looks[0].after {
		return nil
	}
	few, err := lists.Few(ctx, q, s.sel, s.looks[0].most)
	s.looks = s.looks[1:]
	if few {
		s.by, s.size, s.looks = row.Collect, s.sorted, nil
	}
	return err
}

// over reports that the budget would not last for one more step. It makes the next step as large as takes a
// part of the budget: payloads may be large.
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
