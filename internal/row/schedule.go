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

	LastFire time.Time // due time of the last job, or the time of a later Trigger; zero if the task never fired
	LastJob  int64     // ID of that job
	LastSkip time.Time // last due time that was skipped because it was missed; zero if none was
	Skipped  int64     // number of skipped times, of which a tick counts up to MostSkipped
}

// The bounds of a task that was due many times, such as after a long downtime.
const (
	MaxFires    = 64               // times that fire in a tick; the oldest fire, and the others are skipped
	MostSkipped = 1000             // skipped times that are counted in a tick
	onTime      = 90 * time.Second // how late a task that skips missed times may still fire; a dead leader's lock does not last longer
)

// Firing describes when a task that is due fires.
type Firing struct {
	Times    []time.Time
	Next     time.Time // next due time after the tick
	Skipped  int64     // due times that do not fire and are not replaced by a later time, up to MostSkipped
	LastSkip time.Time // last of the skipped times
}

// Firing returns when t, which is due, fires in a tick for times up to due. It returns an error if in rejects t's spec.
func (t Task) Firing(due time.Time, in Calendar) (f Firing, err error) {
	if t.Missed == FireLast || t.Missed == Skip {
		return t.lastFiring(due, in)
	}
	at := t.NextFire
	for at.Unix() <= due.Unix() && len(f.Times) < MaxFires {
		f.Times = append(f.Times, at)
		if at, err = in.Next(t.Spec, at); err != nil {
			return Firing{}, err
		}
	}
	f.Next = at
	if at.Unix() <= due.Unix() {
		if f.Next, err = in.Next(t.Spec, due); err == nil {
			err = f.skip(t.Spec, at, due, in)
		}
	}
	return f, err
}

// lastFiring is Firing for a task that fires for its last due time, if at all.
func (t Task) lastFiring(due time.Time, in Calendar) (f Firing, err error) {
	last, err := in.Last(t.Spec, t.NextFire, due)
	if err != nil {
		return f, err
	}
	if f.Next, err = in.Next(t.Spec, last); err != nil {
		return f, err
	}
	if t.Missed == FireLast || due.Sub(last) <= onTime {
		f.Times = []time.Time{last}
		due = last.Add(-time.Second)
	}
	if t.Missed == Skip {
		err = f.skip(t.Spec, t.NextFire, due, in)
	}
	return f, err
}

// skip notes the times from first through through at which spec is due. spec must be due at first.
func (f *Firing) skip(spec string, first, through time.Time, in Calendar) (err error) {
	for at := first; at.Unix() <= through.Unix(); f.Skipped++ {
		if f.Skipped == MostSkipped {
			f.LastSkip, err = in.Last(spec, at, through)
			return err
		}
		f.LastSkip = at
		if at, err = in.Next(spec, at); err != nil {
			return err
		}
	}
	return nil
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
