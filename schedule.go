package honker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker/internal/cron"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Schedule specifies a job and the times at which it is enqueued. Name is unique in the file.
//
// Spec has 5 fields: minute, hour, day of month, month and day of week. An optional sixth field before them specifies
// seconds. A field is a list of values and ranges, or *, with optional steps: "0 9-17/2 * * MON-FRI". Months and days
// may be given by name; Sunday is 0 or 7. "@hourly", "@daily", "@weekly", "@monthly" and "@yearly" stand for the
// first moment of each period. "@every 90s" counts from registration and then from each firing. It takes a number
// with the unit s, m, h or d, or a duration of whole seconds such as 1h30m.
//
// Two rules differ from other cron implementations. They are honker's rules, and its schedulers in other languages
// read the same rows. Both day fields must match: "0 2 1 * 1" fires on the first of a month only if it is a Monday. A
// step requires a range or *: "5/15" means the value 5.
//
// Times are in the local time zone, time.Local, of the process that fires the schedule. A time skipped by a clock
// change fires once the clocks have moved forward. A time that occurs twice fires the second time. On a machine
// without a time zone database, Go uses UTC as the local zone; import time/tzdata to avoid this. Schedules have no
// time zone of their own, because the other bindings would ignore it. A Spec with "?" or CRON_TZ= is invalid
// ([ErrInvalid]).
type Schedule struct {
	Name  string
	Queue string
	Spec  string
	// Payload is the payload of each job, stored as JSON. nil is stored as null, which decodes into a zero
	// value. Options.Codec encodes it once, when the schedule is stored, and each job gets a copy of the result.
	Payload     any
	Priority    int           // jobs with a larger number are claimed first
	MaxAttempts int           // default 25
	ExpiresIn   time.Duration // a job that has not started within this time after its enqueue never starts; 0 means no limit
	Missed      Missed        // default FireAll
}

// Missed specifies how a schedule treats due times that passed while it was paused or while no scheduler was
// running. It is stored in the file for the schedulers of this package. honker's schedulers in other languages
// always fire all missed times.
type Missed int

const (
	FireAll  Missed = iota // fire each missed time, oldest first, up to 64, and skip the rest
	FireLast               // fire only the last missed time
	// Skip fires no missed times. A time up to 90 seconds ago is not considered missed, so that nothing is lost
	// when a process takes over from another that has died.
	Skip
)

func (m Missed) check() error {
	if m < FireAll || m > Skip {
		return fmt.Errorf("%w: unknown Missed %d", ErrInvalid, m)
	}
	return nil
}

// ScheduleInfo is a schedule as stored in the file. Spec is in honker's dialect: "@daily" is stored as "0 0 * * *".
type ScheduleInfo struct {
	Name        string
	Queue       string
	Spec        string
	Payload     json.RawMessage
	Priority    int
	MaxAttempts int
	ExpiresIn   time.Duration // 0 means no limit
	Missed      Missed
	Enabled     bool      // false if paused
	NextFireAt  time.Time // may be in the past, in which case the next Tick fires it

	LastFireAt time.Time // time that LastJob was due, or at which it was triggered; zero if the schedule never fired
	LastJob    int64     // ID of the last job; 0 if there is none
	LastSkipAt time.Time // last time that was skipped because it was missed (see Missed); zero if none was
	Skipped    int64     // number of skipped times; at most 1,000 are counted for a downtime
}

// ScheduleChange contains changes for [Scheduler.Update]. Nil fields are left unchanged.
type ScheduleChange struct {
	Spec        *string // the next firing is computed from the time of the change
	Payload     *any
	Priority    *int
	MaxAttempts *int           // 0 means the default, 25
	ExpiresIn   *time.Duration // 0 means no limit
	Missed      *Missed
}

// calendar interprets specs in the file's dialect and in the local zone.
var calendar cron.Local

// NextAfter returns the first second after from at which spec is due; see [Schedule]. It does not access a file.
// It returns [ErrInvalid] if spec is malformed or never due.
func NextAfter(spec string, from time.Time) (time.Time, error) {
	_, at, err := plan(spec, from)
	return at, fail("schedule", spec, err)
}

// plan converts spec to the file's dialect and returns the first time after from at which it is due.
func plan(spec string, from time.Time) (plain string, next time.Time, err error) {
	plain, next, err = calendar.Plan(spec, from)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return plain, next, nil
}

// task validates sch and converts it to a row that next fires at the first due time after now.
func (s *Scheduler) task(ctx context.Context, sch Schedule, now time.Time) (t row.Task, err error) {
	err = errors.Join(engine.CheckName("schedule name", sch.Name), engine.CheckName("queue name", sch.Queue),
		engine.NotNegative("ExpiresIn", sch.ExpiresIn), checkMaxAttempts(sch.MaxAttempts), sch.Missed.check())
	if err != nil {
		return t, err
	}
	spec, next, err := plan(sch.Spec, now)
	if err != nil {
		return t, err
	}
	payloads, err := engine.Payloads(ctx, s.db.engine, sch.Queue, []any{sch.Payload}, nil)
	if err != nil {
		return t, err
	}
	return row.Task{
		Name: sch.Name, Queue: sch.Queue, Spec: spec, Payload: payloads[0], Missed: row.Missed(sch.Missed),
		Priority: int64(sch.Priority), ExpiresIn: expiresIn(sch.ExpiresIn),
		MaxAttempts: attemptsOr(sch.MaxAttempts, defaultAttempts), NextFire: next,
	}, err
}

func attemptsOr(n, otherwise int) int64 {
	if n == 0 {
		n = otherwise
	}
	return int64(n)
}

// expiresIn converts d for a row.Task, in which nil means no limit.
func expiresIn(d time.Duration) *time.Duration {
	if d == 0 {
		return nil
	}
	return &d
}

// prepare makes the checks that don't require the stored schedule or the current time, and encodes the payload.
func (ch ScheduleChange) prepare(encode func(any) (string, error)) (to row.TaskChange, err error) {
	if ch.Payload != nil {
		var text string
		text, err = encode(*ch.Payload)
		to.Payload = &text
	}
	if ch.Priority != nil {
		n := int64(*ch.Priority)
		to.Priority = &n
	}
	if ch.ExpiresIn != nil {
		err = errors.Join(err, engine.NotNegative("ExpiresIn", *ch.ExpiresIn))
		to.ExpiresIn = ch.ExpiresIn
	}
	if ch.MaxAttempts != nil {
		err = errors.Join(err, checkMaxAttempts(*ch.MaxAttempts))
		n := attemptsOr(*ch.MaxAttempts, defaultAttempts)
		to.MaxAttempts = &n
	}
	if ch.Missed != nil {
		err = errors.Join(err, ch.Missed.check())
		m := row.Missed(*ch.Missed)
		to.Missed = &m
	}
	return to, err
}
