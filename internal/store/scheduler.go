package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
)

// Schedules are the statements on _honker_scheduler_tasks.
type Schedules struct{}

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

	rowid int64 // rises in the order of registration
}

// NextFunc returns the first unix second after another at which spec is due.
type NextFunc func(spec string, after int64) (int64, error)

// A task that is registered again without a change keeps its next time: an application
// that registers at every start must not push it away. Only another spec sets a new time.
// The last WHERE spares the write where nothing differs.
const sqlRegister = `INSERT INTO _honker_scheduler_tasks
  (name, queue, cron_expr, payload, priority, expires_s, max_attempts, next_fire_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (name) DO UPDATE SET queue = excluded.queue, cron_expr = excluded.cron_expr, payload = excluded.payload,
  priority = excluded.priority, expires_s = excluded.expires_s, max_attempts = excluded.max_attempts,
  next_fire_at = iif(cron_expr = excluded.cron_expr, next_fire_at, excluded.next_fire_at)
WHERE queue IS NOT excluded.queue OR cron_expr IS NOT excluded.cron_expr OR payload IS NOT excluded.payload
  OR priority IS NOT excluded.priority OR expires_s IS NOT excluded.expires_s OR max_attempts IS NOT excluded.max_attempts`

// Register adds a task, or changes the one of its name. A paused task stays paused.
func (Schedules) Register(ctx context.Context, q Querier, t Task) error {
	_, err := q.ExecContext(ctx, sqlRegister, t.Name, t.Queue, t.Spec, t.Payload, t.Priority,
		nullInt(t.ExpiresIn), t.MaxAttempts, t.NextFire)
	return err
}

const sqlUnregister = `DELETE FROM _honker_scheduler_tasks WHERE name = ?1`

// Unregister removes a task; false when there is none.
func (Schedules) Unregister(ctx context.Context, q Querier, name string) (bool, error) {
	n, err := affected(ctx, q, sqlUnregister, name)
	return n > 0, err
}

const sqlEnable = `UPDATE _honker_scheduler_tasks SET enabled = ?2 WHERE name = ?1 AND enabled <> ?2`

// Enable pauses or resumes a task; false when there is none, or nothing had to change.
func (Schedules) Enable(ctx context.Context, q Querier, name string, enabled bool) (bool, error) {
	n, err := affected(ctx, q, sqlEnable, name, enabled)
	return n > 0, err
}

const sqlUpdateTask = `UPDATE _honker_scheduler_tasks
SET cron_expr = ?2, payload = ?3, priority = ?4, expires_s = ?5, max_attempts = ?6, next_fire_at = ?7 WHERE name = ?1`

// Update replaces all of a task but its name, its queue and whether it is paused.
func (Schedules) Update(ctx context.Context, q Querier, t Task) error {
	_, err := q.ExecContext(ctx, sqlUpdateTask, t.Name, t.Spec, t.Payload, t.Priority,
		nullInt(t.ExpiresIn), t.MaxAttempts, t.NextFire)
	return err
}

// A row of another program must not hide the others: it may have no name, an enabled that is
// neither 0 nor 1, or an expires_s that is no number. The name of a row is no key, the rowid is.
const taskColumns = `SELECT coalesce(name, ''), queue, cron_expr, payload, priority,
  iif(typeof(expires_s) IN ('integer', 'real'), expires_s, NULL), coalesce(max_attempts, 3), next_fire_at, enabled = 1, rowid
FROM _honker_scheduler_tasks `

const (
	sqlGetTask  = taskColumns + `WHERE name = ?1`
	sqlTasks    = taskColumns + `ORDER BY name`
	sqlDueTasks = taskColumns + `INDEXED BY _honkerx_scheduler_due WHERE enabled = 1 AND next_fire_at <= ?1`
)

func tasks(ctx context.Context, q Querier, query string, args ...any) (out []Task, err error) {
	err = each(ctx, q, query, func(rows *sql.Rows) error {
		var t Task
		var expires sql.Null[number]
		err := rows.Scan(&t.Name, &t.Queue, &t.Spec, &t.Payload, (*number)(&t.Priority), &expires,
			(*number)(&t.MaxAttempts), (*number)(&t.NextFire), &t.Enabled, &t.rowid)
		t.ExpiresIn = sql.NullInt64{Int64: int64(expires.V), Valid: expires.Valid}
		out = append(out, t)
		return err
	}, args...)
	return out, err
}

// Get finds a task by its name.
func (Schedules) Get(ctx context.Context, q Querier, name string) (t Task, found bool, err error) {
	all, err := tasks(ctx, q, sqlGetTask, name)
	if err != nil || len(all) == 0 {
		return Task{}, false, err
	}
	return all[0], true, nil
}

// List returns all tasks by name.
func (Schedules) List(ctx context.Context, q Querier) ([]Task, error) { return tasks(ctx, q, sqlTasks) }

// max, because 0 stands for no task: another binding may store a time of 0.
const sqlSoonest = `SELECT max(next_fire_at, 1) FROM _honker_scheduler_tasks INDEXED BY _honkerx_scheduler_due
WHERE enabled = 1 ORDER BY next_fire_at LIMIT 1`

// Soonest returns when the next task is due, which may be in the past; 0 for none.
func (Schedules) Soonest(ctx context.Context, q Querier) (unix int64, err error) {
	_, err = one(ctx, q, sqlSoonest, nil, (*number)(&unix))
	return unix, err
}

// Fire is a task that was due and became a job.
type Fire struct {
	Name, Queue string
	At          int64 // when it was due
	Job         int64
}

// Broken is a task that was due and could not be fired as it says.
type Broken struct {
	Name   string
	Paused bool
	Err    error
}

// MaxFires bounds how often one tick fires a task that was due many times, for example
// after a long standstill. The oldest times are fired, the others are skipped.
const MaxFires = 64

// By rowid.
const (
	sqlAdvance   = `UPDATE _honker_scheduler_tasks SET next_fire_at = ?2 WHERE rowid = ?1`
	sqlPauseTask = `UPDATE _honker_scheduler_tasks SET enabled = 0 WHERE rowid = ?1`
)

// Tick enqueues a job for every time at which a task was due until due, at the time now, in
// the order in which the tasks were registered first. Broken tasks do not stop the others. One
// with a spec that cannot be read, which only another binding can have written, is paused.
func (s Schedules) Tick(ctx context.Context, q Querier, due, now int64, next NextFunc) (fires []Fire, broken []Broken, err error) {
	all, err := tasks(ctx, q, sqlDueTasks, due)
	if err != nil {
		return nil, nil, err
	}
	slices.SortFunc(all, func(a, b Task) int { return cmp.Compare(a.rowid, b.rowid) })
	for _, t := range all {
		times, after, err := t.times(due, next)
		if err != nil {
			paused, failed := affected(ctx, q, sqlPauseTask, t.rowid)
			if failed != nil {
				return nil, nil, failed
			}
			broken = append(broken, Broken{t.Name, paused > 0, err})
			continue
		}
		moved, err := affected(ctx, q, sqlAdvance, t.rowid, after)
		if err != nil {
			return nil, nil, err
		}
		if moved == 0 {
			broken = append(broken, Broken{t.Name, false, fmt.Errorf("it does not fire, because its next time cannot be stored: %w", ErrStuck)})
			continue
		}
		fired, dropped, err := t.fire(ctx, q, times, now)
		if err != nil {
			return nil, nil, err
		}
		fires = append(fires, fired...)
		if dropped > 0 {
			broken = append(broken, Broken{t.Name, false, fmt.Errorf("%d of its %d jobs: %w", dropped, len(times), ErrNotInserted)})
		}
	}
	return fires, broken, nil
}

// times returns when t was due until due, and when it is due next after that.
func (t Task) times(due int64, next NextFunc) (times []int64, after int64, err error) {
	for after = t.NextFire; after <= due; {
		if len(times) == MaxFires {
			after, err = next(t.Spec, due)
			return times, after, err
		}
		times = append(times, after)
		if after, err = next(t.Spec, after); err != nil {
			return nil, 0, err
		}
	}
	return times, after, nil
}

// fire enqueues a job for each of times and counts those that a trigger has dropped: an
// application may want no second job while one waits, and the schedule goes on.
func (t Task) fire(ctx context.Context, q Querier, times []int64, now int64) (fires []Fire, dropped int, err error) {
	for len(times) > 0 {
		ids, err := Jobs{}.InsertMany(ctx, q, t.job(now), slices.Repeat([]string{t.Payload}, len(times)))
		for i, id := range ids {
			fires = append(fires, Fire{Name: t.Name, Queue: t.Queue, At: times[i], Job: id})
		}
		if err == nil {
			break
		}
		if !errors.Is(err, ErrNotInserted) {
			return nil, 0, err
		}
		dropped++
		times = times[len(ids)+1:]
	}
	return fires, dropped, nil
}

// job is what t enqueues. It is due now, not at the task's time, so that a late tick does
// not put it before jobs that have waited longer.
func (t Task) job(now int64) NewJob {
	j := NewJob{Queue: t.Queue, Priority: t.Priority, RunAt: now, MaxAttempts: t.MaxAttempts, CreatedAt: now}
	if t.ExpiresIn.Valid {
		j.ExpiresAt = ExpiryIn(now, t.ExpiresIn.Int64)
	}
	return j
}

// Trigger enqueues a job of t as if it were due now, and does not change its next time.
func (Schedules) Trigger(ctx context.Context, q Querier, t Task, now int64) (int64, error) {
	return Jobs{}.Insert(ctx, q, t.job(now), t.Payload)
}
