package row

// Pause keeps the jobs of a queue from starting.
type Pause struct {
	SinceMS int64
	UntilMS int64 // a whole second; 0: until it is ended
	Reason  string
	By      string
}

// QueueLimits hold for a queue, in all processes. 0 is no bound.
type QueueLimits struct {
	Running int64 // jobs that run at a time
	PerKey  int64 // jobs of one key that do
	InOrder bool  // jobs of a key run one at a time, as they were enqueued
	Rate    StartRate
	KeyRate StartRate // of each key
}

// StartRate is how many jobs may start: N in PerMS, Burst of them at once. The zero StartRate is no bound.
type StartRate struct{ N, PerMS, Burst int64 }

// Lane is a queue that shares a worker with others, by start-time fair queueing: each of its jobs
// has a tag, Start for the next one and Step more for each after that, and jobs run in the order of
// their tags. A lane with half the Step gets twice the jobs.
type Lane struct {
	Queue       string
	Start, Step int64
}

// KeyStats is what there is of a key.
type KeyStats struct {
	Key                               string
	Running, Cancelled, Held, Waiting int64
	Oldest                            int64 // when the oldest was enqueued that does not run; 0: none
	Pause                             *Pause
}

// every is the time from one start to the next.
func (r StartRate) Every() float64 { return float64(r.PerMS) / float64(r.N) }

// QueueState says whether a claim on a queue would find something to do now, and when it
// will otherwise.
type QueueState struct {
	Queue   string
	Ready   bool
	Next    int64 // unix seconds; 0: nothing is coming
	StartMS int64 // when its rate lets the next job start that is due, in unix milliseconds; 0: it has room, or nothing waits for it
	Limited bool  // it has limits, so the end of a job may make it ready
}
