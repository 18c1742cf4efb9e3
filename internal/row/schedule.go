package row

import (
	"database/sql"
	"fmt"
)

// Task is a row of _honker_scheduler_tasks.
type Task struct {
	Name        string
	Queue       string
	Spec        string
	Payload     string
	Priority    int64
	ExpiresIn   sql.NullInt64 // seconds; NULL: never
	MaxAttempts int64
	NextFire    int64
	Enabled     bool
	Missed      Missed

	Rowid int64 // rises in the order of registration
}

// Missed is what a task does with times that have passed while nothing fired it.
type Missed int64

// The numbers stand in the file. Any other one is FireAll.
const (
	FireAll  Missed = iota // the oldest MaxFires of them
	FireLast               // the last one
	Skip                   // the last one if it was a moment ago
)

// Calendar knows when a spec is due, in unix seconds.
type Calendar interface {
	// Next returns the first second after another at which spec is due.
	Next(spec string, after int64) (int64, error)
	// Last returns the last second until through at which spec is due, counted from first, at
	// which it is due.
	Last(spec string, first, through int64) (int64, error)
}

// Fire is a task that was due and became a job.
type Fire struct {
	Name, Queue string
	At          int64 // when it was due
	Job         int64
}

// Broken is the error of a task that was due and could not be fired as it says. Two of one task
// are equal where nothing has changed between them.
type Broken struct {
	Name   string
	Paused bool
	Err    error
}

func (b Broken) Error() string {
	if b.Paused {
		return fmt.Sprintf("schedule %q was paused: %v", b.Name, b.Err)
	}
	return fmt.Sprintf("schedule %q: %v", b.Name, b.Err)
}

// Unwrap returns the cause.
func (b Broken) Unwrap() error { return b.Err }

// Ticked is what one call of Tick has done.
type Ticked struct {
	Fires  []Fire
	Broken []error // each is a Broken
	More   bool    // other tasks may be due
}

// Jobs are the ids of the jobs of the fires.
func (t Ticked) Jobs() []int64 {
	ids := make([]int64, len(t.Fires))
	for i, f := range t.Fires {
		ids[i] = f.Job
	}
	return ids
}
