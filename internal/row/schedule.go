package row

import (
	"fmt"
	"time"
)

// Task is a registered schedule.
type Task struct {
	Name        string
	Queue       string
	Spec        string
	Payload     string
	Priority    int64
	MaxAttempts int64
	// ExpiresIn is how long after the task fires its job expires, rounded up to seconds. If it is nil, jobs don't
	// expire. If it is 0, they expire as soon as they are enqueued.
	ExpiresIn *time.Duration
	// NextFire is the time at which the task is next due. Another program may have stored any second, even
	// one that package time cannot compare, so compare its Unix seconds or use Instant.
	NextFire time.Time
	Enabled  bool // false if the task is paused
	Missed   Missed
}

// TaskChange holds a task's new values. A nil field, or an empty Spec, leaves the value unchanged.
type TaskChange struct {
	Spec        string
	NextFire    time.Time // must be set together with Spec
	Payload     *string
	Priority    *int64
	MaxAttempts *int64
	ExpiresIn   *time.Duration // 0 means that jobs do not expire
	Missed      *Missed
}

// Missed is a task's policy for due times that were missed because no process was running.
type Missed int64

// The values are stored and must not change. Unknown values are treated as FireAll.
const (
	FireAll  Missed = iota // fire for each missed time, up to the oldest MaxFires of them
	FireLast               // fire for the last missed time only
	Skip                   // fire only if the last missed time is recent (90 seconds)
)

// Calendar computes when a spec is due. All times are whole seconds, and may be any that time.Unix
// returns.
type Calendar interface {
	// Next returns the first time later than after at which spec is due.
	Next(spec string, after time.Time) (time.Time, error)
	// Last returns the last time up to and including through at which spec is due. spec must be due at first, where
	// the search starts.
	Last(spec string, first, through time.Time) (time.Time, error)
}

// Tick asks for the jobs of the tasks that are due.
type Tick struct {
	Due      time.Time // fire tasks that are due up to this time
	Calendar Calendar
	Limit    int    // stop after this many jobs
	Headers  string // headers of the jobs; may be empty
}

// Fire records that a task was due and that its job was enqueued.
type Fire struct {
	Name, Queue string
	At          time.Time // due time; like Task.NextFire, it may be any second
	Job         int64     // ID of the job
}

// Broken is the error for a task that was due but could not be fired as specified. Two Broken values for a task are
// equal if nothing has changed in between, so that a caller can report each error once.
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

// Ticked is the result of a Tick.
type Ticked struct {
	Fires  []Fire
	Broken []error // each element is a Broken
	More   bool    // more tasks may be due
}

// Jobs returns the IDs of the enqueued jobs.
func (t Ticked) Jobs() []int64 {
	ids := make([]int64, len(t.Fires))
	for i, f := range t.Fires {
		ids[i] = f.Job
	}
	return ids
}
