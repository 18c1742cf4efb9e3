package row

import (
	"slices"
	"time"
)

// Pause keeps the jobs of a queue or of a key from starting.
type Pause struct {
	Since  time.Time
	Until  time.Time // a whole second; zero if the pause has no end
	Reason string
	By     string
}

// QueueLimits holds the limits of a queue across all processes. A zero field is no limit.
type QueueLimits struct {
	Running int64 // jobs that may run at the same time
	PerKey  int64 // jobs of a key that may run at the same time
	InOrder bool  // jobs of a key run one after another, in the order of their enqueue
	Rate    StartRate
	KeyRate StartRate // applies to each key separately
}

// StartRate limits job starts to N in Per, with at most Burst at once. The zero StartRate is no limit.
type StartRate struct {
	N     int64
	Per   time.Duration // whole milliseconds
	Burst int64
}

// Lane is a queue that shares a worker with other queues by start-time fair queueing. The next job
// of the lane has the tag Start, and the tag of each later job is higher by Step. Jobs run in the
// order of their tags, so a lane with half the Step gets twice as many jobs.
type Lane struct {
	Queue       string
	Start, Step int64
}

// Advance returns lanes as they are after jobs were claimed in their order. Virtual time then stands at
// the last of these jobs. A lane without jobs is moved up to that time, so that it cannot later
// claim the share that it left to other lanes.
func Advance(lanes []Lane, jobs []*Job) []Lane {
	if len(jobs) == 0 {
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

// KeyStats holds the job counts of a key.
type KeyStats struct {
	Key                               string
	Running, Cancelled, Held, Waiting int64
	Oldest                            time.Time // enqueue time of the oldest job that is not running; zero if none
	Pause                             *Pause    // nil if the key is not paused
}

// Every returns the time between two starts in milliseconds. N must not be zero.
func (r StartRate) Every() float64 { return float64(r.Per.Milliseconds()) / float64(r.N) }

// QueueState reports whether a claim on a queue would find work now, and otherwise when.
type QueueState struct {
	Queue   string
	Ready   bool      // a claim would find work
	Next    time.Time // time of the next work; zero if none is expected
	Start   time.Time // time at which the rate of the queue lets the next due job start; zero if no job waits for the rate
	Limited bool      // the queue has limits, so the end of a job may make it ready
}
