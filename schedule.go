package honker

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker/internal/cron"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Schedule says when which job is enqueued. Name is unique in the file.
//
// Spec is 5 fields, minute, hour, day of month, month, day of week, or 6 with the second
// before them. A field is a list of values and ranges, or *, with steps: "0 9-17/2 * * MON-FRI".
// Months and days may be named; Sunday is 0 or 7. "@hourly", "@daily", "@weekly", "@monthly"
// and "@yearly" are short for the first moment of each. "@every 90s" counts from the
// registration, then from each fire: a number with the unit s, m, h or d, or a duration of
// whole seconds such as 1h30m.
//
// Two rules come from honker, since its schedulers in other languages read the same rows, and
// differ from other crons. Both day fields have to match: "0 2 1 * 1" fires on the first of a
// month only if that is a Monday. And a step needs a range or *: "5/15" is the value 5.
//
// Times are those of the local zone of the process that fires, time.Local: a time that a zone
// skips fires when the clocks have moved on, one that it has twice fires the second time.
// Where the machine has no zones, Go takes UTC for local: import time/tzdata. A schedule has
// no zone of its own, because no other binding would know of it; "?" and CRON_TZ= are
// [ErrInvalid].
type Schedule struct {
	Name        string
	Queue       string
	Spec        string
	Payload     any           // of each job, as JSON; nil is null, which decodes into a zero value. What Options.Codec makes of it is kept, and copied to each job
	Priority    int           // larger first
	MaxAttempts int           // default 25
	ExpiresIn   time.Duration // not started so long after it was enqueued: never started; 0: none
	Missed      Missed        // default FireAll
}

// Missed is what a schedule does with times that have passed while no scheduler ran, or while
// it was paused. It is kept in the file for schedulers of this package; honker's in other
// languages always fire all.
type Missed int

const (
	FireAll  Missed = iota // each of them, the oldest 64 at most, and passes over the others
	FireLast               // only the last of them
	Skip                   // none; a time that is up to 90 seconds over counts as now, so that nothing is lost when another process takes over from one that died
)

func (m Missed) check() error {
	if m < FireAll || m > Skip {
		return fmt.Errorf("%w: Missed %d", ErrInvalid, m)
	}
	return nil
}

// ScheduleInfo is a schedule as it is in the file. Spec is in honker's dialect, "0 0 * * *" for
// "@daily".
type ScheduleInfo struct {
	Name        string
	Queue       string
	Spec        string
	Payload     json.RawMessage
	Priority    int
	MaxAttempts int
	ExpiresIn   time.Duration // 0: none
	Missed      Missed
	Enabled     bool      // false: paused
	NextFireAt  time.Time // may be over: the next Tick fires it
}

// ScheduleChange is what [Scheduler.Update] changes; nil leaves a field as it is.
type ScheduleChange struct {
	Spec        *string // the next fire is computed from now
	Payload     *any
	Priority    *int
	MaxAttempts *int           // 0: the default, 25
	ExpiresIn   *time.Duration // 0: none
	Missed      *Missed
}

// calendar has the dialect of the file and the local zone.
var calendar cron.Local

// NextAfter returns the first second after from at which spec is due, see [Schedule]. It
// reads no file. A spec that makes no sense, or is never due, is [ErrInvalid].
func NextAfter(spec string, from time.Time) (time.Time, error) {
	_, at, err := plan(spec, from)
	return at, fail("schedule", spec, err)
}

// plan returns spec in the dialect of the file, and when it is due first after from.
func plan(spec string, from time.Time) (plain string, next time.Time, err error) {
	plain, next, err = calendar.Plan(spec, from)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return plain, next, nil
}

// task checks sch and turns it into a row that is due next after now.
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
	text, err := s.db.encode(sch.Payload)
	if err != nil {
		return t, err
	}
	text, err = s.db.engine.EncodeJob(ctx, sch.Queue, text)
	return row.Task{
		Name: sch.Name, Queue: sch.Queue, Spec: spec, Payload: text, Missed: row.Missed(sch.Missed),
		Priority: int64(sch.Priority), ExpiresIn: expiresIn(sch.ExpiresIn),
		MaxAttempts: attemptsOr(sch.MaxAttempts, defaultAttempts), NextFire: next.Unix(),
	}, err
}

func attemptsOr(n, otherwise int) int64 {
	if n == 0 {
		n = otherwise
	}
	return int64(n)
}

// expiresIn is what is stored for d. A 0 in the file is no NULL: honker's SQL functions store it
// as it is given, and the jobs expire with the second in which they are enqueued.
func expiresIn(d time.Duration) sql.NullInt64 {
	return sql.NullInt64{Int64: engine.Seconds(d), Valid: d > 0}
}

// prepare checks what can be checked without the schedule.
func (ch ScheduleChange) prepare(encode func(any) (string, error)) (apply func(*row.Task, time.Time) error, err error) {
	var text string
	if ch.Payload != nil {
		text, err = encode(*ch.Payload)
	}
	if ch.ExpiresIn != nil {
		err = errors.Join(err, engine.NotNegative("ExpiresIn", *ch.ExpiresIn))
	}
	if ch.MaxAttempts != nil {
		err = errors.Join(err, checkMaxAttempts(*ch.MaxAttempts))
	}
	if ch.Missed != nil {
		err = errors.Join(err, ch.Missed.check())
	}
	return func(t *row.Task, now time.Time) error { return ch.apply(t, text, now) }, err
}

func (ch ScheduleChange) apply(t *row.Task, text string, now time.Time) error {
	if ch.Payload != nil {
		t.Payload = text
	}
	if ch.Priority != nil {
		t.Priority = int64(*ch.Priority)
	}
	if ch.MaxAttempts != nil {
		t.MaxAttempts = attemptsOr(*ch.MaxAttempts, defaultAttempts)
	}
	if ch.ExpiresIn != nil {
		t.ExpiresIn = expiresIn(*ch.ExpiresIn)
	}
	if ch.Missed != nil {
		t.Missed = row.Missed(*ch.Missed)
	}
	if ch.Spec == nil {
		return nil
	}
	spec, next, err := plan(*ch.Spec, now)
	t.Spec, t.NextFire = spec, next.Unix()
	return err
}
