package row

import "time"

// Unique holds the unique keys of an Insert.
//
// A key belongs to a job and then, when that job ends, to the job that waits for it, if any. No other job can take the
// key before the Keep time has passed, even if both jobs are gone. A job gives up its key when it ends. A job that can
// never run again, because it has expired or has no attempts left, has no key. Of two enqueues with the same key, the
// second must always find the first one's job.
type Unique struct {
	Keys     []string      // a key for each payload
	Started  bool          // release the key when the job is first claimed, not when it ends
	Keep     time.Duration // keep the key for at least this long after the transaction; 0 for no minimum
	Conflict Conflict

	// MaxDelay limits how far an enqueue that finds a job can postpone it: the job runs no later than MaxDelay after
	// its key was taken. 0 means no limit.
	MaxDelay time.Duration
}

// Conflict specifies what an enqueue does when another job holds its key. A changed job gets the payload, priority,
// times and headers of the enqueue, and the enqueue's number of attempts in addition to those it has used. It keeps
// its limits key and batch, loses its progress and checkpoint, and also waits for the enqueue's Links.
type Conflict int

const (
	KeepExisting   Conflict = iota // change nothing
	ReplaceWaiting                 // change the other job if it is waiting
	RunAgain                       // change the other job if it is waiting; if it is running, add a job that runs after it
)
