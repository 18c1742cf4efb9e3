package row

import (
	"encoding/json"
	"time"
)

// Requeue is a request to return a dead job to a queue.
type Requeue struct {
	ID       int64
	Queue    string    // "" for the job's previous queue
	RunAt    time.Time // rounded up to the database's resolution; zero for immediately
	Attempts int64     // additional attempts; 0 for as many as the job had before it died
	Payload  *string   // nil to keep the payload
}

// Requeued is the outcome of a Requeue. It is zero if the job is no longer dead.
type Requeued struct {
	Queue   string // queue that the job returned to
	Done    bool
	Key     string // with TakenBy: the job's unique key
	TakenBy int64  // job that has since taken the key; 0 if none
	Live    bool   // a live job has the same ID, so the job stays dead
}

// Waiters specifies how to treat jobs that are waiting for a removed job.
type Waiters int

// Ways to treat jobs that are waiting for a removed job.
const (
	ReleaseWaiters Waiters = iota // the removed job counts as done
	DropWaiters                   // also remove the waiting jobs, including those that wait indirectly
	KeepWaiters                   // do not remove jobs that other jobs wait for
)

// CancelJobs is a request to remove live jobs.
type CancelJobs struct {
	IDs     []int64
	Running bool // also remove jobs with a valid claim
	Waiters Waiters
}

// Removed lists removed jobs.
type Removed struct {
	Jobs    []Change
	Waiters []Change // jobs that waited for Jobs and were removed with them
}

// Change identifies a changed job and its queue.
type Change struct {
	ID    int64
	Queue string
}

// Attempt is a failed attempt of a live or dead job.
type Attempt struct {
	Job    int64
	N      int64 // number of the attempt, starting at 1
	Worker string
	Start  time.Time
	Ran    time.Duration
	Error  string
	Log    string
}

// PlaceResult is the effect of an enqueue with a unique key.
type PlaceResult string

const (
	PlacedNew      PlaceResult = "new"      // a job was added and holds the key
	PlacedExisting PlaceResult = "existing" // another job holds the key; nothing was changed
	PlacedReplaced PlaceResult = "replaced" // the waiting job that holds the key was changed
	PlacedAgain    PlaceResult = "again"    // a job was added that runs after the running job
)

// Placed is the outcome of an enqueue with a unique key.
type Placed struct {
	ID     int64 // job that was added, changed or found
	Result PlaceResult
	Of     Job // previous state of the job that held the key; only ID and Queue if it is gone
}

// Held is the state of a job that must wait for other jobs. Claims ignore it, including claims by other
// bindings.
const Held = "held"

// Cutoff identifies the newest job that retention deletes, by time and ID. The zero Cutoff deletes none. See also
// Everything.
type Cutoff struct {
	At time.Time
	ID int64
}

// Death is a job that was dead-lettered without being settled, because it had no attempts left or had
// expired.
type Death struct {
	Queue    string // the job's queue
	ID       int64
	Attempts int64
	Worker   string // worker that held the job; "" if it was waiting
	Reason   string // ReasonExhausted, ReasonExpired or ReasonBuried
}

// Fate is a job's outcome, or its state if it has not ended.
type Fate struct {
	Result    string // JSON
	HasResult bool   // the job has a result that has not expired
	Dead      bool
	LastError string // of a dead job
	DiedAt    time.Time
	Attempts  int64 // of a dead job
	Live      bool
	Known     bool // the ID has been assigned to a job at some time
}

// Phase returns the job's phase at now. It returns "" for a Job that was not read.
//
// The store counts jobs by the same rule, and claims follow it too: a ready or lapsed job can be claimed, and an
// expired job moves to the dead letters.
func (j *Job) Phase(now time.Time) Phase {
	expired := !j.ExpiresAt.IsZero() && !j.ExpiresAt.After(now)
	exhausted := j.Attempts >= j.MaxAttempts
	switch j.State {
	case "pending":
		return waitingPhase(j.RunAt.After(now), expired, exhausted)
	case "processing":
		valid := j.ClaimExpiresAt.Unix() >= now.Unix()
		if j.Fine {
			valid = !now.Truncate(time.Microsecond).After(j.ClaimExpiresAt)
		}
		return claimedPhase(valid, expired || exhausted)
	case Held:
		return PhaseHeld
	case "dead":
		return PhaseDead
	case "done":
		return PhaseDone
	}
	return ""
}

// Job is a job as stored. State is "dead" for a dead letter and "done" for a retained finished job. Times have the
// database's resolution, are within the years 1 to 9999 even if another program has stored other values, and are zero
// if absent.
type Job struct {
	ID             int64
	Queue          string
	State          string
	Payload        any // string, or []byte if an application stored a BLOB
	Priority       int64
	RunAt          time.Time
	WorkerID       string
	ClaimExpiresAt time.Time // the claim is valid through this time, or through this second unless the job is Fine
	Attempts       int64
	MaxAttempts    int64
	CreatedAt      time.Time
	ExpiresAt      time.Time
	LastError      string
	DiedAt         time.Time
	DoneAt         time.Time // with State "done"
	Fine           bool      // times are stored in microseconds, not in seconds

	// Except for Progress, the following fields are set only by a claim, Find and Get.

	Unique     string
	Key        string
	Headers    string // JSON object
	Batch      int64
	Checkpoint string // JSON
	Progress   string // JSON of a Progress

	// StartedAt is the start of the current attempt. It is set only by Find, Get and lists, and zero until a Renewal or
	// an Extension has saved it.
	StartedAt time.Time
}

// Claim identifies a claim on a job. It fences all settling: once the claim has lapsed or the job has been claimed
// again, the worker can't change the job. The worker's name alone is not enough, because the same worker may have
// made the later claim.
type Claim struct {
	ID      int64
	Worker  string
	Attempt int64
}

// Progress is the progress reported by a handler.
type Progress struct {
	Done, Total int64
	Note        string
	At          time.Time // stored in milliseconds, rounded down; zero if none
}

// MarshalJSON encodes p as an array, which is the stored form.
func (p Progress) MarshalJSON() ([]byte, error) {
	var ms int64
	if !p.At.IsZero() {
		ms = p.At.UnixMilli()
	}
	return json.Marshal([4]any{p.Done, p.Total, p.Note, ms})
}

// UnmarshalJSON decodes the form written by MarshalJSON.
func (p *Progress) UnmarshalJSON(text []byte) error {
	var ms int64
	err := json.Unmarshal(text, &[4]any{&p.Done, &p.Total, &p.Note, &ms})
	p.At = InstantMS(ms)
	return err
}

// ProgressOf is the progress of an attempt.
type ProgressOf struct {
	ID, Attempt int64
	Progress
}

// Texts stored in last_error. Other honker bindings display and test them.
const (
	ReasonExhausted = "max attempts exceeded"
	ReasonExpired   = "expired"
	ReasonBuried    = "buried by an operator" // stored only for a job without a last error
)

// ClaimRows is the maximum number of jobs or events that a single claim returns. It is limited because the claim
// holds the write lock. Claiming a thousand small jobs takes a few milliseconds.
const ClaimRows = 1000

// Renewal extends the claims on jobs that Worker still holds.
type Renewal struct {
	Worker   string
	IDs      []int64       // attempts are not needed, because a worker holds at most the latest claim on a job
	Lease    time.Duration // new length of the claims from the time of the transaction; never shortens a claim
	Progress []ProgressOf  // to be saved with the renewal
	Starts   []StartOf     // likewise
}

// StartOf is the start of an attempt.
type StartOf struct {
	ID, Attempt int64
	At          time.Time // stored in milliseconds or finer, rounded down
}

// Started is a running job whose start is stored.
type Started struct {
	Queue   string
	ID      int64
	Worker  string
	Attempt int64
	At      time.Time
}

// Extension sets the end of a claim.
type Extension struct {
	Claim
	Lease    time.Duration // new length of the claim from the time of the transaction, which may be shorter than before
	Progress *Progress     // to be saved with the extension; nil for none
	Start    time.Time     // likewise; zero for none
}

// AckMany acks jobs that a worker holds in a queue, regardless of their attempts.
type AckMany struct {
	Queue, Worker string
	IDs           []int64

	// Alone is set if the ack runs without a transaction. It then skips jobs that other jobs are waiting for.
	Alone bool
}
