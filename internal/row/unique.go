package row

// Unique is what an enqueue with a unique key says of it.
//
// A key is a row of _honkerx_unique. It belongs to the job job_id, or to next_id, the job that
// waits for that one to end; and until until_ms to no other, even if they are gone. There is
// one row for a key and one writer at a time, so of two enqueues one finds the row of the
// other.
type Unique struct {
	Key      string
	Started  bool  // the job has the key until its first claim; else until it is gone
	UntilMS  int64 // and until then anyway; 0: no longer
	Conflict Conflict
	MaxMS    int64  // with a conflict: RunAt is no later than so long after the key was taken; 0: as it is
	Links    *Links // with a conflict: what the job is to wait for, see AddWaits; nil: nothing
	NowMS    int64
}

// Conflict is what an enqueue does when another job has its key.
type Conflict int

const (
	KeepExisting   Conflict = iota // nothing
	ReplaceWaiting                 // changes the job, if it waits
	RunAgain                       // changes it if it waits; if it runs, adds one that waits for its end
)

// What _honkerx_job.unique_until says of a job's key.
const (
	untilFinished = 0
	UntilStarted  = 1
	HasStarted    = 2 // was untilStarted, and the first claim was given back: its attempt does not tell
)

func (u Unique) Until() int64 {
	if u.Started {
		return UntilStarted
	}
	return untilFinished
}
