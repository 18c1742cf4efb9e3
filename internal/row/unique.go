package row

// Unique holds the options of an enqueue with a unique key.
//
// A key belongs to a job and then to the job, if any, that waits for the first to end. No other job
// can take the key before UntilMS, even if both are gone. A store must have a single row per key and
// a single writer at a time, so that the second of two enqueues always finds the row of the first.
type Unique struct {
	Key      string
	Started  bool  // release the key at the first claim of the job, not at its end
	UntilMS  int64 // keep the key at least until then; 0 for no minimum
	Conflict Conflict
	MaxMS    int64  // in a conflict: maximum delay of RunAt after the key was taken, in milliseconds; 0 for no maximum
	Links    *Links // in a conflict: dependencies to add to the job, see AddWaits; nil for none
	NowMS    int64
}

// Conflict is the action of an enqueue when another job holds its key.
type Conflict int

const (
	KeepExisting   Conflict = iota // change nothing
	ReplaceWaiting                 // change the other job if it is waiting
	RunAgain                       // change the other job if it is waiting; if it is running, add a job that waits for its end
)

// These values are stored with a job and determine when it releases its key.
const (
	untilFinished = 0 // at its end
	UntilStarted  = 1 // at its first claim
	HasStarted    = 2 // already released at a first claim that was returned, which the attempts do not show
)

// Until returns the stored value for u, UntilStarted if Started is set.
func (u Unique) Until() int64 {
	if u.Started {
		return UntilStarted
	}
	return untilFinished
}
