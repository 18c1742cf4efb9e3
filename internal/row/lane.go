package row

import "slices"

// Lane is a queue that a claim takes jobs from. The lane's next job has the tag Start, and each later job's tag is
// higher by Step. A claim takes jobs in the order of their tags, and jobs with the same tag in claim order: highest
// priority first, then by time and ID.
//
// The tags thus determine the order between queues. [InOneOrder], [InOrder] and [InTurns] return lanes for the usual
// orders.
type Lane struct {
	Queue       string
	Start, Step int64
}

// InOneOrder returns lanes whose jobs are claimed in claim order, as if they were in one queue.
func InOneOrder(queues ...string) []Lane {
	lanes := make([]Lane, len(queues))
	for i, queue := range queues {
		lanes[i].Queue = queue
	}
	return lanes
}

// InOrder returns lanes in which a lane is claimed from only when all earlier lanes have no claimable jobs.
func InOrder(queues ...string) []Lane {
	lanes := InOneOrder(queues...)
	for i := range lanes {
		lanes[i].Start = int64(i)
	}
	return lanes
}

// laneStep is the Step of a lane of weight 1 that takes turns.
const laneStep = 1 << 40

// InTurns returns lanes that share claims in proportion to their weights (start-time fair queueing). queues and
// weights must have the same length.
func InTurns(queues []string, weights []int) []Lane {
	lanes := InOneOrder(queues...)
	for i := range lanes {
		lanes[i].Step = max(1, laneStep/int64(weights[i]))
	}
	return lanes
}

// TakeTurns reports whether a claim changes the lanes, as it does those from InTurns.
func TakeTurns(lanes []Lane) bool {
	return slices.ContainsFunc(lanes, func(l Lane) bool { return l.Step > 0 })
}

// Advance returns lanes as they are after jobs were claimed in the lanes' order. Lanes that take turns are shifted so
// that the tag of the last job becomes 0. A lane without jobs is moved up to that tag, so that it can't later claim
// the share that it left to other lanes.
func Advance(lanes []Lane, jobs []*Job) []Lane {
	if len(jobs) == 0 || !TakeTurns(lanes) {
		return lanes
	}
	lanes = slices.Clone(lanes) // the claim may fail and run again
	var now int64
	for _, j := range jobs {
		i := slices.IndexFunc(lanes, func(l Lane) bool { return l.Queue == j.Queue })
		now = lanes[i].Start
		lanes[i].Start += lanes[i].Step
	}
	for i := range lanes {
		lanes[i].Start = max(0, lanes[i].Start-now)
	}
	return lanes
}
