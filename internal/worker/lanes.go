package worker

import "github.com/honker-go/honker/internal/row"

// Lanes holds the turns of the queues of a Source with several queues. It belongs to a single running Pool and
// may be used only by the goroutine that claims.
type Lanes struct {
	// next holds the virtual start time of each lane's next job, relative to the job that was
	// claimed last. It is nil for strict lanes, which are served in order.
	next []row.Lane
}

// laneStep is the virtual time that a job takes in a lane of weight 1.
const laneStep = 1 << 40

// StrictLanes returns lanes that are served in the order of the queues.
func StrictLanes() *Lanes { return new(Lanes) }

// FairLanes returns lanes whose jobs are claimed in proportion to weights. queues and weights must
// have the same length.
func FairLanes(queues []string, weights []int) *Lanes {
	l := &Lanes{next: make([]row.Lane, len(queues))}
	for i, name := range queues {
		l.next[i] = row.Lane{Queue: name, Step: max(1, laneStep/int64(weights[i]))}
	}
	return l
}
