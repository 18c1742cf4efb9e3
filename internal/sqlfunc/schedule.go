package sqlfunc

import (
	"database/sql"
	"database/sql/driver"
	"math"

	"github.com/honker-go/honker/internal/cron"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/store"
)

// calendar accepts only honker's dialect, and returns honker's error texts.
var calendar cron.Local

func cronNextAfter(c call) (driver.Value, error) {
	return result(c.next(0, c.integer(1)))
}

// next returns the first second after from at which the expression in argument i is due.
func (c call) next(i int, from int64) (int64, error) {
	due, err := calendar.Next(c.text(i), from)
	if err != nil {
		return 0, invalid{err}
	}
	return due, nil
}

// defaultAttempts is the number of attempts of a schedule that does not set it.
const defaultAttempts = 3

func schedulerRegister(c call) (driver.Value, error) {
	due, err := c.next(2, c.now())
	if err != nil {
		return nil, err
	}
	t := row.Task{
		Name: c.text(0), Queue: c.text(1), Spec: c.text(2), Payload: c.text(3), Priority: c.integer(4),
		ExpiresIn: c.integerOrNull(5), MaxAttempts: defaultAttempts, NextFire: due,
	}
	if len(c.args) > 6 {
		t.MaxAttempts = max(1, c.integer(6))
	}
	_, err = store.Schedules{}.Register(c.ctx, c.q, t)
	return result(1, err)
}

func schedulerUnregister(c call) (driver.Value, error) {
	return done(store.Schedules{}.Unregister(c.ctx, c.q, c.text(0)))
}

func schedulerPause(c call) (driver.Value, error) {
	return done(store.Schedules{}.Enable(c.ctx, c.q, c.text(0), false))
}

func schedulerResume(c call) (driver.Value, error) {
	return done(store.Schedules{}.Enable(c.ctx, c.q, c.text(0), true))
}

// schedulerTick fires everything that is due, since its statement is a single transaction. It does
// not fail for a schedule that cannot be parsed, because that would undo the other fires. Such a
// schedule is paused, as schedulerList shows. As in honker, jobs get the time of the tick as
// run_at.
func schedulerTick(c call) (driver.Value, error) {
	var fires []row.Fire
	for {
		did, err := store.Schedules{RunNow: true}.Tick(c.ctx, c.q, c.integer(0), c.now(), "", calendar, math.MaxInt)
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
	return []member{{"fire_at", f.At}, {"job_id", f.Job}, {"name", f.Name}, {"queue", f.Queue}}
}

func schedulerSoonest(c call) (driver.Value, error) {
	return result(store.Schedules{}.Soonest(c.ctx, c.q))
}

func schedulerList(c call) (driver.Value, error) {
	tasks, err := store.Schedules{}.List(c.ctx, c.q)
	if err != nil {
		return nil, err
	}
	return array(tasks, scheduled), nil
}

func scheduled(t row.Task) []member {
	return []member{
		{"cron_expr", t.Spec},
		{"enabled", t.Enabled},
		{"expires_s", orNone(t.ExpiresIn)},
		{"max_attempts", t.MaxAttempts},
		{"name", t.Name},
		{"next_fire_at", t.NextFire},
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

// schedulerUpdate changes the values that are not NULL. The two values that can be set to NULL have
// a flag that says whether to change them.
func schedulerUpdate(c call) (driver.Value, error) {
	t, found, err := store.Schedules{}.Get(c.ctx, c.q, c.text(0))
	if err != nil || !found {
		return done(false, err)
	}
	changed, err := c.change(&t)
	if err != nil || !changed {
		return done(false, err)
	}
	return int64(1), store.Schedules{}.Update(c.ctx, c.q, t)
}

// change applies the arguments to t, and reports whether there were any.
func (c call) change(t *row.Task) (changed bool, err error) {
	if c.given(1) {
		t.Spec, changed = c.text(1), true
		if t.NextFire, err = c.next(1, c.now()); err != nil {
			return false, err
		}
	}
	if c.given(2) {
		t.Payload, changed = c.text(2), true
	}
	if c.given(3) {
		t.Priority, changed = c.integer(3), true
	}
	if c.integer(5) != 0 {
		t.ExpiresIn, changed = c.integerOrNull(4), true
	}
	if len(c.args) > 6 && c.integer(7) != 0 {
		t.MaxAttempts, changed = defaultAttempts, true
		if c.given(6) {
			t.MaxAttempts = max(1, c.integer(6))
		}
	}
	return changed, nil
}
