package row

import (
	"database/sql"
	"fmt"
)

// Task is a registered schedule.
type Task struct {
	Name        string
	Queue       string
	Spec        string
	Payload     string
	Priority    int64
	ExpiresIn   sql.NullInt64 // seconds after a fire; not valid if its jobs do not expire
	MaxAttempts int64
	NextFire    int64
	Enabled     bool
	Missed      Missed

	Rowid int64 // increases in the order of registration
}

// Missed is the policy of a task for times at which no process fired it.
type Missed int64

// The values are stored and must not change. An unknown value counts as FireAll.
const (
	FireAll  Missed = iota // fire for each missed time, for the oldest MaxFires at most
	FireLast               // fire for the last missed time only
	Skip                   // fire only if the last missed time is recent (90 seconds)
)

// Calendar computes the times at which a spec is due, in unix seconds.
type Calendar interface {
	// Next returns the first time later than after at which spec is due.
	Next(spec string, after int64) (int64, error)
	// Last returns the last time, up to and including through, at which spec is due. Spec must
	// be due at first, where the search starts.
	Last(spec string, first, through int64) (int64, error)
}

// Fire records that a task was due and its job was enqueued.
type Fire struct {
	Name, Queue string
	At          int64 // time at which the task was due
	Job         int64 // id of the job
}

// Broken is the error of a task that was due but could not be fired as specified. Broken values of
// a task compare equal if nothing has changed between them, so a caller can report each error once.
type Broken struct {
	Name   string
	Paused bool
	Err    error
}

// Error returns the message, which names the task.
func (b Broken) Error() string {
	if b.Paused {
		return fmt.Sprintf("schedule %q was paused: %v", b.Name, b.Err)
	}
	return fmt.Sprintf("schedule %q: %v", b.Name, b.Err)
}

// Unwrap returns Err.
func (b Broken) Unwrap() error { return b.Err }

// Ticked is the result of a call to Tick.
type Ticked struct {
	Fires  []Fire
	Broken []error // each element is a Broken
	More   bool    // more tasks may be due
}

// Jobs returns the ids of the enqueued jobs.
func (t Ticked) Jobs() []int64 {
	ids := make([]int64, len(t.Fires))
	for i, f := range t.Fires {
		ids[i] = f.Job
	}
	return ids
}
