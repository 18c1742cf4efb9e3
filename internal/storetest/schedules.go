package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

func schedules(t *testing.T, open func(t *testing.T) *Fixture) {
	t.Run("Register", func(t *testing.T) { scheduleRegister(t, open(t)) })
	t.Run("Update", func(t *testing.T) { scheduleUpdate(t, open(t)) })
	t.Run("FiresEachTimeOnce", func(t *testing.T) { scheduleFires(t, open(t)) })
	t.Run("Missed", func(t *testing.T) { scheduleMissed(t, open) })
	t.Run("Limit", func(t *testing.T) { scheduleLimit(t, open(t)) })
	t.Run("Paused", func(t *testing.T) { schedulePaused(t, open(t)) })
	t.Run("Broken", func(t *testing.T) { scheduleBroken(t, open(t)) })
	t.Run("Trigger", func(t *testing.T) { scheduleTrigger(t, open(t)) })
	t.Run("RollbackLeavesNothing", func(t *testing.T) { scheduleRolledBack(t, open(t)) })
}

// every is a calendar whose specs are durations, such as "1m0s".
type every struct{}

var errSpec = errors.New("not a duration")

func (every) Next(spec string, after time.Time) (time.Time, error) {
	d, err := time.ParseDuration(spec)
	if err != nil {
		return time.Time{}, errSpec
	}
	return after.Add(d), nil
}

func (e every) Last(spec string, first, through time.Time) (time.Time, error) {
	for {
		next, err := e.Next(spec, first)
		if err != nil || next.After(through) {
			return first, err
		}
		first = next
	}
}

// task returns a task that is due every minute, beginning at start.
func task(name string) row.Task {
	return row.Task{Name: name, Queue: "jobs", Spec: "1m0s", Payload: `"p"`, Priority: 3, MaxAttempts: 5, NextFire: start.Local(), Enabled: true}
}

func register(t *testing.T, d *Fixture, task row.Task) (before string, changed bool) {
	t.Helper()
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
		before, changed, err = d.Stores.Schedules.Register(ctx, q, task)
		return err
	})
	return before, changed
}

// stored returns the task called name, or all tasks.
func stored(t *testing.T, d *Fixture, name string) (all []row.Task) {
	t.Helper()
	d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
		all, err = d.Stores.Schedules.List(ctx, q, name)
		return err
	})
	return all
}

func soonest(t *testing.T, d *Fixture) (at time.Time) {
	t.Helper()
	d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
		at, err = d.Stores.Schedules.Soonest(ctx, q)
		return err
	})
	return at
}

func tick(t *testing.T, d *Fixture, due, now time.Time, limit int) (did row.Ticked) {
	t.Helper()
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
		did, err = d.Stores.Schedules.Tick(ctx, q, row.Tick{Due: due, Calendar: every{}, Limit: limit}, now)
		return err
	})
	return did
}

// times returns the names and due times of fires, in order.
func times(did row.Ticked) (out []string) {
	for _, f := range did.Fires {
		out = append(out, f.Name+" "+f.At.Sub(start).String())
	}
	return out
}

// Register adds a task, or changes an existing task that is different. The next time changes only if the spec does.
func scheduleRegister(t *testing.T, d *Fixture) {
	a, expires := task("a"), time.Minute
	a.ExpiresIn, a.Missed = &expires, row.Skip
	before, changed := register(t, d, a)
	require.Empty(t, before)
	require.True(t, changed)
	require.Equal(t, []row.Task{a}, stored(t, d, "a"))

	later := a
	later.NextFire = start.Add(time.Hour)
	before, changed = register(t, d, later)
	require.Equal(t, a.Spec, before)
	require.False(t, changed, "the next time alone is no change")
	require.Equal(t, []row.Task{a}, stored(t, d, "a"))

	for name, change := range map[string]func(*row.Task){
		"queue":        func(t *row.Task) { t.Queue = "mail" },
		"payload":      func(t *row.Task) { t.Payload = `"other"` },
		"priority":     func(t *row.Task) { t.Priority = 4 },
		"max attempts": func(t *row.Task) { t.MaxAttempts = 6 },
		"no expiry":    func(t *row.Task) { t.ExpiresIn = nil },
		"missed":       func(t *row.Task) { t.Missed = row.FireLast },
		"missed again": func(t *row.Task) { t.Missed = row.FireAll },
	} {
		change(&a)
		later := a
		later.NextFire = start.Add(time.Hour)
		_, changed = register(t, d, later)
		require.True(t, changed, name)
		require.Equal(t, []row.Task{a}, stored(t, d, "a"), name)
		_, changed = register(t, d, a)
		require.False(t, changed, name)
	}
	before, a.Spec, a.NextFire = a.Spec, "2m0s", start.Add(time.Hour).Local()
	was, changed := register(t, d, a)
	require.True(t, changed)
	require.Equal(t, before, was)
	require.Equal(t, []row.Task{a}, stored(t, d, "a"), "the next time changes with the spec")

	register(t, d, task("c"))
	register(t, d, task("b"))
	all := stored(t, d, "")
	require.Len(t, all, 3)
	require.Equal(t, []string{"a", "b", "c"}, []string{all[0].Name, all[1].Name, all[2].Name})
	require.Empty(t, stored(t, d, "d"))
	unregister := func(name string) (ok bool) {
		d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
			ok, err = d.Stores.Schedules.Unregister(ctx, q, name)
			return err
		})
		return ok
	}
	require.True(t, unregister("c"))
	require.False(t, unregister("c"))
	require.Empty(t, stored(t, d, "c"))
}

// Update changes the given values of a task, and no others.
func scheduleUpdate(t *testing.T, d *Fixture) {
	a, expires := task("a"), time.Minute
	a.ExpiresIn = &expires
	register(t, d, a)
	register(t, d, task("b"))
	update := func(name string, ch row.TaskChange) {
		t.Helper()
		d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
			return d.Stores.Schedules.Update(ctx, q, name, ch)
		})
	}
	var (
		payload, priority, attempts = `"q"`, int64(0), int64(9)
		hour, never, missed         = time.Hour, time.Duration(0), row.Skip
		next                        = start.Add(7 * time.Minute).Local()
	)
	for _, c := range []struct {
		ch    row.TaskChange
		apply func(*row.Task)
	}{
		{row.TaskChange{}, func(*row.Task) {}},
		{row.TaskChange{Payload: &payload}, func(t *row.Task) { t.Payload = payload }},
		{row.TaskChange{Priority: &priority}, func(t *row.Task) { t.Priority = 0 }},
		{row.TaskChange{MaxAttempts: &attempts}, func(t *row.Task) { t.MaxAttempts = 9 }},
		{row.TaskChange{ExpiresIn: &hour}, func(t *row.Task) { t.ExpiresIn = &hour }},
		{row.TaskChange{ExpiresIn: &never}, func(t *row.Task) { t.ExpiresIn = nil }},
		{row.TaskChange{Missed: &missed}, func(t *row.Task) { t.Missed = row.Skip }},
		{row.TaskChange{Spec: a.Spec, NextFire: next}, func(t *row.Task) { t.NextFire = next }},
	} {
		update("a", c.ch)
		c.apply(&a)
		require.Equal(t, []row.Task{a, task("b")}, stored(t, d, ""))
	}
	update("other", row.TaskChange{Spec: a.Spec, NextFire: next, Missed: &missed})
	require.Equal(t, []row.Task{a, task("b")}, stored(t, d, ""), "there is no such task")
}

// A tick fires each task once for each due time, and leaves the task due at the next time.
func scheduleFires(t *testing.T, d *Fixture) {
	require.Zero(t, soonest(t, d))
	a, b := task("a"), task("b")
	expires := 90 * time.Second
	b.ExpiresIn, b.Spec = &expires, "2m0s"
	register(t, d, b)
	register(t, d, a)
	require.Equal(t, start.Local(), soonest(t, d))
	require.Empty(t, times(tick(t, d, start.Add(-time.Second), start, 100)))

	now := start.Add(2*time.Minute + 30*time.Second)
	did := tick(t, d, now, now, 100)
	require.Equal(t, []string{"b 0s", "b 2m0s", "a 0s", "a 1m0s", "a 2m0s"}, times(did), "in the order of registration")
	require.Empty(t, did.Broken)
	require.False(t, did.More)
	require.Equal(t, start.Add(3*time.Minute).Local(), soonest(t, d))
	require.Empty(t, times(tick(t, d, now, now, 100)), "nothing fires twice")

	last := int64(0)
	for _, f := range did.Fires {
		require.Equal(t, "jobs", f.Queue)
		require.Greater(t, f.Job, last)
		last = f.Job
	}
	require.Equal(t, []string{"a 3m0s"}, times(tick(t, d, start.Add(3*time.Minute), start.Add(3*time.Minute), 100)))
	requireLast(t, d, "a", 3*time.Minute, 0, 0)
	requireLast(t, d, "b", 2*time.Minute, 0, 0)
}

// requireLast requires the stored facts of a task, as times since start. A time of -1 is none.
func requireLast(t *testing.T, d *Fixture, name string, fire, skip time.Duration, skipped int64) {
	t.Helper()
	got := stored(t, d, name)[0]
	require.Equal(t, fire < 0, got.LastFire.IsZero(), got.LastFire)
	require.Equal(t, fire < 0, got.LastJob == 0)
	if fire >= 0 {
		require.Equal(t, start.Add(fire).Local(), got.LastFire)
		j, found := d.find(t, got.LastJob)
		require.True(t, found)
		require.Equal(t, got.Queue, j.Queue)
	}
	require.Equal(t, skipped, got.Skipped)
	require.Equal(t, skipped == 0, got.LastSkip.IsZero())
	if skipped > 0 {
		require.Equal(t, start.Add(skip).Local(), got.LastSkip)
	}
}

// skips returns the names of the schedules that have skipped their last times.
func skips(t *testing.T, d *Fixture) (names []string) {
	t.Helper()
	d.read(t, func(ctx context.Context, q engine.Querier) error {
		found, err := d.Stores.Problems.Problems(ctx, q, row.ProblemAges{}, start)
		for _, s := range found.Skips {
			names = append(names, s.Name)
		}
		return err
	})
	return names
}

// A task that didn't fire on time fires according to its Missed field.
func scheduleMissed(t *testing.T, open func(t *testing.T) *Fixture) {
	for _, c := range []struct {
		missed row.Missed
		late   time.Duration
		want   []string
	}{
		{row.FireAll, 3 * time.Minute, []string{"a 0s", "a 1m0s", "a 2m0s", "a 3m0s"}},
		{row.FireLast, 3*time.Minute + 59*time.Second, []string{"a 3m0s"}},
		{row.Skip, 3*time.Minute + 59*time.Second, []string{"a 3m0s"}}, // recent
	} {
		d := open(t)
		a := task("a")
		a.Missed = c.missed
		register(t, d, a)
		require.Equal(t, c.want, times(tick(t, d, start.Add(c.late), start.Add(c.late), 100)), "%v", c)
		require.Equal(t, start.Add(4*time.Minute).Local(), soonest(t, d))
		switch c.missed {
		case row.Skip:
			requireLast(t, d, "a", 3*time.Minute, 2*time.Minute, 3)
		default:
			requireLast(t, d, "a", 3*time.Minute, 0, 0)
		}
		require.Empty(t, skips(t, d))
	}
	d := open(t)
	hourly := task("a")
	hourly.Missed, hourly.Spec = row.Skip, "1h0m0s"
	register(t, d, hourly)
	require.Equal(t, []string{"a 1h0m0s"}, times(tick(t, d, start.Add(time.Hour+90*time.Second), start.Add(2*time.Hour), 100)))
	require.Empty(t, times(tick(t, d, start.Add(2*time.Hour+91*time.Second), start.Add(3*time.Hour), 100)), "too late")
	requireLast(t, d, "a", time.Hour, 2*time.Hour, 2)
	require.Equal(t, []string{"a"}, skips(t, d))
	require.Equal(t, start.Add(3*time.Hour).Local(), soonest(t, d))

	d = open(t)
	many := task("many")
	many.Spec = "1s"
	register(t, d, many)
	did := tick(t, d, start.Add(1000*time.Second), start.Add(1000*time.Second), 1000)
	require.Len(t, did.Fires, 64, "the newest missed times are skipped")
	require.Equal(t, start.Add(63*time.Second).Local(), did.Fires[63].At)
	require.Equal(t, start.Add(1001*time.Second).Local(), soonest(t, d))
	requireLast(t, d, "many", 63*time.Second, 1000*time.Second, 937)

	d = open(t)
	many.Missed, many.Spec = row.Skip, "1s"
	register(t, d, many)
	tick(t, d, start.Add(5000*time.Second), start.Add(5000*time.Second), 1)
	requireLast(t, d, "many", 5000*time.Second, 4999*time.Second, row.MostSkipped)
}

// A tick stops at its limit and reports that more may be due. Further ticks fire the rest, once for each time.
func scheduleLimit(t *testing.T, d *Fixture) {
	var want, got []string
	for i := range 300 {
		register(t, d, task(fmt.Sprint(i)))
		want = append(want, fmt.Sprint(i, " 0s"))
	}
	for limit := 7; ; limit *= 8 {
		did := tick(t, d, start, start, limit)
		require.LessOrEqual(t, len(did.Fires), limit)
		got = append(got, times(did)...)
		if !did.More {
			break
		}
	}
	require.ElementsMatch(t, want, got)
}

// A paused task doesn't fire until it is resumed.
func schedulePaused(t *testing.T, d *Fixture) {
	enable := func(name string, on bool) (changed bool) {
		d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
			changed, err = d.Stores.Schedules.Enable(ctx, q, name, on)
			return err
		})
		return changed
	}
	a := task("a")
	register(t, d, a)
	require.False(t, enable("a", true))
	require.False(t, enable("other", false))
	require.True(t, enable("a", false))
	require.False(t, enable("a", false))
	require.Zero(t, soonest(t, d))
	require.Empty(t, times(tick(t, d, start, start, 100)))
	a.Payload = `"other"`
	register(t, d, a)
	require.False(t, stored(t, d, "a")[0].Enabled, "a registered task stays paused")
	require.True(t, enable("a", true))
	require.Equal(t, []string{"a 0s"}, times(tick(t, d, start, start, 100)))
}

// A task whose spec the calendar rejects is paused, and doesn't keep others from firing.
func scheduleBroken(t *testing.T, d *Fixture) {
	broken := task("broken")
	broken.Spec = "nonsense"
	register(t, d, broken)
	register(t, d, task("sound"))
	did := tick(t, d, start, start, 100)
	require.Equal(t, []string{"sound 0s"}, times(did))
	require.Len(t, did.Broken, 1)
	var b row.Broken
	require.ErrorAs(t, did.Broken[0], &b)
	require.Equal(t, "broken", b.Name)
	require.True(t, b.Paused)
	require.ErrorIs(t, b, errSpec)
	require.ErrorIs(t, b, engine.ErrInvalid)
	require.False(t, stored(t, d, "broken")[0].Enabled)
	require.Empty(t, tick(t, d, start, start, 100).Broken)
}

// Trigger enqueues a job, even for a paused task, and doesn't change the next time.
func scheduleTrigger(t *testing.T, d *Fixture) {
	register(t, d, task("a"))
	trigger := func(name string) (f row.Fire, found bool) {
		d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
			f, found, err = d.Stores.Schedules.Trigger(ctx, q, name, "", start)
			return err
		})
		return f, found
	}
	f, found := trigger("a")
	require.True(t, found)
	require.Equal(t, "jobs", f.Queue)
	require.Positive(t, f.Job)
	want := task("a")
	want.LastFire, want.LastJob = start.Local(), f.Job
	require.Equal(t, []row.Task{want}, stored(t, d, "a"))
	_, found = trigger("b")
	require.False(t, found)
}

// A tick that is rolled back fires nothing, and the task stays due. A registration that is rolled back adds no task.
func scheduleRolledBack(t *testing.T, d *Fixture) {
	register(t, d, task("a"))
	d.rollBack(t, func(ctx context.Context, q engine.Querier) error {
		did, err := d.Stores.Schedules.Tick(ctx, q, row.Tick{Due: start, Calendar: every{}, Limit: 1}, start)
		require.Len(t, did.Fires, 1)
		return err
	})
	d.rollBack(t, func(ctx context.Context, q engine.Querier) error {
		_, changed, err := d.Stores.Schedules.Register(ctx, q, task("b"))
		require.True(t, changed)
		return err
	})
	require.Equal(t, []row.Task{task("a")}, stored(t, d, ""))
	require.Equal(t, []string{"a 0s"}, times(tick(t, d, start, start, 1)))
}
