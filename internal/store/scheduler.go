package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Schedules groups the statements on _honker_scheduler_tasks.
type Schedules struct {
	// RunNow sets run_at of the jobs of a tick to the time of the tick, as honker does, instead of
	// the time at which they were due.
	RunNow bool
}

// Registering an unchanged task again keeps its next time, because an application that registers at
// every start must not postpone it. Only a different spec sets a new time. The last WHERE avoids a
// write if nothing differs.
const sqlRegister = `INSERT INTO _honker_scheduler_tasks
  (name, queue, cron_expr, payload, priority, expires_s, max_attempts, next_fire_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (name) DO UPDATE SET queue = excluded.queue, cron_expr = excluded.cron_expr, payload = excluded.payload,
  priority = excluded.priority, expires_s = excluded.expires_s, max_attempts = excluded.max_attempts,
  next_fire_at = iif(cron_expr = excluded.cron_expr, next_fire_at, excluded.next_fire_at)
WHERE queue IS NOT excluded.queue OR cron_expr IS NOT excluded.cron_expr OR payload IS NOT excluded.payload
  OR priority IS NOT excluded.priority OR expires_s IS NOT excluded.expires_s OR max_attempts IS NOT excluded.max_attempts`

// Register adds a task or updates the task of the same name. It returns false if nothing changed. A
// paused task stays paused. If a trigger has dropped a new task, the error is ErrNotInserted.
func (s Schedules) Register(ctx context.Context, q row.Querier, t row.Task) (changed bool, err error) {
	n, err := affected(ctx, q, sqlRegister, t.Name, t.Queue, t.Spec, t.Payload, t.Priority,
		nullInt(t.ExpiresIn), t.MaxAttempts, t.NextFire)
	if err != nil || n > 0 {
		return n > 0, err
	}
	// Nothing was written, usually because the task exists and nothing differs.
	if spec, err := s.Spec(ctx, q, t.Name); err != nil || spec != "" {
		return false, err
	}
	return false, row.ErrNotInserted
}

const (
	sqlSetMissed = `INSERT INTO _honkerx_schedules (name, missed) VALUES (?1, ?2)
ON CONFLICT (name) DO UPDATE SET missed = excluded.missed WHERE missed IS NOT excluded.missed`

	sqlDropMissed = `DELETE FROM _honkerx_schedules WHERE name = ?1`
)

// SetMissed sets how a task handles missed times. Like Register, it returns false and writes
// nothing if nothing changed.
func (Schedules) SetMissed(ctx context.Context, q row.Querier, name string, m row.Missed) (changed bool, err error) {
	query, args := sqlSetMissed, []any{name, int64(m)}
	if m == row.FireAll {
		query, args = sqlDropMissed, args[:1]
	}
	n, err := affected(ctx, q, query, args...)
	return n > 0, err
}

const sqlUnregister = `DELETE FROM _honker_scheduler_tasks WHERE name = ?1`

// Unregister removes a task. It returns false if there is none.
func (Schedules) Unregister(ctx context.Context, q row.Querier, name string) (bool, error) {
	n, err := affected(ctx, q, sqlUnregister, name)
	return n > 0, err
}

const sqlEnable = `UPDATE _honker_scheduler_tasks SET enabled = ?2 WHERE name = ?1 AND enabled <> ?2`

// Enable pauses or resumes a task. It returns false if there is no such task or nothing changed.
func (Schedules) Enable(ctx context.Context, q row.Querier, name string, enabled bool) (bool, error) {
	n, err := affected(ctx, q, sqlEnable, name, enabled)
	return n > 0, err
}

const sqlUpdateTask = `UPDATE _honker_scheduler_tasks
SET cron_expr = ?2, payload = ?3, priority = ?4, expires_s = ?5, max_attempts = ?6, next_fire_at = ?7 WHERE name = ?1`

// Update replaces all fields of a task except its name, its queue and whether it is paused.
func (Schedules) Update(ctx context.Context, q row.Querier, t row.Task) error {
	_, err := q.ExecContext(ctx, sqlUpdateTask, t.Name, t.Spec, t.Payload, t.Priority,
		nullInt(t.ExpiresIn), t.MaxAttempts, t.NextFire)
	return err
}

// A malformed row of another program must not hide the other tasks. It may have no name, an enabled
// other than 0 and 1, or an expires_s that is not a number. Names need not be unique in such rows,
// so updates use the rowid.
const taskColumns = `SELECT coalesce(name, ''), queue, cron_expr, payload, priority,
  iif(typeof(expires_s) IN ('integer', 'real'), expires_s, NULL), coalesce(max_attempts, 3), next_fire_at, enabled = 1,
  (SELECT missed FROM _honkerx_schedules AS x WHERE x.name = t.name), rowid
FROM _honker_scheduler_tasks AS t `

const (
	sqlGetTask  = taskColumns + `WHERE name = ?1`
	sqlTasks    = taskColumns + `ORDER BY name`
	sqlDueTasks = taskColumns + `INDEXED BY _honkerx_scheduler_due WHERE enabled = 1 AND next_fire_at <= ?1
ORDER BY next_fire_at LIMIT ?2 + 0`
)

func tasks(ctx context.Context, q row.Querier, query string, args ...any) (out []row.Task, err error) {
	err = each(ctx, q, query, func(rows *sql.Rows) error {
		var t row.Task
		var expires sql.Null[number]
		err := rows.Scan(&t.Name, &t.Queue, &t.Spec, &t.Payload, (*number)(&t.Priority), &expires,
			(*number)(&t.MaxAttempts), (*number)(&t.NextFire), &t.Enabled, (*number)(&t.Missed), &t.Rowid)
		t.ExpiresIn = sql.NullInt64{Int64: int64(expires.V), Valid: expires.Valid}
		out = append(out, t)
		return err
	}, args...)
	return out, err
}

const sqlTaskSpec = `SELECT cron_expr FROM _honker_scheduler_tasks WHERE name = ?1`

// Spec returns the spec of a task, or "" if there is none.
func (Schedules) Spec(ctx context.Context, q row.Querier, name string) (spec string, err error) {
	_, err = one(ctx, q, sqlTaskSpec, []any{name}, &spec)
	return spec, err
}

// Get returns the task of the given name; false if there is none.
func (Schedules) Get(ctx context.Context, q row.Querier, name string) (t row.Task, found bool, err error) {
	all, err := tasks(ctx, q, sqlGetTask, name)
	if err != nil || len(all) == 0 {
		return row.Task{}, false, err
	}
	return all[0], true, nil
}

// List returns all tasks, sorted by name.
func (Schedules) List(ctx context.Context, q row.Querier) ([]row.Task, error) {
	return tasks(ctx, q, sqlTasks)
}

// The max is needed because 0 means no task, and another binding may store a time of 0.
const sqlSoonest = `SELECT max(next_fire_at, 1) FROM _honker_scheduler_tasks INDEXED BY _honkerx_scheduler_due
WHERE enabled = 1 ORDER BY next_fire_at LIMIT 1`

// Soonest returns the unix second at which the next task is due, which may be in the past, or 0 if
// there is none.
func (Schedules) Soonest(ctx context.Context, q row.Querier) (unix int64, err error) {
	_, err = one(ctx, q, sqlSoonest, nil, (*number)(&unix))
	return unix, err
}

// MaxFires limits how often a tick fires a task that was due many times, such as after a long
// downtime. The oldest times fire and the others are skipped.
const MaxFires = 64

// onTime is how late, in seconds, a task that skips missed times may still fire. It exceeds the
// time for which the lock of a dead leader can last.
const onTime = 90

// A call of Tick reads at most mostTasks tasks, each of which may produce MaxFires jobs. It reads
// at least fewTasks, because tasks that can be neither advanced nor paused are read again by every
// call.
const (
	fewTasks  = 16
	mostTasks = 256
)

// Tick enqueues a job for every time up to due at which a task was due. now is the current unix
// second. Tick stops once it has enqueued limit jobs, and its cost is proportional to limit, so
// that callers can let other writers in between calls. Tasks fire in the order of their first
// registration. A broken task does not stop the others.
func (s Schedules) Tick(ctx context.Context, q row.Querier, due, now int64, headers string, in row.Calendar, limit int) (did row.Ticked, err error) {
	if did, err = s.tickSome(ctx, q, due, now, in, limit); err != nil {
		return did, err
	}
	return did, Jobs{}.SetSides(ctx, q, "", Side{Headers: headers}, did.Jobs())
}

// tickSome is Tick without headers.
func (s Schedules) tickSome(ctx context.Context, q row.Querier, due, now int64, in row.Calendar, limit int) (did row.Ticked, err error) {
	most := min(max(limit, fewTasks), mostTasks)
	all, err := tasks(ctx, q, sqlDueTasks, due, most)
	if err != nil {
		return did, err
	}
	slices.SortFunc(all, func(a, b row.Task) int { return cmp.Compare(a.Rowid, b.Rowid) })
	changed := false
	for _, t := range all {
		if len(did.Fires) >= limit {
			did.More = true
			return did, nil
		}
		moved, err := s.tick(ctx, q, t, due, now, in, &did)
		if err != nil {
			return did, err
		}
		changed = changed || moved
	}
	did.More = changed && len(all) == most
	return did, nil
}

// By rowid.
const (
	sqlAdvance   = `UPDATE _honker_scheduler_tasks SET next_fire_at = ?2 WHERE rowid = ?1`
	sqlPauseTask = `UPDATE _honker_scheduler_tasks SET enabled = 0 WHERE rowid = ?1`
)

// errNotMoved wraps ErrStuck for a task that would fire forever.
var errNotMoved = fmt.Errorf("it does not fire, because its next time cannot be stored: %w", row.ErrStuck)

// tick fires t, or pauses it if its spec is invalid, which only another binding can have written.
// moved reports that t is no longer due. The next time is stored before the task fires.
func (s Schedules) tick(ctx context.Context, q row.Querier, t row.Task, due, now int64, in row.Calendar, did *row.Ticked) (moved bool, err error) {
	times, after, err := taskTimes(t, due, in)
	if err != nil {
		return pauseTask(ctx, q, t, fmt.Errorf("%w: %w", engine.ErrInvalid, err), did)
	}
	advanced, err := affected(ctx, q, sqlAdvance, t.Rowid, after)
	if err != nil {
		return false, err
	}
	if advanced == 0 {
		return pauseTask(ctx, q, t, errNotMoved, did)
	}
	dropped, err := s.fire(ctx, q, t, times, now, did)
	if dropped > 0 {
		did.Broken = append(did.Broken, row.Broken{Name: t.Name, Err: fmt.Errorf("%d of its %d jobs were %w", dropped, len(times), row.ErrNotInserted)})
	}
	return true, err
}

// pauseTask pauses a broken task. It returns false if a trigger prevents even that.
func pauseTask(ctx context.Context, q row.Querier, t row.Task, why error, did *row.Ticked) (paused bool, err error) {
	n, err := affected(ctx, q, sqlPauseTask, t.Rowid)
	did.Broken = append(did.Broken, row.Broken{Name: t.Name, Paused: n > 0, Err: why})
	return n > 0, err
}

// taskTimes returns the times up to due at which t should fire, and the next time after due.
func taskTimes(t row.Task, due int64, in row.Calendar) (times []int64, after int64, err error) {
	if t.Missed == row.FireLast || t.Missed == row.Skip {
		return taskLastTime(t, due, in)
	}
	for after = t.NextFire; after <= due; {
		if len(times) == MaxFires {
			after, err = in.Next(t.Spec, due)
			return times, after, err
		}
		times = append(times, after)
		if after, err = in.Next(t.Spec, after); err != nil {
			return nil, 0, err
		}
	}
	return times, after, nil
}

func taskLastTime(t row.Task, due int64, in row.Calendar) (times []int64, after int64, err error) {
	last, err := in.Last(t.Spec, t.NextFire, due)
	if err != nil {
		return nil, 0, err
	}
	if t.Missed == row.FireLast || due-last <= onTime {
		times = append(times, last)
	}
	after, err = in.Next(t.Spec, last)
	return times, after, err
}

var sqlInsertFires = newInserts(`_honker_live`, `queue, priority, max_attempts, created_at, expires_at, payload, run_at`, 6, 1)

// fire enqueues a job for each of times and returns how many of them a trigger has dropped. An
// application may use such a trigger to refuse a second job while the first waits, so dropped jobs
// do not stop the schedule.
//
// The run_at of a job is the time at which it was due, which tells a handler for which time it
// runs. A caller may tick ahead; a time in the future becomes now, so that the job can run at once.
func (s Schedules) fire(ctx context.Context, q row.Querier, t row.Task, times []int64, now int64, did *row.Ticked) (dropped int, err error) {
	j := taskJob(t, now)
	shared := []any{j.Queue, j.Priority, j.MaxAttempts, j.CreatedAt, nullable(j.ExpiresAt), t.Payload}
	r := func(args []any, i int) []any {
		if s.RunNow {
			return append(args, now)
		}
		return append(args, min(times[i], now))
	}
	for len(times) > 0 {
		fired := 0
		err := sqlInsertFires.run(ctx, q, shared, len(times), r, func(first, last int64) {
			for id := first; id <= last; id++ {
				did.Fires = append(did.Fires, row.Fire{Name: t.Name, Queue: t.Queue, At: times[fired], Job: id})
				fired++
			}
		})
		if !errors.Is(err, row.ErrNotInserted) {
			return dropped, err
		}
		dropped++
		times = times[fired+1:]
	}
	return dropped, nil
}

// taskJob returns the job that t enqueues at now.
func taskJob(t row.Task, now int64) NewJob {
	j := NewJob{Queue: t.Queue, Priority: t.Priority, RunAt: now, MaxAttempts: t.MaxAttempts, CreatedAt: now}
	if t.ExpiresIn.Valid {
		j.ExpiresAt = ExpiryIn(now, t.ExpiresIn.Int64)
	}
	return j
}

// Trigger enqueues a job of t with headers as if t were due now. The next time of t does not change.
func (Schedules) Trigger(ctx context.Context, q row.Querier, t row.Task, headers string, now int64) (int64, error) {
	id, err := Jobs{}.InsertOne(ctx, q, taskJob(t, now), t.Payload)
	if err != nil {
		return 0, err
	}
	return id, Jobs{}.SetSides(ctx, q, t.Queue, Side{Headers: headers}, []int64{id})
}
