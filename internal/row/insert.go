package row

import "time"

// Insert adds jobs to a queue, one for each payload. The other fields apply to all of them.
type Insert struct {
	Queue       string
	Payloads    []string // as stored
	Priority    int64
	MaxAttempts int64

	// Delay is the time from the transaction until the jobs may run. If it is not positive, they may run from RunAt. If
	// RunAt is zero or has passed, they may run immediately.
	Delay time.Duration
	RunAt time.Time

	// ExpiresIn is the time after the transaction within which the jobs must start. If it is not positive, they must
	// start before ExpiresAt. If ExpiresAt is zero, they never expire.
	ExpiresIn time.Duration
	ExpiresAt time.Time

	Key     string // key that the queue's limits apply to; "" for none
	Headers string // JSON object; "" for none

	Unique *Unique // nil for jobs without a unique key
	Links  *Links  // dependencies and batch; nil for none

	// Offer asks the store to hand the first jobs over to a waiting worker; nil for no such worker.
	Offer *Offer
}

// Plain reports whether the jobs need nothing beyond a plain insert. A single plain job takes a single statement to
// insert.
func (in *Insert) Plain() bool {
	return in.Key == "" && in.Headers == "" && in.Unique == nil && in.Links == nil && in.Offer == nil
}

// Offer is a waiting worker's claim. A store may insert jobs that are already claimed by the worker, provided that a
// claim would have found no other job first. The queue must not be paused or have limits, and the application must have
// no trigger that could change the jobs after they are inserted. The jobs must be due and must have no limits key or
// links. A store may ignore an Offer, which is only an optimization.
type Offer struct {
	Worker string
	N      int // maximum number of jobs
	Lease  time.Duration

	// Queues lists the queues that the worker waits for, or is nil if it waits only for the jobs' own queue. No job
	// is handed over if a job is due in any of them, because the worker decides which comes first.
	Queues []string
}

// Inserted is the outcome of an Insert.
type Inserted struct {
	IDs     []int64  // IDs of the jobs that were added, changed or found, in the order of Payloads
	Places  []Placed // with a unique key: the outcomes, in the same order
	Claimed []*Job   // the jobs handed over to the Offer; they are the first of the inserted jobs
}
