package worker

import (
	"context"
	"slices"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Lanes holds the queues of a Source with several queues. It belongs to a single running Pool and
// may be used only by the goroutine that claims.
type Lanes struct {
	Queues []string

	// next holds the virtual start time of each lane's next job, relative to the job that was
	// claimed last. It is nil for strict lanes, which are served in order.
	next []row.Lane
}

// laneStep is the virtual time that a job takes in a lane of weight 1.
const laneStep = 1 << 40

// StrictLanes returns lanes that are served in the order of queues.
func StrictLanes(queues []string) *Lanes { return &Lanes{Queues: queues} }

// FairLanes returns lanes whose jobs are claimed in proportion to weights. queues and weights must
// have the same length.
func FairLanes(queues []string, weights []int) *Lanes {
	l := &Lanes{Queues: queues, next: make([]row.Lane, len(queues))}
	for i, name := range queues {
		l.next[i] = row.Lane{Queue: name, Step: max(1, laneStep/int64(weights[i]))}
	}
	return l
}

// claim claims up to n jobs, starting from the virtual times in next. It also returns the virtual
// times for the following claim.
func (l *Lanes) claim(ctx context.Context, jobs engine.JobStore, q engine.Querier, next []row.Lane, worker string, n int, nowMS, expires int64) ([]*row.Job, []row.Death, []row.Lane, error) {
	if l.next == nil {
		rows, dead, err := jobs.ClaimStrict(ctx, q, l.Queues, worker, n, nowMS, expires)
		return rows, dead, nil, err
	}
	rows, dead, err := jobs.ClaimFair(ctx, q, next, worker, n, nowMS, expires)
	return rows, dead, advance(next, rows), err
}

// advance returns next as it is after rows were claimed in their order. Virtual time then stands at
// the last of these jobs. A lane without jobs is moved up to that time, so that it cannot later
// claim the share that it left to other lanes.
func advance(next []row.Lane, rows []*row.Job) []row.Lane {
	if len(rows) == 0 {
		return next
	}
	next = slices.Clone(next) // the claim may fail and run again
	var now int64
	for _, r := range rows {
		i := slices.IndexFunc(next, func(l row.Lane) bool { return l.Queue == r.Queue })
		now = next[i].Start
		next[i].Start += next[i].Step
	}
	for i := range next {
		next[i].Start = max(0, next[i].Start-now)
	}
	return next
}
