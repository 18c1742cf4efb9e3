package sqlfunc

import (
	"database/sql"
	"database/sql/driver"
	"math"
	"time"

	"github.com/honker-go/honker/internal/cron"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/schedules"
)

// calendar accepts only honker's dialect, and returns honker's error texts.
var calendar cron.Local

func cronNextAfter(c call) (driver.Value, error) {
	return result(c.next(0, c.integer(1)))
}

// next returns the first second after from at which the expression in argument i is due.
func (c call) next(i int, from int64) (int64, error) {
	due, err := calendar.Next(c.text(i), time.Unix(from, 0))
	if err != nil {
		return 0, invalid{err}
	}
	return due.Unix(), nil
}

// defaultAttempts is the number of attempts for a schedule that does not set one.
const defaultAttempts = 3

func schedulerRegister(c call) (driver.Value, error) {
	due, err := c.next(2, c.now())
	if err != nil {
		return nil, err
	}
	t := schedules.Task{ExpiresS: c.integerOrNull(5), Task: row.Task{
		Name: c.text(0), Queue: c.text(1), Spec: c.text(2), Payload: c.text(3), Priority: c.integer(4),
		MaxAttempts: defaultAttempts, NextFire: time.Unix(due, 0),
	}}
	if len(c.args) > 6 {
		t.MaxAttempts = max(1, c.integer(6))
	}
	if changed, err := (schedules.Schedules{}).Put(c.ctx, c.q, t); err != nil || changed {
		return int64(1), err
	}
	// Nothing was written, usually because the task already exists with the same values.
	found, err := schedules.Schedules{}.Tasks(c.ctx, c.q, t.Name, false)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return int64(1), nil
}

func schedulerUnregister(c call) (driver.Value, error) {
	return done(schedules.Schedules{}.Unregister(c.ctx, c.q, c.text(0)))
}

func schedulerPause(c call) (driver.Value, error) {
	return done(schedules.Schedules{}.Enable(c.ctx, c.q, c.text(0), false))
}

func schedulerResume(c call) (driver.Value, error) {
	return done(schedules.Schedules{}.Enable(c.ctx, c.q, c.text(0), true))
}

// schedulerTick fires everything that is due, since its statement is a single transaction. It doesn't fail if a
// schedule can't be parsed, because that would undo the other enqueues. Instead it pauses the schedule, as
// schedulerList then shows. As in honker, the jobs' run_at is the time of the tick.
func schedulerTick(c call) (driver.Value, error) {
	var fires []row.Fire
	for {
		did, err := schedules.Schedules{RunNow: true}.Tick(c.ctx, c.q, row.Tick{Due: time.Unix(c.integer(0), 0), Calendar: calendar, Limit: math.MaxInt}, c.time)
		if err != nil {
			return nil, err
		}
		fires = append(fires, did.Fires...)
		if !did.More {
			return array(fires, fired), nil
		}
	}
}

func fired(f row.Fire) []member {
	return []member{{"fire_at", f.At.Unix()}, {"job_id", f.Job}, {"name", f.Name}, {"queue", f.Queue}}
}

func schedulerSoonest(c call) (driver.Value, error) {
	return result(schedules.Schedules{}.SoonestAt(c.ctx, c.q))
}

func schedulerList(c call) (driver.Value, error) {
	tasks, err := schedules.Schedules{}.Tasks(c.ctx, c.q, "", true)
	if err != nil {
		return nil, err
	}
	return array(tasks, scheduled), nil
}

func scheduled(t schedules.Task) []member {
	return []member{
		{"cron_expr", t.Spec},
		{"enabled", t.Enabled},
		{"expires_s", orNone(t.ExpiresS)},
		{"max_attempts", t.MaxAttempts},
		{"name", t.Name},
		{"next_fire_at", t.NextFire.Unix()},
		{"payload", t.Payload},
		{"priority", t.Priority},
		{"queue", t.Queue},
	}
}

func orNone(n sql.NullInt64) any {
	if !n.Valid {
		return nil
	}
	return n.Int64
}

// schedulerUpdate changes the values that are not NULL. Each of the two values that can be set to NULL has a flag
// that tells whether to change it.
func schedulerUpdate(c call) (driver.Value, error) {
	found, err := schedules.Schedules{}.Tasks(c.ctx, c.q, c.text(0), false)
	if err != nil || len(found) == 0 {
		return done(false, err)
	}
	to, err := c.change()
	if err != nil || to == (schedules.Change{}) {
		return done(false, err)
	}
	return int64(1), schedules.Schedules{}.Change(c.ctx, c.q, c.text(0), to)
}

// change returns the values to change, or the zero value if the arguments change nothing.
func (c call) change() (to schedules.Change, err error) {
	if c.given(1) {
		to.Spec = c.text(1)
		if to.NextFire, err = c.next(1, c.now()); err != nil {
			return to, err
		}
	}
	to.Payload, to.Priority = c.args[2], c.args[3]
	if c.integer(5) != 0 {
		to.Expiry, to.ExpiresS = true, c.args[4]
	}
	if len(c.args) > 6 && c.integer(7) != 0 {
		to.MaxAttempts = int64(defaultAttempts)
		if c.given(6) {
			to.MaxAttempts = max(1, c.integer(6))
		}
	}
	return to, nil
}
