package row

import "time"

// Outcome is the way in which a claim ended.
type Outcome string

// The outcomes of a claim.
const (
	Acked    Outcome = "acked"
	Retried  Outcome = "retried"
	Died     Outcome = "died"     // moved to the dead letters
	Snoozed  Outcome = "snoozed"  // the attempt does not count
	Released Outcome = "released" // given back by the worker; the attempt does not count
	Lost     Outcome = "lost"     // the worker no longer held the claim

	Cancelled Outcome = "cancelled" // the job was cancelled while the claim held
)

// Settlement ends a claim. It is fenced by all fields of Claim: a claim that no longer holds changes
// nothing. Fields that do not belong to the Outcome are ignored.
type Settlement struct {
	Claim
	Queue   string
	Outcome Outcome // intended; every outcome but Lost

	// Delay is the time after which a retried or snoozed job may run again. It starts with the
	// transaction. A negative Delay counts as zero.
	Delay time.Duration

	// Error describes the failure of a job that is retried or dies, and the reason for a pause with
	// SlowDown. A retry with an empty Error keeps the last error of the job.
	Error string

	// SlowDown pauses the key of a snoozed job until the job may run again, or its queue if the job
	// has no key. An existing pause is never shortened, and keeps the reason given by an operator.
	SlowDown bool

	// Result is the result of an acked job as JSON, or nil for none. It is kept for ResultTTL, or
	// forever if ResultTTL is not positive. If the database refuses to store it, the job is done all
	// the same.
	Result    *string
	ResultTTL time.Duration

	// Progress is saved before the claim ends, or nil to leave the saved progress. An acked job
	// keeps it only if its queue keeps the jobs that are done.
	Progress *Progress

	// Start, Ran and Log describe the attempt. They are recorded together with Error if the job
	// dies, and if it is retried with an Error. A Ran of 0 means that the attempt ends with the
	// transaction.
	Start time.Time
	Ran   time.Duration
	Log   string

	// Ended is set if the claim may have ended before. Its loss is then expected, and does not
	// count as lost in a Step that is not exact.
	Ended bool

	// Running is set if the handler has not returned. A job that turns out to be cancelled then
	// keeps the place that it holds in a queue with limits.
	Running bool

	// Became is set by a Step: the Outcome, Lost, or Died for a retry without attempts left. A
	// settlement with the outcome Cancelled stays Cancelled.
	Became Outcome
	Gone   bool      // set by a Step with Lost: the job is neither live nor dead
	RunAt  time.Time // set by a Step with Retried: when the job may run again
}

// Plain reports whether s only ends its claim, which takes a single statement if no other job waits for
// the job.
func (s *Settlement) Plain() bool {
	if s.Progress != nil {
		return false
	}
	switch s.Outcome {
	case Acked:
		return s.Result == nil
	case Snoozed, Released:
		return !s.SlowDown
	}
	return false
}

// Failed reports whether the attempt that s ended is to be recorded.
func (s *Settlement) Failed() bool {
	return s.Became == Died || s.Became == Retried && s.Error != ""
}

// Step ends claims of a worker and then makes new claims. The order matters, because a job that returns
// to its queue may be the next to run.
type Step struct {
	Settle []*Settlement // must all have the same Worker
	Claim  *ClaimRequest // nil for no claim

	// Alone is set if there is no transaction around the step. The step must then be a single Plain
	// settlement.
	Alone bool

	// Exact requires an outcome for every settlement. Without it, a step that has lost several claims
	// may return [ErrClaimsLost] instead.
	Exact bool
}

// ClaimRequest asks for jobs of one or more queues.
type ClaimRequest struct {
	Lanes  []Lane // the queues to claim from, and the order between them
	Worker string
	N      int           // maximum number of jobs; 0 claims nothing
	Lease  time.Duration // length of the claims from the time of the transaction

	// Largest is the size in bytes of the largest payload that was recently claimed from these queues, or 0
	// if it is not known. A store may use it to bound the payloads of a claim.
	Largest int
}

// Claimed is the outcome of a ClaimRequest.
type Claimed struct {
	Jobs    []*Job  // in the order in which they should run
	Dead    []Death // jobs that the claim has moved to the dead letters, because they can never run
	Lanes   []Lane  // the Lanes of the next claim
	Paused  bool    // there were no jobs, and one of the queues is paused
	More    bool    // the claim has reached a bound of its own, and there may be more jobs
	Largest int     // size in bytes of the largest payload of Jobs
}

// PayloadBytes returns the total size of the payloads of jobs, and the size of the largest.
func PayloadBytes(jobs []*Job) (sum, largest int) {
	for _, j := range jobs {
		size := 0
		switch p := j.Payload.(type) {
		case string:
			size = len(p)
		case []byte:
			size = len(p)
		}
		sum, largest = sum+size, max(largest, size)
	}
	return sum, largest
}
