package row

import "time"

// Unique holds the unique keys of an Insert.
//
// A key belongs to a job and then to the job, if any, that waits for the first to end. No other job
// can take the key before the time of Keep, even if both are gone. A job gives up its key at its end, and a
// job that can never run again, because it has expired or has no attempt left, has none. Of two enqueues
// with the same key, the second must always find the job of the first.
type Unique struct {
	Keys     []string      // a key for each of the payloads
	Started  bool          // release the key at the first claim of the job, not at its end
	Keep     time.Duration // keep the key at least for that time after the transaction; 0 for no minimum
	Conflict Conflict

	// MaxDelay limits, in a conflict, the time by which the job may be put off: it runs no later than
	// MaxDelay after the key was taken. 0 means no maximum.
	MaxDelay time.Duration
}

// Conflict is the action of an enqueue when another job holds its key. A job that is changed gets the payload, priority,
// times and headers of the enqueue and its number of attempts on top of those that it has used. It keeps its limits key
// and its batch, loses its progress and checkpoint, and also waits for the Links of the enqueue.
type Conflict int

const (
	KeepExisting   Conflict = iota // change nothing
	ReplaceWaiting                 // change the other job if it is waiting
	RunAgain                       // change the other job if it is waiting; if it is running, add a job that waits for its end
)
