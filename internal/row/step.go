package row

import "time"

// Outcome is how a claim ended.
type Outcome string

// The outcomes of a claim.
const (
	Acked    Outcome = "acked"
	Retried  Outcome = "retried"
	Died     Outcome = "died"     // moved to the dead letters
	Snoozed  Outcome = "snoozed"  // the attempt does not count
	Released Outcome = "released" // given back by the worker; the attempt does not count
	Lost     Outcome = "lost"     // the worker no longer held the claim

	Cancelled Outcome = "cancelled" // the job was cancelled while it was claimed
)

// Settlement ends a claim. It is fenced by all fields of Claim: if the claim is no longer valid, it changes nothing.
// Fields that do not apply to the Outcome are ignored.
type Settlement struct {
	Claim
	Queue   string
	Outcome Outcome // requested outcome; any but Lost

	// Delay is how long after the transaction a retried or snoozed job may run again. A negative Delay counts as
	// zero.
	Delay time.Duration

	// Error is why a job is retried or dies, and the reason for a pause by SlowDown. A retry with an
	// empty Error keeps the job's last error.
	Error string

	// SlowDown pauses the snoozed job's key until the job may run again, or its queue if the job has no
	// key. It never shortens an existing pause, and keeps an operator's reason.
	SlowDown bool

	// Result is an acked job's result as JSON, or nil for none. It is kept for ResultTTL, or forever if ResultTTL is
	// not positive. If the database refuses to store it, the job is still done.
	Result    *string
	ResultTTL time.Duration

	// Progress is saved before the claim ends; nil leaves the saved progress unchanged. An acked job
	// keeps it only if its queue keeps done jobs.
	Progress *Progress

	// Start, Ran and Log describe the attempt. They are recorded together with Error if the job dies,
	// or if it is retried with an Error. If Ran is 0, the attempt ends with the transaction.
	Start time.Time
	Ran   time.Duration
	Log   string

	// Ended is set if the claim may already have ended. It is then expected to be lost, and doesn't count as lost in
	// a Step without Exact.
	Ended bool

	// Running is set if the handler has not returned. If the job turns out to have been cancelled, it keeps its slot
	// in a queue with limits.
	Running bool

	// Became is set by a Step: to the Outcome, to Lost, or to Died for a retry without attempts left. A
	// settlement with the outcome Cancelled stays Cancelled.
	Became Outcome
	Gone   bool      // set by a Step with Lost: the job is neither live nor dead
	RunAt  time.Time // set by a Step with Retried: when the job may run again
}

// Plain reports whether s only ends its claim, which takes a single statement if no other job is waiting for the job.
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

// Failed reports whether the attempt ended by s must be recorded.
func (s *Settlement) Failed() bool {
	return s.Became == Died || s.Became == Retried && s.Error != ""
}

// Step ends a worker's claims and then makes new claims. The order matters, because a job that returns
// to its queue may be the next to run.
type Step struct {
	Settle []*Settlement // must all have the same Worker
	Claim  *ClaimRequest // nil for no claim

	// Alone is set if the step runs without a transaction. The step must then be a single Plain
	// settlement.
	Alone bool

	// Exact requires an outcome for every settlement. Without it, a step that has lost several claims
	// may return [ErrClaimsLost] instead.
	Exact bool
}

// ClaimRequest asks for jobs from one or more queues.
type ClaimRequest struct {
	Lanes  []Lane // the queues to claim from, and the order between them
	Worker string
	N      int           // maximum number of jobs; 0 claims nothing
	Lease  time.Duration // length of the claims from the time of the transaction

	// Largest is the size in bytes of the largest payload recently claimed from these queues, or 0 if
	// unknown. A store may use it to bound a claim's payloads.
	Largest int
}

// Claimed is the outcome of a ClaimRequest.
type Claimed struct {
	Jobs    []*Job  // in the order in which they should run
	Dead    []Death // jobs that the claim dead-lettered because they can never run
	Lanes   []Lane  // lanes for the next claim
	Paused  bool    // there were no jobs, and at least one of the queues is paused
	More    bool    // the claim reached one of its own limits; there may be more jobs
	Limited bool    // a queue has limits; only a database whose claims report it sets it
	Largest int     // size in bytes of the largest payload in Jobs
}

// PayloadBytes returns the total size of the payloads of jobs and the size of the largest.
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
