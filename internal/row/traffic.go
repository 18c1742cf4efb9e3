package row

// Minute holds the traffic of a queue in a minute, or an amount to add to it. Wait and Ran are sums
// over the jobs and MaxWait is a maximum, all in milliseconds.
type Minute struct {
	Minute                                           int64 // unix time divided by 60
	Queue                                            string
	Enqueued, Claimed, Acked, Retried, Died, Snoozed int64
	Wait, Ran, MaxWait                               int64
}

// Queue names of rows that cover more than a single queue.
const (
	AllQueues   = ""       // totals of the minute
	OtherQueues = "_other" // queues without a row of their own
)
