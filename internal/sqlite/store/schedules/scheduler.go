// Package schedules contains the statements for schedules.
package schedules

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/jobs"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// Schedules contains the statements for _honker_scheduler_tasks.
type Schedules struct {
	// RunNow sets the run_at of a tick's jobs to the time of the tick, as honker does, instead of to their due times.
	RunNow bool
}

// Task is a task with the values that a row.Task cannot hold exactly.
type Task struct {
	row.Task               // without ExpiresIn
	ExpiresS sql.NullInt64 // seconds after the task fires; not valid if its jobs do not expire
	Rowid    int64         // increases in the order of registration
}

// expiresS returns d in seconds as stored. NULL means no expiry. A stored 0 is different from NULL: honker's SQL
// functions store it unchanged, and the jobs expire in the second in which they are enqueued.
func expiresS(d *time.Duration) (s sql.NullInt64) {
	if d != nil {
		s = sql.NullInt64{Int64: engine.Seconds(*d), Valid: true}
	}
	return s
}

// Registering an unchanged task again keeps its next time, so that an application that registers the task each time
// it starts doesn't postpone it. Only a different spec sets a new time. The last WHERE avoids a write if nothing
// differs.
const sqlRegister = `INSERT INTO _honker_scheduler_tasks
  (name, queue, cron_expr, payload, priority, expires_s, max_attempts, next_fire_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (name) DO UPDATE SET queue = excluded.queue, cron_expr = excluded.cron_expr, payload = excluded.payload,
  priority = excluded.priority, expires_s = excluded.expires_s, max_attempts = excluded.max_attempts,
  next_fire_at = iif(cron_expr = excluded.cron_expr, next_fire_at, excluded.next_fire_at)
WHERE queue IS NOT excluded.queue OR cron_expr IS NOT excluded.cron_expr OR payload IS NOT excluded.payload
  OR priority IS NOT excluded.priority OR expires_s IS NOT excluded.expires_s OR max_attempts IS NOT excluded.max_attempts`

// Register adds a task or updates the task with the same name, and returns the spec that the task had before, or ""
// if it is new. It returns false and writes nothing if nothing changed. A paused task stays paused. If a trigger has
// dropped a new task, the error is ErrNotInserted.
func (s Schedules) Register(ctx context.Context, q row.Querier, t row.Task) (before string, changed bool, err error) {
	if _, err = rows.One(ctx, q, sqlTaskSpec, []any{t.Name}, &before); err != nil {
		return "", false, err
	}
	changed, err = s.Put(ctx, q, Task{Task: t, ExpiresS: expiresS(t.ExpiresIn)})
	if err == nil && !changed && before == "" {
		err = row.ErrNotInserted
	}
	if err != nil {
		return before, false, err
	}
	missed, err := s.setMissed(ctx, q, t.Name, t.Missed)
	return before, changed || missed, err
}

// Put is like Register but does not change how missed times are handled. It returns false if nothing was
// written.
func (Schedules) Put(ctx context.Context, q row.Querier, t Task) (changed bool, err error) {
	n, err := rows.Affected(ctx, q, sqlRegister, t.Name, t.Queue, t.Spec, t.Payload, t.Priority,
		rows.NullInt(t.ExpiresS), t.MaxAttempts, t.NextFire.Unix())
	return n > 0, err
}

const (
	sqlSetMissed = `INSERT INTO _honkerx_schedules (name, missed) VALUES (?1, ?2)
ON CONFLICT (name) DO UPDATE SET missed = excluded.missed WHERE missed IS NOT excluded.missed`

	sqlResetMissed = `UPDATE _honkerx_schedules SET missed = 0 WHERE name = ?1 AND missed <> 0`
)

// setMissed sets how a task handles missed times. It returns false and writes nothing if nothing changed.
func (Schedules) setMissed(ctx context.Context, q row.Querier, name string, m row.Missed) (changed bool, err error) {
	query, args := sqlSetMissed, []any{name, int64(m)}
	if m == row.FireAll {
		query, args = sqlResetMissed, args[:1]
	}
	n, err := rows.Affected(ctx, q, query, args...)
	return n > 0, err
}

const sqlUnregister = `DELETE FROM _honker_scheduler_tasks WHERE name = ?1`

// Unregister removes a task. It returns false if there is no such task.
func (Schedules) Unregister(ctx context.Context, q row.Querier, name string) (bool, error) {
	n, err := rows.Affected(ctx, q, sqlUnregister, name)
	return n > 0, err
}

const sqlEnable = `UPDATE _honker_scheduler_tasks SET enabled = ?2 WHERE name = ?1 AND enabled <> ?2`

// Enable pauses or resumes a task. It returns false if there is no such task or if nothing changed.
func (Schedules) Enable(ctx context.Context, q row.Querier, name string, enabled bool) (bool, error) {
	n, err := rows.Affected(ctx, q, sqlEnable, name, enabled)
	return n > 0, err
}

const sqlUpdateTask = `UPDATE _honker_scheduler_tasks
SET cron_expr = coalesce(?2, cron_expr), next_fire_at = iif(?2 IS NULL, next_fire_at, ?3), payload = coalesce(?4, payload),
  priority = coalesce(?5, priority), expires_s = iif(?6, ?7, expires_s), max_attempts = coalesce(?8, max_attempts) WHERE name = ?1`

// Update changes a task's settings. It does nothing if there is no such task.
func (s Schedules) Update(ctx context.Context, q row.Querier, name string, ch row.TaskChange) error {
	to := Change{Payload: ptr(ch.Payload), Priority: ptr(ch.Priority), MaxAttempts: ptr(ch.MaxAttempts)}
	if ch.Spec != "" {
		to.Spec, to.NextFire = ch.Spec, ch.NextFire.Unix()
	}
	if ch.ExpiresIn != nil {
		to.Expiry, to.ExpiresS = true, rows.Nullable(engine.Seconds(*ch.ExpiresIn))
	}
	if err := s.Change(ctx, q, name, to); err != nil || ch.Missed == nil {
		return err
	}
	_, err := s.setMissed(ctx, q, name, *ch.Missed)
	return err
}

// ptr returns the value that p points to, or NULL.
func ptr[V any](p *V) any {
	if p == nil {
		return nil
	}
	return *p
}

// Change holds new values for a task's columns. NULL leaves a column unchanged.
type Change struct {
	Spec                           any
	NextFire                       int64 // set together with Spec
	Payload, Priority, MaxAttempts any
	Expiry                         bool // set ExpiresS, even to NULL
	ExpiresS                       any
}

// Change changes columns of a task. It does nothing if there is no such task.
func (Schedules) Change(ctx context.Context, q row.Querier, name string, to Change) error {
	_, err := q.ExecContext(ctx, sqlUpdateTask, name, to.Spec, to.NextFire, to.Payload, to.Priority, to.Expiry, to.ExpiresS, to.MaxAttempts)
	return err
}

// Another program's malformed row must not hide the other tasks. It may have no name, an enabled other than
// 0 and 1, or an expires_s that is not a number. Names need not be unique in such rows, so updates use the
// rowid.
const (
	taskColumns = `SELECT coalesce(t.name, ''), queue, cron_expr, payload, priority,
  iif(typeof(expires_s) IN ('integer', 'real'), expires_s, NULL), coalesce(max_attempts, 3), next_fire_at, enabled = 1,
  x.missed, x.last_fire_ms, x.last_job, x.last_skip_ms, x.skipped, t.rowid
FROM _honker_scheduler_tasks AS t `
	joinSide = ` LEFT JOIN _honkerx_schedules AS x ON x.name = t.name `
)

const (
	sqlGetTask  = taskColumns + joinSide + `WHERE t.name = ?1`
	sqlTasks    = taskColumns + joinSide + `ORDER BY t.name`
	sqlDueTasks = taskColumns + `INDEXED BY _honkerx_scheduler_due` + joinSide + `WHERE enabled = 1 AND next_fire_at <= ?1
ORDER BY next_fire_at LIMIT ?2 + 0`
)

func tasks(ctx context.Context, q row.Querier, query string, args ...any) (out []Task, err error) {
	err = rows.Each(ctx, q, query, func(r *sql.Rows) error {
		var t Task
		var expires sql.Null[rows.Number]
		var next rows.Number
		err := r.Scan(&t.Name, &t.Queue, &t.Spec, &t.Payload, (*rows.Number)(&t.Priority), &expires,
			(*rows.Number)(&t.MaxAttempts), &next, &t.Enabled, (*rows.Number)(&t.Missed), (*rows.Milli)(&t.LastFire), (*rows.Number)(&t.LastJob),
			(*rows.Milli)(&t.LastSkip), (*rows.Number)(&t.Skipped), &t.Rowid)
		t.ExpiresS = sql.NullInt64{Int64: int64(expires.V), Valid: expires.Valid}
		t.NextFire = time.Unix(int64(next), 0)
		out = append(out, t)
		return err
	}, args...)
	return out, err
}

const sqlTaskSpec = `SELECT cron_expr FROM _honker_scheduler_tasks WHERE name = ?1`

// Tasks returns the task called name, or all tasks sorted by name if all is set.
func (Schedules) Tasks(ctx context.Context, q row.Querier, name string, all bool) ([]Task, error) {
	if all {
		return tasks(ctx, q, sqlTasks)
	}
	return tasks(ctx, q, sqlGetTask, name)
}

// List returns the task called name, or all tasks sorted by name if name is empty.
func (s Schedules) List(ctx context.Context, q row.Querier, name string) ([]row.Task, error) {
	all, err := s.Tasks(ctx, q, name, name == "")
	if err != nil {
		return nil, err
	}
	out := make([]row.Task, len(all))
	for i, t := range all {
		out[i] = t.Task
		if t.ExpiresS.Valid {
			d := row.Span(t.ExpiresS.Int64)
			out[i].ExpiresIn = &d
		}
	}
	return out, nil
}

// The max is needed because 0 means no task, but another binding may store a time of 0.
const sqlSoonest = `SELECT max(next_fire_at, 1) FROM _honker_scheduler_tasks INDEXED BY _honkerx_scheduler_due
WHERE enabled = 1 ORDER BY next_fire_at LIMIT 1`

// Soonest returns the time at which the next enabled task is due, which may be in the past, or the zero time
// if there is none.
func (s Schedules) Soonest(ctx context.Context, q row.Querier) (time.Time, error) {
	unix, err := s.SoonestAt(ctx, q)
	return row.Instant(unix), err
}

// SoonestAt is like Soonest but returns Unix seconds, or 0 if there is none.
func (Schedules) SoonestAt(ctx context.Context, q row.Querier) (unix int64, err error) {
	_, err = rows.One(ctx, q, sqlSoonest, nil, (*rows.Number)(&unix))
	return unix, err
}

// A call to Tick reads at most mostTasks tasks, each of which may produce row.MaxFires jobs. It reads at least fewTasks,
// because tasks that can be neither advanced nor paused are read again by every call.
const (
	fewTasks  = 16
	mostTasks = 256
)

// Tick enqueues a job for every time up to k.Due at which a task was due. It stops once it has enqueued k.Limit jobs.
// Its cost is proportional to k.Limit, so that callers can let other writers run between calls. Tasks fire in the
// order in which they were first registered. A broken task doesn't stop the others.
func (s Schedules) Tick(ctx context.Context, q row.Querier, k row.Tick, now time.Time) (did row.Ticked, err error) {
	if did, err = s.tickAll(ctx, q, k, now.Unix()); err != nil {
		return did, err
	}
	return did, jobs.Jobs{}.SetSides(ctx, q, "", jobs.Side{Headers: k.Headers}, did.Jobs())
}

func (s Schedules) tickAll(ctx context.Context, q row.Querier, k row.Tick, now int64) (did row.Ticked, err error) {
	due, most := k.Due.Unix(), min(max(k.Limit, fewTasks), mostTasks)
	all, err := tasks(ctx, q, sqlDueTasks, due, most)
	if err != nil {
		return did, err
	}
	slices.SortFunc(all, func(a, b Task) int { return cmp.Compare(a.Rowid, b.Rowid) })
	changed := false
	for _, t := range all {
		if len(did.Fires) >= k.Limit {
			did.More = true
			return did, nil
		}
		moved, err := s.tick(ctx, q, t, due, now, k.Calendar, &did)
		if err != nil {
			return did, err
		}
		changed = changed || moved
	}
	did.More = changed && len(all) == most
	return did, nil
}

// These statements find the task by rowid.
const (
	sqlAdvance   = `UPDATE _honker_scheduler_tasks SET next_fire_at = ?2 WHERE rowid = ?1`
	sqlPauseTask = `UPDATE _honker_scheduler_tasks SET enabled = 0 WHERE rowid = ?1`
)

// errNotMoved wraps ErrStuck for a task that would keep firing forever.
var errNotMoved = fmt.Errorf("it does not fire, because its next time cannot be stored: %w", row.ErrStuck)

// tick fires t, or pauses it if its spec is invalid, which only another binding can have written. moved
// reports that t is no longer due. The next time is stored before the task fires.
func (s Schedules) tick(ctx context.Context, q row.Querier, t Task, due, now int64, in row.Calendar, did *row.Ticked) (moved bool, err error) {
	f, err := t.Firing(time.Unix(due, 0), in)
	if err != nil {
		return pauseTask(ctx, q, t, fmt.Errorf("%w: %w", engine.ErrInvalid, err), did)
	}
	advanced, err := rows.Affected(ctx, q, sqlAdvance, t.Rowid, f.Next.Unix())
	if err != nil {
		return false, err
	}
	if advanced == 0 {
		return pauseTask(ctx, q, t, errNotMoved, did)
	}
	before, last := len(did.Fires), row.Task{Skipped: f.Skipped, LastSkip: f.LastSkip}
	dropped, err := s.fire(ctx, q, t, f.Times, now, did)
	if fires := did.Fires[before:]; len(fires) > 0 {
		last.LastFire, last.LastJob = fires[len(fires)-1].At, fires[len(fires)-1].Job
	}
	if err == nil {
		err = saveLast(ctx, q, t.Name, last)
	}
	if dropped > 0 {
		did.Broken = append(did.Broken, row.Broken{Name: t.Name, Err: fmt.Errorf("%d of its %d jobs were %w", dropped, len(f.Times), row.ErrNotInserted)})
	}
	return true, err
}

// pauseTask pauses a broken task. It returns false if a trigger prevents even that.
func pauseTask(ctx context.Context, q row.Querier, t Task, why error, did *row.Ticked) (paused bool, err error) {
	n, err := rows.Affected(ctx, q, sqlPauseTask, t.Rowid)
	did.Broken = append(did.Broken, row.Broken{Name: t.Name, Paused: n > 0, Err: why})
	return n > 0, err
}

// sqlSaveLast uses the primary key.
const sqlSaveLast = `INSERT INTO _honkerx_schedules AS x (name, missed, last_fire_ms, last_job, last_skip_ms, skipped) VALUES (?1, 0, ?2, ?3, ?4, ?5)
ON CONFLICT (name) DO UPDATE SET last_fire_ms = coalesce(excluded.last_fire_ms, x.last_fire_ms), last_job = coalesce(excluded.last_job, x.last_job),
  last_skip_ms = coalesce(excluded.last_skip_ms, x.last_skip_ms), skipped = ifnull(x.skipped, 0) + excluded.skipped`

// saveLast saves the last fire and the last skipped time of the task called name, if last has any. A malformed task has no
// name.
func saveLast(ctx context.Context, q row.Querier, name string, last row.Task) error {
	if name == "" || last.LastJob == 0 && last.Skipped == 0 {
		return nil
	}
	args := []any{name, nil, nil, nil, last.Skipped}
	if last.LastJob != 0 {
		args[1], args[2] = rows.MilliOf(last.LastFire), last.LastJob
	}
	if last.Skipped != 0 {
		args[3] = rows.MilliOf(last.LastSkip)
	}
	_, err := q.ExecContext(ctx, sqlSaveLast, args...)
	return err
}

var sqlInsertFires = rows.NewInserts(`_honker_live`, `queue, priority, max_attempts, created_at, expires_at, payload, run_at`, 6, 1)

// fire enqueues a job for each of times and returns the number of jobs that a trigger dropped. An application may use
// such a trigger to reject a second job while the first is waiting, so dropped jobs don't stop the schedule.
//
// A job's run_at is the time at which it was due, which tells the handler which time it runs for. A caller may tick
// ahead of time. A time in the future becomes now, so that the job can run immediately.
func (s Schedules) fire(ctx context.Context, q row.Querier, t Task, times []time.Time, now int64, did *row.Ticked) (dropped int, err error) {
	j := taskJob(t, now)
	shared := []any{j.Queue, j.Priority, j.MaxAttempts, j.CreatedAt, rows.Nullable(j.ExpiresAt), t.Payload}
	r := func(args []any, i int) []any {
		if s.RunNow {
			return append(args, now)
		}
		return append(args, min(times[i].Unix(), now))
	}
	for len(times) > 0 {
		fired := 0
		err := sqlInsertFires.Run(ctx, q, shared, len(times), r, func(first, last int64) {
			for id := first; id <= last; id++ {
				did.Fires = append(did.Fires, row.Fire{Name: t.Name, Queue: t.Queue, At: times[fired].Local(), Job: id})
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
func taskJob(t Task, now int64) jobs.NewJob {
	j := jobs.NewJob{Queue: t.Queue, Priority: t.Priority, RunAt: now, MaxAttempts: t.MaxAttempts, CreatedAt: now}
	if t.ExpiresS.Valid {
		j.ExpiresAt = rows.ExpiryIn(now, t.ExpiresS.Int64)
	}
	return j
}

// Trigger enqueues a job for the task called name, as if the task were due now. The task's next time does
// not change. It returns false if there is no such task.
func (Schedules) Trigger(ctx context.Context, q row.Querier, name, headers string, now time.Time) (f row.Fire, found bool, err error) {
	all, err := tasks(ctx, q, sqlGetTask, name)
	if err != nil || len(all) == 0 {
		return f, false, err
	}
	t := all[0]
	id, err := jobs.Jobs{}.InsertOne(ctx, q, taskJob(t, now.Unix()), t.Payload)
	if err != nil {
		return f, true, err
	}
	f = row.Fire{Name: t.Name, Queue: t.Queue, At: now, Job: id}
	if err := saveLast(ctx, q, name, row.Task{LastFire: now, LastJob: id}); err != nil {
		return f, true, err
	}
	return f, true, jobs.Jobs{}.SetSides(ctx, q, t.Queue, jobs.Side{Headers: headers}, []int64{id})
}
