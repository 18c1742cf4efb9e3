package worker

import (
	"context"
	"slices"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Lanes are the queues of a Source of several. They belong to the goroutine that claims: one
// running Pool.
type Lanes struct {
	Queues []string

	// next are the starts of the lanes' next jobs in virtual time, which is 0 at the last job that
	// was claimed; nil: strict, a lane comes after all those before it.
	next []row.Lane
}

// laneStep is what a job of a lane of weight 1 moves its lane forward in virtual time.
const laneStep = 1 << 40

// StrictLanes are served in their order.
func StrictLanes(queues []string) *Lanes { return &Lanes{Queues: queues} }

// FairLanes share by weights, one for each of queues.
func FairLanes(queues []string, weights []int) *Lanes {
	l := &Lanes{Queues: queues, next: make([]row.Lane, len(queues))}
	for i, name := range queues {
		l.next[i] = row.Lane{Queue: name, Step: max(1, laneStep/int64(weights[i]))}
	}
	return l
}

// claim is a claim of up to n jobs that begins at next, and returns where the one after it does.
func (l *Lanes) claim(ctx context.Context, jobs Jobs, q engine.Querier, next []row.Lane, worker string, n int, nowMS, expires int64) ([]*row.Job, []row.Death, []row.Lane, error) {
	if l.next == nil {
		rows, dead, err := jobs.ClaimStrict(ctx, q, l.Queues, worker, n, nowMS, expires)
		return rows, dead, nil, err
	}
	rows, dead, err := jobs.ClaimFair(ctx, q, next, worker, n, nowMS, expires)
	return rows, dead, advance(next, rows), err
}

// advance is next after rows were claimed, in their order. The virtual time is then that of the
// last of them. A lane that had nothing to give does not stay behind it: what it left to the others
// is not owed to it later.
func advance(next []row.Lane, rows []*row.Job) []row.Lane {
	if len(rows) == 0 {
		return next
	}
	next = slices.Clone(next) // the claim may fail, and begin again
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
