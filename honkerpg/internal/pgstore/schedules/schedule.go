package schedules

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Schedules contains the statements for the table schedule.
type Schedules struct{ pgsql.Schema }

// task is a stored task.
type task struct {
	row.Task
	id int64
}

// A registration of an unchanged task keeps its next time, because an application that registers at every start must
// not postpone it. Only a different spec sets a new time. The last WHERE avoids a write if nothing differs.
const (
	sqlTaskSpec = `SELECT spec FROM honker.schedule WHERE name = $1`

	sqlRegister = `INSERT INTO honker.schedule AS s (name, queue, spec, payload, priority, expires, max_attempts, next_at, missed)
VALUES ($1, $2, $3, $4, $5, $6` + pgsql.Interval + `, $7, $8, $9)
ON CONFLICT (name) DO UPDATE SET queue = excluded.queue, spec = excluded.spec, payload = excluded.payload,
  priority = excluded.priority, expires = excluded.expires, max_attempts = excluded.max_attempts, missed = excluded.missed,
  next_at = CASE WHEN s.spec = excluded.spec THEN s.next_at ELSE excluded.next_at END
WHERE (s.queue, s.spec, s.payload, s.priority, s.expires, s.max_attempts, s.missed) IS DISTINCT FROM
  (excluded.queue, excluded.spec, excluded.payload, excluded.priority, excluded.expires, excluded.max_attempts, excluded.missed)`
)

// Register implements engine.ScheduleStore.
func (s Schedules) Register(ctx context.Context, q row.Querier, t row.Task) (before string, changed bool, err error) {
	if _, err := pgsql.One(ctx, q, s.SQL(sqlTaskSpec), []any{t.Name}, &before); err != nil {
		return "", false, err
	}
	n, err := pgsql.Affected(ctx, q, s.SQL(sqlRegister), t.Name, t.Queue, t.Spec, t.Payload, t.Priority,
		pgsql.Microseconds(t.ExpiresIn), t.MaxAttempts, pgsql.Stamp(t.NextFire), int64(t.Missed))
	if err != nil || n > 0 || before != "" {
		return before, n > 0, err
	}
	// Another process may have registered the same task since the first statement.
	there, err := pgsql.One(ctx, q, s.SQL(sqlTaskSpec), []any{t.Name}, &before)
	if err == nil && !there {
		err = row.ErrNotInserted
	}
	return before, false, err
}

const sqlUnregister = `DELETE FROM honker.schedule WHERE name = $1`

// Unregister implements engine.ScheduleStore.
func (s Schedules) Unregister(ctx context.Context, q row.Querier, name string) (bool, error) {
	n, err := pgsql.Affected(ctx, q, s.SQL(sqlUnregister), name)
	return n > 0, err
}

const sqlEnable = `UPDATE honker.schedule SET enabled = $2 WHERE name = $1 AND enabled <> $2`

// Enable implements engine.ScheduleStore.
func (s Schedules) Enable(ctx context.Context, q row.Querier, name string, enabled bool) (bool, error) {
	n, err := pgsql.Affected(ctx, q, s.SQL(sqlEnable), name, enabled)
	return n > 0, err
}

const sqlUpdateTask = `UPDATE honker.schedule SET spec = coalesce($2, spec), next_at = coalesce($3, next_at),
  payload = coalesce($4, payload), priority = coalesce($5, priority), max_attempts = coalesce($6, max_attempts),
  missed = coalesce($7, missed), expires = CASE WHEN $8::boolean THEN $9` + pgsql.Interval + ` ELSE expires END
WHERE name = $1`

// Update implements engine.ScheduleStore.
func (s Schedules) Update(ctx context.Context, q row.Querier, name string, ch row.TaskChange) error {
	next := sql.NullTime{Time: pgsql.Stamp(ch.NextFire), Valid: ch.Spec != ""}
	expires := ch.ExpiresIn
	if expires != nil && *expires <= 0 {
		expires = nil
	}
	_, err := q.ExecContext(ctx, s.SQL(sqlUpdateTask), name, sql.NullString{String: ch.Spec, Valid: ch.Spec != ""}, next,
		ch.Payload, ch.Priority, ch.MaxAttempts, (*int64)(ch.Missed), ch.ExpiresIn != nil, pgsql.Microseconds(expires))
	return err
}

// Due tasks that another tick has locked are skipped, so no time fires twice even if two processes tick.
const (
	taskColumns = `SELECT id, name, queue, spec, payload, priority, max_attempts, missed, enabled, next_at,
  (extract(epoch FROM expires) * 1000000)::bigint, last_fire, coalesce(last_job, 0), last_skip, skipped FROM honker.schedule `

	sqlGetTask  = taskColumns + `WHERE name = $1`
	sqlTasks    = taskColumns + `ORDER BY name`
	sqlDueTasks = taskColumns + `WHERE enabled AND next_at <= $1 ORDER BY next_at LIMIT $2 FOR UPDATE SKIP LOCKED`
)

func (s Schedules) tasks(ctx context.Context, q row.Querier, query string, args ...any) (out []task, err error) {
	err = pgsql.Each(ctx, q, s.SQL(query), func(r *sql.Rows) error {
		var t task
		var expires sql.NullInt64
		var fire, skip sql.NullTime
		err := r.Scan(&t.id, &t.Name, &t.Queue, &t.Spec, &t.Payload, &t.Priority, &t.MaxAttempts, (*int64)(&t.Missed),
			&t.Enabled, &t.NextFire, &expires, &fire, &t.LastJob, &skip, &t.Skipped)
		t.LastFire, t.LastSkip = pgsql.Instant(fire), pgsql.Instant(skip)
		if expires.Valid {
			d := time.Duration(expires.Int64) * time.Microsecond
			t.ExpiresIn = &d
		}
		t.NextFire = t.NextFire.Local()
		out = append(out, t)
		return err
	}, args...)
	return out, err
}

// List implements engine.ScheduleStore.
func (s Schedules) List(ctx context.Context, q row.Querier, name string) ([]row.Task, error) {
	query, args := sqlTasks, []any{}
	if name != "" {
		query, args = sqlGetTask, []any{name}
	}
	all, err := s.tasks(ctx, q, query, args...)
	out := make([]row.Task, len(all))
	for i, t := range all {
		out[i] = t.Task
	}
	return out, err
}

const sqlSoonest = `SELECT next_at FROM honker.schedule WHERE enabled ORDER BY next_at LIMIT 1`

// Soonest implements engine.ScheduleStore.
func (s Schedules) Soonest(ctx context.Context, q row.Querier) (time.Time, error) {
	var at sql.NullTime
	_, err := pgsql.One(ctx, q, s.SQL(sqlSoonest), nil, &at)
	return pgsql.Instant(at), err
}

// The bounds of a tick are those of the store for SQLite.
const (
	fewTasks  = 16  // tasks that a tick reads at least
	mostTasks = 256 // tasks that a tick reads at most
)

// Tick implements engine.ScheduleStore.
func (s Schedules) Tick(ctx context.Context, q row.Querier, k row.Tick, now time.Time) (did row.Ticked, err error) {
	most := min(max(k.Limit, fewTasks), mostTasks)
	all, err := s.tasks(ctx, q, sqlDueTasks, pgsql.Stamp(k.Due), most)
	if err != nil {
		return did, err
	}
	slices.SortFunc(all, func(a, b task) int { return cmp.Compare(a.id, b.id) })
	changed := false
	for _, t := range all {
		if len(did.Fires) >= k.Limit {
			did.More = true
			return did, nil
		}
		moved, err := s.tick(ctx, q, t, k, now, &did)
		if err != nil {
			return did, err
		}
		changed = changed || moved
	}
	did.More = changed && len(all) == most
	return did, nil
}

const (
	sqlAdvance   = `UPDATE honker.schedule SET next_at = $2 WHERE id = $1 AND name = $3`
	sqlPauseTask = `UPDATE honker.schedule SET enabled = false WHERE id = $1 AND name = $2`
)

// tick fires t, or pauses it if the calendar rejects its spec. moved reports that t is no longer due. The next time is
// stored before the task fires.
func (s Schedules) tick(ctx context.Context, q row.Querier, t task, k row.Tick, now time.Time, did *row.Ticked) (moved bool, err error) {
	f, err := t.Firing(k.Due, k.Calendar)
	if err != nil {
		return s.pause(ctx, q, t, fmt.Errorf("%w: %w", engine.ErrInvalid, err), did)
	}
	n, err := pgsql.Affected(ctx, q, s.SQL(sqlAdvance), t.id, pgsql.Stamp(f.Next), t.Name)
	if err != nil {
		return false, err
	}
	if n == 0 {
		return s.pause(ctx, q, t, fmt.Errorf("it does not fire, because its next time cannot be stored: %w", row.ErrStuck), did)
	}
	dropped, last := 0, row.Task{Skipped: f.Skipped, LastSkip: f.LastSkip}
	for _, at := range f.Times {
		id, err := s.fire(ctx, q, t.Task, at, k.Headers, now)
		switch {
		case err != nil:
			return true, err
		case id == 0:
			dropped++
		default:
			did.Fires = append(did.Fires, row.Fire{Name: t.Name, Queue: t.Queue, At: at.Local(), Job: id})
			last.LastFire, last.LastJob = at, id
		}
	}
	if err := s.saveLast(ctx, q, t.id, last); err != nil {
		return true, err
	}
	if dropped > 0 {
		did.Broken = append(did.Broken, row.Broken{Name: t.Name, Err: fmt.Errorf("%d of its %d jobs were %w", dropped, len(f.Times), row.ErrNotInserted)})
	}
	return true, nil
}

// pause pauses a broken task. It returns false if a trigger prevents even that.
func (s Schedules) pause(ctx context.Context, q row.Querier, t task, why error, did *row.Ticked) (paused bool, err error) {
	n, err := pgsql.Affected(ctx, q, s.SQL(sqlPauseTask), t.id, t.Name)
	did.Broken = append(did.Broken, row.Broken{Name: t.Name, Paused: n > 0, Err: why})
	return n > 0, err
}

const sqlSaveLast = `UPDATE honker.schedule SET last_fire = coalesce($2, last_fire), last_job = coalesce($3, last_job),
  last_skip = coalesce($4, last_skip), skipped = skipped + $5 WHERE id = $1`

// saveLast saves the last fire and the last skipped time of a task, if last has any.
func (s Schedules) saveLast(ctx context.Context, q row.Querier, id int64, last row.Task) error {
	fired, skipped := last.LastJob != 0, last.Skipped != 0
	if !fired && !skipped {
		return nil
	}
	_, err := q.ExecContext(ctx, s.SQL(sqlSaveLast), id, sql.NullTime{Time: pgsql.Stamp(last.LastFire), Valid: fired},
		sql.NullInt64{Int64: last.LastJob, Valid: fired}, sql.NullTime{Time: pgsql.Stamp(last.LastSkip), Valid: skipped}, last.Skipped)
	return err
}

const sqlInsertFire = `INSERT INTO honker.job (queue, priority, max_attempts, created_at, expires_at, payload, headers, run_at)
VALUES ($1, $2, $3, $4, $5, $6, nullif($7, ''), $8) RETURNING id`

// fire enqueues a job that was due at a time, which is its run_at and tells the handler which time it runs for. A caller
// may tick ahead; a time in the future becomes now, so that the job can run immediately. fire returns 0 if a trigger
// has dropped the job.
func (s Schedules) fire(ctx context.Context, q row.Querier, t row.Task, at time.Time, headers string, now time.Time) (id int64, err error) {
	var expires sql.NullTime
	if t.ExpiresIn != nil {
		expires = sql.NullTime{Time: pgsql.StampUp(now.Add(*t.ExpiresIn)), Valid: true}
	}
	if at.After(now) {
		at = now
	}
	_, err = pgsql.One(ctx, q, s.SQL(sqlInsertFire), []any{t.Queue, t.Priority, t.MaxAttempts, pgsql.Stamp(now), expires, t.Payload, headers, pgsql.Stamp(at)}, &id)
	return id, err
}

// Trigger implements engine.ScheduleStore.
func (s Schedules) Trigger(ctx context.Context, q row.Querier, name, headers string, now time.Time) (f row.Fire, found bool, err error) {
	all, err := s.tasks(ctx, q, sqlGetTask, name)
	if err != nil || len(all) == 0 {
		return f, false, err
	}
	t := all[0]
	id, err := s.fire(ctx, q, t.Task, now, headers, now)
	if err == nil && id == 0 {
		err = row.ErrNotInserted
	}
	if err == nil {
		err = s.saveLast(ctx, q, t.id, row.Task{LastFire: now, LastJob: id})
	}
	return row.Fire{Name: t.Name, Queue: t.Queue, At: now, Job: id}, true, err
}
