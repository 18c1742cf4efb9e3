package row

import (
	"database/sql"
	"encoding/json"
)

// Requeue says how a dead job is to wait again.
type Requeue struct {
	ID       int64
	Queue    string // "": its own
	RunAt    int64
	Attempts int64 // more than it has had; 0: as many as it had been given before it died
	Payload  any   // nil: its own
}

// Requeued is what became of a dead job that was to wait again. The zero Requeued is one that is
// not dead any more.
type Requeued struct {
	Queue   string // the one in which it waits
	Done    bool
	Key     string // with TakenBy: the unique key that another job has
	TakenBy int64
	Live    bool // a live job has its id, so it stays dead
}

// Change is a job that was changed, and its queue.
type Change struct {
	ID    int64
	Queue string
}

// Attempt is one that has failed, of a job that is live or dead.
type Attempt struct {
	Job     int64
	N       int64
	Worker  string
	StartMS int64
	RanMS   int64
	Error   string
	Log     string
}

// PlaceResult is what became of an enqueue with a key.
type PlaceResult string

const (
	PlacedNew      PlaceResult = "new"      // a job was added, and has the key
	PlacedExisting PlaceResult = "existing" // nothing was changed
	PlacedReplaced PlaceResult = "replaced" // the job that waits was changed
	PlacedAgain    PlaceResult = "again"    // a job was added that waits for the one that runs
)

// Placed is the outcome of an enqueue with a key.
type Placed struct {
	ID     int64 // of the job that was added, changed or found
	Result PlaceResult
	Of     Job // the job that had the key, as it was; only its ID and queue when it is gone
}

// Held is the state of a job that waits for another one. No claim sees it, of any binding.
const Held = "held"

// Cutoff is the last of the jobs that are not kept, by its time and id.
type Cutoff struct{ At, ID int64 }

// Death is a job that was dead-lettered without being settled: it had no attempt left, or was
// to start by a time that has passed.
type Death struct {
	Queue    string // with ClaimStrict and ClaimFair
	ID       int64
	Attempts int64
	Worker   string // that held it; empty where it waited
	Reason   string // ReasonExhausted or ReasonExpired
}

// Side is what a job takes along from its enqueue, beyond honker's columns. A plain job has nothing of it,
// and no side row.
type Side struct {
	Key     string // what it shares limits by
	Headers string // a JSON object
}

// None tells whether a job with s is a plain one.
func (s Side) None() bool { return s == Side{} }

// Fate is what became of a job.
type Fate struct {
	Result    sql.NullString
	Dead      bool
	LastError string
	DiedAt    int64
	Attempts  int64
	Live      bool
	Known     bool // the id was given to a job at some time
}

// Phase is where the job is at now. The statements of stats.go count by the same rule, which is
// that of a claim: what is ready or lapsed can be claimed, and what is expired goes to the
// dead letters. A row that was not read has none.
func (j *Job) Phase(now int64) Phase {
	expired := j.ExpiresAt != 0 && j.ExpiresAt <= now
	exhausted := j.Attempts >= j.MaxAttempts
	switch j.State {
	case "pending":
		return waitingPhase(j.RunAt > now, expired, exhausted)
	case "processing":
		return claimedPhase(j.ClaimExpiresAt >= now, expired || exhausted)
	case Held:
		return PhaseHeld
	case "dead":
		return PhaseDead
	case "done":
		return PhaseDone
	}
	return ""
}

// Job is a row of _honker_live, or of _honker_dead where State is "dead", or of _honkerx_done where
// it is "done". A time that a job does not have is 0.
type Job struct {
	ID             int64
	Queue          string
	State          string
	Payload        any // string; []byte where an application stored a BLOB
	Priority       int64
	RunAt          int64
	WorkerID       string
	ClaimExpiresAt int64
	Attempts       int64
	MaxAttempts    int64
	CreatedAt      int64
	ExpiresAt      int64
	LastError      string
	DiedAt         int64
	DoneMS         int64  // with State "done"
	Unique         string // with a claim, Find and Get, as Key, Headers, Batch and Checkpoint
	Key            string
	Headers        string // a JSON object
	Batch          int64
	Checkpoint     string // JSON
	Progress       string // a Progress
}

// NewJob is a job to be inserted, without its payload.
type NewJob struct {
	Queue       string
	Priority    int64
	RunAt       int64
	MaxAttempts int64
	CreatedAt   int64
	ExpiresAt   int64  // 0: never
	Headers     string // see Side; for InsertClaimed to return
}

// Claim names one claim of one job. Every settle is fenced by it: once the claim has
// lapsed, or was followed by another, its worker changes nothing. The worker's name alone would not
// do, since the later claim may be the same worker's.
type Claim struct {
	ID      int64
	Worker  string
	Attempt int64
}

// Progress is how far a handler has said that it is.
type Progress struct {
	Done, Total int64
	Note        string
	AtMS        int64
}

// MarshalJSON is the progress as the file has it.
func (p Progress) MarshalJSON() ([]byte, error) {
	return json.Marshal([4]any{p.Done, p.Total, p.Note, p.AtMS})
}

// UnmarshalJSON reads it.
func (p *Progress) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[4]any{&p.Done, &p.Total, &p.Note, &p.AtMS})
}

// ProgressOf is the progress of a claimed job.
type ProgressOf struct {
	ID, Attempt int64
	Progress
}
