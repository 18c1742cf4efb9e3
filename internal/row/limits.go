package row

import (
	"time"
)

// Pause keeps the jobs of a queue or key from starting.
type Pause struct {
	Since  time.Time
	Until  time.Time // a whole second; zero if the pause has no end
	Reason string
	By     string
}

// QueueLimits holds the limits of a queue across all processes. A zero field means no limit.
type QueueLimits struct {
	Running int64 // jobs that may run at the same time
	PerKey  int64 // jobs with the same key that may run at the same time
	InOrder bool  // jobs with the same key run one after another, in the order in which they were enqueued
	Rate    StartRate
	KeyRate StartRate // applies to each key separately
}

// StartRate limits job starts to N per Per, with at most Burst at once. The zero StartRate means no limit.
type StartRate struct {
	N     int64
	Per   time.Duration // whole milliseconds
	Burst int64
}

// KeyStats holds a key's job counts.
type KeyStats struct {
	Key                               string
	Running, Cancelled, Held, Waiting int64
	Oldest                            time.Time // enqueue time of the oldest job that is not running; zero if none
	Pause                             *Pause    // nil if the key is not paused
}

// Every returns the time between two starts in milliseconds. N must not be zero.
func (r StartRate) Every() float64 { return float64(r.Per.Milliseconds()) / float64(r.N) }

// QueueState tells whether a claim on a queue would find work and, if not, when it would.
type QueueState struct {
	Queue   string
	Ready   bool      // a claim would find work
	Next    time.Time // time of the next work; zero if none is expected
	Start   time.Time // time at which the queue's rate lets the next due job start; zero if no job is waiting for the rate
	Limited bool      // the queue has limits, so a job that ends may make it ready
}
