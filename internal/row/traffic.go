package row

import "time"

// Minute holds a queue's traffic in a single minute or in a step of several minutes, or an amount to add to it.
// Durations are stored in whole milliseconds.
type Minute struct {
	Start                                            time.Time // beginning of the minute or step
	Queue                                            string    // or AllQueues or OtherQueues
	Enqueued, Claimed, Acked, Retried, Died, Snoozed int64
	Wait, Ran                                        time.Duration // sums over the jobs
	MaxWait                                          time.Duration
}

// Queue names of rows that cover more than a single queue.
const (
	AllQueues   = ""       // totals of the minute
	OtherQueues = "_other" // queues without a row of their own
)
