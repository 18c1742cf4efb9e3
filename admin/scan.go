package admin

import (
	"context"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// scan finds candidates for a list or count in steps until its budget is used up.
type scan struct {
	jobs   engine.OperatorStore
	req    row.ListRequest // request for the next step
	budget time.Duration
	now    time.Time // for the phases of jobs
	began  time.Time // by the clock of the process
	ended  bool      // no more candidates
	size   int       // number of candidates in the next step
	seen   int
	step   time.Time // start of the last step
}

const (
	mostStep = 4096
	stepTime = 10 * time.Millisecond
)

// newScan returns a scan whose first step has size candidates. If the database has to sort all jobs, the
// first step has sorted candidates instead.
func newScan(jobs engine.OperatorStore, now time.Time, sel row.JobSelect, order row.Order, budget time.Duration, size, sorted int) *scan {
	return &scan{jobs: jobs, req: row.ListRequest{JobSelect: sel, Order: order, Sorted: sorted}, budget: budget, size: size, now: now, began: time.Now()}
}

// list returns the next candidates with complete jobs.
func (s *scan) list(ctx context.Context, q engine.Querier) (row.ListPart, error) {
	s.begin()
	p, err := s.jobs.List(ctx, q, s.req, s.now)
	s.passed(p.Places, p.Plan, p.Ended)
	return p, err
}

// scan returns the selected jobs among the next candidates, without all their details.
func (s *scan) scan(ctx context.Context, q engine.Querier) ([]row.SelectedJob, error) {
	s.begin()
	p, err := s.jobs.Scan(ctx, q, s.req, s.now)
	s.passed(p.Places, p.Plan, p.Ended)
	return p.Jobs, err
}

func (s *scan) begin() {
	s.step = time.Now()
	s.req.Limit = s.size
}

// passed advances the scan past a step's candidates.
func (s *scan) passed(places []row.Place, plan row.ListPlan, ended bool) {
	if plan.Sorted && !s.req.Plan.Sorted {
		s.size = s.req.Sorted
	}
	s.req.Plan, s.ended = plan, ended
	s.seen += len(places)
	if len(places) > 0 {
		s.req.After = &places[len(places)-1]
	}
}

// over reports whether the remaining budget is too small for another step. It also adjusts the size of the
// next step based on the duration of the last step, because payloads may be large.
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
